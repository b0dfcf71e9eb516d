//! Retention: the settings of `[retention]` take effect.

use serde_json::json;

use crate::harness::{Place, Script, eventually, run, says};

fn place() -> Place {
    Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on_announce("*", [says("NO_REPLY")]),
    )
    .with("retention.sweep_each", "\"20ms\"")
}

#[test]
fn an_archived_session_leaves_the_lists_and_comes_back_when_it_is_patched() {
    let place = place().with("retention.archive_after", "\"1ms\"");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let top = client.session("agent", "top").await;
        let a = client.spawn(json!({ "task": "[a]", "parent": top })).await;
        client.ended(&a.id).await;
        let count = async |archived: bool| {
            let params = json!({ "kind": "child", "archived": archived });
            let found = client.call("sessions.list", params).await;
            found["sessions"].as_array().unwrap().len()
        };
        eventually("archived", async || (count(false).await == 0).then_some(())).await;
        assert_eq!(count(true).await, 1);
        let own = json!({ "sessionKey": a.session });
        let shown = client.call("sessions.get", own).await;
        assert!(shown["archivedAt"].is_string(), "{shown}");
        let patch = json!({ "sessionKey": a.session, "title": "again" });
        let shown = client.call("sessions.patch", patch).await;
        assert!(shown.get("archivedAt").is_none(), "{shown}");
    });
}

#[test]
fn events_go_by_their_age_and_runs_stay() {
    let place = place().with("retention.events", "\"1ms\"");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "[a]" })).await;
        client.ended(&a.id).await;
        // Each attempt reads a copy of the file, in the state that a start would find.
        eventually("no events", async || {
            place.book().events.is_empty().then_some(())
        })
        .await;
        assert_eq!(client.run(&a.id).await["result"], "a is done");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn with_no_limits_nothing_goes() {
    let place = place()
        .with("retention.archive_after", "0")
        .with("retention.runs", "0")
        .with("retention.events", "0");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "[a]" })).await;
        client.ended(&a.id).await;
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        let book = place.book();
        assert!(book.runs.contains_key(&a.id) && !book.events.is_empty());
    });
}
