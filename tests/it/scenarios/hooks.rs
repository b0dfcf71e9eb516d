//! Deliveries of a hook that are repeated until they are answered: each is one run, whatever is
//! killed.

use super::Scenario;
use crate::harness::{Caller, Place, Script, says};
use crate::hooks::SECRET;

/// The scenarios of inbound hooks.
pub(crate) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "hooks",
    place: hooked,
    play: |caller| Box::pin(deliveries(caller)),
}];

fn hooked() -> Place {
    let script = Script::new()
        .on("[a]", [says("a is done")])
        .on("[b]", [says("b is done")]);
    let mut place = Place::new(script);
    for name in ["each", "together"] {
        place.set(&format!("hooks.{name}.check"), "\"github\"");
        place.set(&format!("hooks.{name}.secret"), &format!("{SECRET:?}"));
        place.set(&format!("hooks.{name}.task"), "\"Do {text}\"");
    }
    place.with("hooks.together.session", "\"hook:{about|all}\"")
}

async fn deliveries(caller: &mut Caller) {
    let bodies = [
        ("each", "{\"text\": \"[a]\"}", "a is done"),
        ("together", "{\"text\": \"[b]\", \"about\": 7}", "b is done"),
    ];
    for (hook, body, result) in bodies {
        let run = caller.deliver(hook, "1", body).await;
        assert_eq!(caller.ended(&run).await["result"], result);
        caller.quiet().await;
        // A late repeat finds the same run.
        assert_eq!(caller.redeliver(hook, "1", body).await, run);
    }
}
