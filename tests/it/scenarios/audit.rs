//! Audit rows that are written alone, not with another command: those of a repeated call.

use serde_json::json;

use super::Scenario;
use crate::harness::{Caller, Place, Script, says};

/// The scenarios of audit rows.
pub(crate) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "repeat",
    place: repeat_place,
    play: |caller| Box::pin(repeat(caller)),
}];

fn repeat_place() -> Place {
    Place::new(Script::new().on("[a]", [says("a is done")]))
}

/// A spawn and its repeat are one run; the audit row of the repeat is written separately.
async fn repeat(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let spawn = json!({ "task": "[a]", "parent": root });
    let a = caller.spawn(spawn.clone()).await;
    let again = json!({
        "task": "[a]", "parent": root, "agent": "explore", "idempotencyKey": "key-0",
    });
    let again = caller.call("sessions.spawn", again).await;
    assert_eq!(again["runId"], a.id.as_str());
    assert_eq!(caller.ended(&a.id).await["result"], "a is done");
    caller.quiet().await;
}
