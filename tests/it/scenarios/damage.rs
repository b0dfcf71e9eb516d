//! Rows that are damaged behind the daemon's back.

use serde_json::{Value, json};

use super::Scenario;
use crate::harness::{Caller, Place, Script, damaged, says};

/// The scenarios of damaged rows.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "damaged_rows",
        place,
        play: |caller| Box::pin(damaged_rows(caller)),
    },
    Scenario {
        name: "damaged_file",
        place,
        play: |caller| Box::pin(damaged_file(caller)),
    },
];

fn place() -> Place {
    Place::new(Script::new().on("*", [says("done")]))
}

/// A run, an entry and a session's row are damaged after everything has ended: each is quarantined,
/// and lists show them with their readable parts.
async fn damaged_rows(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let a = caller
        .spawn(json!({ "task": "[a]", "parent": root, "meta": { "route": 1 } }))
        .await;
    caller.ended(&a.id).await;
    caller.quiet().await;
    caller.ack_all(&root).await;
    let database = caller.place().database();
    damaged(&database, "UPDATE messages SET metadata = '{'");
    // The repair sets the label to its earlier value, NULL, so the reported end does not change.
    damaged(&database, "UPDATE runs SET label = CAST(x'ff' AS TEXT)");
    damaged(&database, "UPDATE sessions SET title = CAST(x'ff' AS TEXT)");
    for (method, params, list) in [
        // This is first, since the history call reads the session itself.
        ("sessions.list", json!({ "kind": "all" }), "sessions"),
        (
            "sessions.history",
            json!({ "sessionKey": a.session }),
            "messages",
        ),
        ("runs.list", json!({}), "runs"),
    ] {
        let expected = if list == "runs" { 1 } else { 2 };
        caller
            .until(method, async |caller: &mut Caller| {
                let listed = caller.call(method, params.clone()).await;
                let shown: &Vec<Value> = listed[list].as_array().unwrap();
                // A kill leaves a notice in the transcript.
                let shown = shown.iter().filter(|one| one["kind"] != "restart_notice");
                (shown.count() == expected).then_some(())
            })
            .await;
    }
}

/// The first page of the file is destroyed while the daemon is down: everything is recovered.
async fn damaged_file(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let a = caller.spawn(json!({ "task": "[a]", "parent": root })).await;
    caller.ended(&a.id).await;
    caller.quiet().await;
    caller
        .restart_after(|place| {
            let mut bytes = std::fs::read(place.database()).unwrap();
            bytes[..4096].fill(0);
            std::fs::write(place.database(), bytes).unwrap();
        })
        .await;
    let b = caller.spawn(json!({ "task": "[b]", "parent": root })).await;
    assert_eq!(caller.ended(&a.id).await["result"], "done");
    assert_eq!(caller.ended(&b.id).await["result"], "done");
    caller.quiet().await;
    assert_eq!(caller.ack_all(&root).await.len(), 2);
}
