//! The events that a subscription delivers about a run and its descendants.

use std::collections::BTreeSet;

use abide::wire::events::Event;
use serde_json::{Value, json};

use super::{snapshot, stored_events, until};
use crate::harness::{Link, Place, Script, calls, eventually, run, says};

fn place() -> Place {
    let spawn = |task: &str| calls("sessions_spawn", json!({ "task": task, "agent": "build" }));
    Place::new(
        Script::new()
            .on("[top]", [spawn("[mid]"), says("top is done")])
            .on("[mid]", [spawn("[low]").held_by("go"), says("mid waits")])
            .on("[low]", [says("low is done")])
            .on_announce("low is done", [says("mid heard of low")])
            .on_announce("mid heard of low", [says("top heard of mid")]),
    )
    .with("defaults.max_spawn_depth", "3")
}

/// Waits for the session's only child run; returns its id and session.
async fn child(client: &Link, parent: &str) -> (String, String) {
    eventually("a child", || async {
        let listed = client.call("runs.list", json!({ "parent": parent })).await;
        let child = listed["runs"].get(0)?;
        let text = |name: &str| child[name].as_str().unwrap().to_owned();
        Some((text("runId"), text("sessionKey")))
    })
    .await
}

/// The last event of a run: the delivery of its announce.
fn is_told(event: &Event, run: &str) -> bool {
    event.kind == "announce.delivered" && event.run_id.unwrap().to_string() == run
}

fn runs_of(events: &[Event]) -> BTreeSet<String> {
    let runs = events.iter().filter_map(|event| event.run_id);
    runs.map(|run| run.to_string()).collect()
}

#[test]
fn a_tree_begins_at_any_run_and_announces_belong_to_the_run_that_ended() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let session = client.session("agent", "agent:build:top").await;
        let top = client.turn(&session, "[top]").await.id;
        let (mid, mid_session) = child(&client, &session).await;
        let mut live = client.subscribe(json!({ "tree": mid })).await;
        let first = live.next().await.unwrap().unwrap();
        assert_eq!(snapshot(&first)["runs"].as_array().unwrap().len(), 1);
        place.let_go("go");
        let live = until(&mut live, |event| is_told(event, &mid)).await;
        let (low, _) = child(&client, &mid_session).await;
        let both = BTreeSet::from([mid.clone(), low.clone()]);
        assert_eq!(runs_of(&live), both);
        assert!(live.iter().all(|event| event.run_id.is_some()));

        // A subscription from the beginning delivers the same, and the list has the same runs.
        let request = json!({ "since": 0, "tree": mid });
        let mut all = client.subscribe(request).await;
        let all = until(&mut all, |event| is_told(event, &mid)).await;
        assert_eq!(runs_of(&all), both);
        assert!(stored_events(&all).ends_with(&stored_events(&live)));
        for (tree, expected) in [(&mid, both.clone()), (&low, BTreeSet::from([low.clone()]))] {
            let listed = client.call("runs.list", json!({ "tree": tree })).await;
            let runs = listed["runs"].as_array().unwrap().iter();
            let runs: BTreeSet<String> = runs
                .map(|run| run["runId"].as_str().unwrap().to_owned())
                .collect();
            assert_eq!(runs, expected);
        }
        let whole = client.call("runs.list", json!({ "tree": top })).await;
        assert!(whole["runs"].as_array().unwrap().len() >= 3, "{whole}");

        // A subscriber of one run sees that its announce is pending and delivered, and to which
        // session.
        let request = json!({ "since": 0, "runId": low, "kinds": ["announce.*"] });
        let mut events = client.subscribe(request).await;
        let events = until(&mut events, |event| is_told(event, &low)).await;
        let told: Vec<(&str, &str)> = events
            .iter()
            .map(|event| (event.kind.as_str(), event.session_key.as_deref().unwrap()))
            .collect();
        let to_mid = mid_session.as_str();
        assert_eq!(
            told,
            [("announce.queued", to_mid), ("announce.delivered", to_mid)]
        );
        assert_eq!(events[0].data["announceId"], Value::from(low.clone()));
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}
