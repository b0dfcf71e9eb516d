//! Long sessions: their transcript is compacted for the model in the middle of a turn, before a
//! turn, and on request.

use serde_json::{Value, json};

use super::Scenario;
use crate::harness::{Caller, Place, Script, calls, says};

/// The scenarios of long sessions.
pub(crate) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "compact",
    place,
    play: |caller| Box::pin(compact(caller)),
}];

fn place() -> Place {
    let long = |letter: &str| letter.repeat(2400);
    let place = Place::new(
        Script::new()
            .on("[one]", [says(&long("one "))])
            .on("[two]", [says(&long("two "))])
            .on(
                "[three]",
                [calls("list", json!({ "path": "." })), says(&long("three "))],
            )
            .on("[child]", [says("grown")])
            .on_announce("grown", [says("NO_REPLY")]),
    )
    .with("sessions.window", "5000")
    .with_agent("small", "mode: primary\ntools: [list]");
    std::fs::write(place.work().join("a.txt"), "a").unwrap();
    place
}

fn kinds(history: &Value) -> Vec<&str> {
    let messages = history["messages"].as_array().unwrap();
    messages
        .iter()
        .map(|message| message["kind"].as_str().unwrap())
        .filter(|kind| *kind != "restart_notice")
        .collect()
}

/// Three long turns, of which the third exceeds the context window, while an announce is pending.
/// Then a user requests two compactions, of which the second finds nothing to compact.
async fn compact(caller: &mut Caller) {
    let params = json!({ "agent": "small", "key": "agent:small:desk" });
    let made = caller.call("sessions.create", params).await;
    let session = made["session"]["key"].as_str().unwrap().to_owned();
    for message in ["[one]", "[two]"] {
        let turn = caller.turn(&session, message).await;
        let ended = caller.ended(&turn.id).await;
        assert_eq!(ended["state"], "ok", "{ended}");
    }
    let child = caller
        .spawn(json!({ "task": "[child]", "parent": session, "agent": "explore" }))
        .await;
    caller.ended(&child.id).await;
    // Otherwise it would be undetermined whether its end comes before the third turn or during it.
    caller.quiet().await;
    let turn = caller.turn(&session, "[three]").await;
    let ended = caller.ended(&turn.id).await;
    assert_eq!(ended["state"], "ok", "{ended}");
    caller.quiet().await;

    let params = json!({ "sessionKey": session });
    let history = caller.call("sessions.history", params.clone()).await;
    let kinds = kinds(&history);
    let of = |kind: &str| kinds.iter().filter(|one| **one == kind).count();
    assert_eq!(of("compaction"), 1, "{kinds:?}");
    assert_eq!(of("announce"), 1, "{kinds:?}");
    // The original entries are kept.
    assert!(history.to_string().contains("one one one"));

    for told in ["entries", "nothing to compact"] {
        let run = caller.compact(&session).await;
        let ended = caller.ended(&run.id).await;
        assert_eq!(ended["state"], "ok", "{ended}");
        let result = ended["result"].as_str().unwrap();
        assert!(result.contains(told), "{result}");
    }
}
