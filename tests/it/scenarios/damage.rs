//! Rows that were damaged behind the daemon's back.

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

/// A run, its task and its session's row are damaged once all has ended: each is set aside,
/// and lists show them with what could be read of them.
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
    // What it held before, nothing, is what it is mended to: the end that was told stays told.
    damaged(&database, "UPDATE runs SET label = CAST(x'ff' AS TEXT)");
    damaged(&database, "UPDATE sessions SET title = CAST(x'ff' AS TEXT)");
    for (method, params, list) in [
        // First, since the history looks its session up by itself.
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

/// The first page of the file is destroyed between two lives: everything is saved.
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
