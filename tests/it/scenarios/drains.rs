//! Drains after which work resumes in the same process.

use serde_json::json;

use super::Scenario;
use crate::harness::{Caller, Place, Script, calls, says};

/// The scenarios of drains.
pub(crate) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "resume",
    place: resume_place,
    play: |caller| Box::pin(resume(caller)),
}];

fn resume_place() -> Place {
    Place::new(
        Script::new()
            .on(
                "[a]",
                [
                    calls("read", json!({ "path": "notes.txt" })).held_by("go"),
                    says("a is done"),
                ],
            )
            .on("[b]", [says("b is done")]),
    )
    // The second run waits for the first one's slot, so the drain finds it in its queue.
    .with("lanes.subagent", "1")
}

/// A run that parks at its next step and one that is queued: both end after the resume, or after
/// the kill that replaces it.
async fn resume(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let a = caller.spawn(json!({ "task": "[a]", "parent": root })).await;
    let b = caller.spawn(json!({ "task": "[b]" })).await;
    caller.until_model_called("[a]", 0).await;
    let order = json!({ "then": "resume", "timeout": "1h" });
    caller.call("gateway.drain", order).await;
    caller.place().let_go("go");
    caller
        .until("work is taken again", async |caller: &mut Caller| {
            let status = caller.call("gateway.status", json!({})).await;
            (status["phase"] == "ready").then_some(())
        })
        .await;
    assert_eq!(caller.ended(&a.id).await["result"], "a is done");
    assert_eq!(caller.ended(&b.id).await["result"], "b is done");
    caller.quiet().await;
    caller.ack_all(&root).await;
}
