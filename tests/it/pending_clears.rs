//! Resets and deletions that must stop runs first: requested once and carried out once, also when a
//! process is killed in between.

use serde_json::json;

use crate::harness::{Faults, Link, Place, Script, eventually, kind_of, run, says};

fn place() -> Place {
    Place::new(
        Script::new()
            .on("[a]", [says("first")])
            .on("[b]", [says("never").held_by("never")])
            .on("[c]", [says("anew")]),
    )
}

/// The failpoints between request and completion.
const KILLS: &[&str] = &["committed", "answered"];

async fn session(client: &Link, key: &str) -> serde_json::Value {
    client
        .call("sessions.get", json!({ "sessionKey": key }))
        .await
}

/// A session with a running turn, whose daemon is killed at `point` of `method`. Returns the
/// session, the run and the next daemon.
async fn killed_in(
    place: &Place,
    point: &str,
    method: &str,
) -> (String, String, crate::harness::Daemon) {
    let faults = Faults::ordered(&format!("{point}=kill"));
    let mut daemon = place.start_with(&faults).await.unwrap();
    let client = daemon.client().await;
    let talk = client.session("agent", "agent:build:talk").await;
    let first = client.turn(&talk, "[a]").await;
    client.ended(&first.id).await;
    let b = client.turn(&talk, "[b]").await;
    client.in_state(&b.id, "running").await;
    let params = json!({ "sessionKey": talk, "force": true });
    let lost = client.attempt(method, &params).await;
    assert!(
        lost.is_err_and(|error| error.is_none()),
        "the daemon should have been killed"
    );
    daemon.ended().await;
    // The request is not repeated.
    (talk, b.id, place.start().await)
}

#[test]
fn a_reset_whose_answer_was_lost_is_carried_to_its_end_once() {
    run(async {
        let mut points: Vec<String> = KILLS
            .iter()
            .map(|edge| format!("store.reset_session.{edge}"))
            .collect();
        // The run has stopped; its end, and with it the reset, is about to be written.
        points.push("store.conclude.begin".to_owned());
        points.push("store.conclude.applied".to_owned());
        points.push("store.conclude.committed".to_owned());
        for point in points {
            let place = place();
            let (talk, b, daemon) = killed_in(&place, &point, "sessions.reset").await;
            let client = daemon.client().await;
            assert_eq!(client.ended(&b).await["state"], "cancelled", "{point}");
            assert_eq!(session(&client, &talk).await["generation"], 2, "{point}");
            // A repeat with the old generation returns the current state.
            let params = json!({ "sessionKey": talk, "force": true, "ifGeneration": 1 });
            let again = client.call("sessions.reset", params).await;
            assert_eq!(again["generation"], 2, "{point}");
            let params = json!({ "sessionKey": talk, "ifGeneration": 9 });
            let refused = client.refused("sessions.reset", params).await;
            assert_eq!(kind_of(&refused), "conflict");
            assert_eq!(refused.data["generation"], 2);
            let c = client.turn(&talk, "[c]").await;
            assert_eq!(client.ended(&c.id).await["result"], "anew");
            assert_eq!(daemon.stop().await, 0);
            let daemon = place.start().await;
            let client = daemon.client().await;
            assert_eq!(session(&client, &talk).await["generation"], 2, "{point}");
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn a_deletion_whose_answer_was_lost_is_carried_to_its_end() {
    run(async {
        let mut points: Vec<String> = KILLS
            .iter()
            .map(|edge| format!("store.delete_session.{edge}"))
            .collect();
        points.push("store.conclude.begin".to_owned());
        points.push("store.conclude.committed".to_owned());
        for point in points {
            let place = place();
            let (talk, b, daemon) = killed_in(&place, &point, "sessions.delete").await;
            let client = daemon.client().await;
            assert_eq!(client.ended(&b).await["state"], "cancelled", "{point}");
            let gone = client
                .refused("sessions.get", json!({ "sessionKey": talk }))
                .await;
            assert_eq!(kind_of(&gone), "not_found", "{point}");
            // The key is free, and the pending deletion does not affect the next session of that
            // name.
            let c = client.turn(&talk, "[c]").await;
            assert_eq!(client.ended(&c.id).await["result"], "anew");
            assert_eq!(daemon.stop().await, 0);
            let daemon = place.start().await;
            let client = daemon.client().await;
            assert_eq!(session(&client, &talk).await["generation"], 1, "{point}");
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

/// Takes some 5 s: the time a reset waits for runs before it answers that it is pending.
#[test]
fn a_reset_whose_runs_take_long_to_stop_says_that_it_is_to_come() {
    run(async {
        let place = place();
        // The executor is told to stop, and this process never writes its end.
        let faults = Faults::ordered("store.conclude.begin=hang");
        let daemon = place.start_with(&faults).await.unwrap();
        let client = daemon.client().await;
        let talk = client.session("agent", "agent:build:talk").await;
        let b = client.turn(&talk, "[b]").await;
        client.in_state(&b.id, "running").await;
        let params = json!({ "sessionKey": talk, "force": true });
        let refused = client.refused("sessions.reset", params.clone()).await;
        assert_eq!(kind_of(&refused), "busy");
        assert!(
            refused
                .message
                .contains("will be reset when the last of them ends"),
            "{refused:?}"
        );
        assert_eq!(session(&client, &talk).await["generation"], 1);
        daemon.kill().await;

        let daemon = place.start().await;
        let client = daemon.client().await;
        eventually("the reset", || async {
            (session(&client, &talk).await["generation"] == 2).then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_thinking_level_is_patched_and_taken_away() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let talk = client.session("agent", "agent:build:talk").await;
        let patch =
            async |thinking: serde_json::Value| json!({ "sessionKey": talk, "thinking": thinking });
        let high = client
            .call("sessions.patch", patch("high".into()).await)
            .await;
        assert_eq!(high["thinking"], "high");
        let turn = client.turn(&talk, "[a]").await;
        assert_eq!(client.ended(&turn.id).await["thinking"], "high");
        let refused = client
            .refused("sessions.patch", patch("deep".into()).await)
            .await;
        assert_eq!(kind_of(&refused), "invalid_params");
        assert_eq!(refused.data["path"], "thinking");
        let said = &refused.message;
        assert!(
            said.contains("off, minimal, low, medium, high, xhigh, max"),
            "{said}"
        );
        assert_eq!(session(&client, &talk).await["thinking"], "high");
        let none = client
            .call("sessions.patch", patch(serde_json::Value::Null).await)
            .await;
        assert!(none.get("thinking").is_none(), "{none}");
        assert_eq!(daemon.stop().await, 0);
    });
}
