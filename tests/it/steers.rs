//! Steering messages: which runs accept them, and which do not.

use serde_json::json;

use crate::harness::{Place, Script, kind_of, run, says};

#[test]
fn a_run_that_is_in_no_turn_takes_no_steer_and_says_why() {
    let place = Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[b]", [says("never").held_by("never")]),
    )
    .with("lanes.main", "1");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let steer = |id: &str| json!({ "runId": id, "message": "left" });
        let ended = client.turn("agent:build:a", "[a]").await;
        client.ended(&ended.id).await;
        let refused = client.refused("runs.steer", steer(&ended.id)).await;
        assert_eq!(kind_of(&refused), "conflict");
        assert!(refused.message.contains("has ended"), "{refused}");
        let running = client.turn("agent:build:a", "[b]").await;
        client.in_state(&running.id, "running").await;
        client.call("runs.steer", steer(&running.id)).await;
        let queued = client.turn("agent:build:b", "[a]").await;
        let refused = client.refused("runs.steer", steer(&queued.id)).await;
        assert!(refused.message.contains("has not begun"), "{refused}");
        let empty = json!({ "runId": running.id, "message": " " });
        let refused = client.refused("runs.steer", empty).await;
        assert_eq!(kind_of(&refused), "invalid_params");
    });
}

#[test]
fn in_a_clients_session_a_steer_is_an_inbox_entry_with_a_warning() {
    let place = Place::new(Script::new().on("[a]", [says("a is done")]));
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "bot").await;
        let params = json!({
            "task": "[a]", "agent": "explore", "parent": root, "announce": "steer",
        });
        let spawned = client.call("sessions.spawn", params).await;
        let warning = spawned["warnings"][0].as_str().unwrap();
        assert!(warning.contains("steer became inbox"), "{warning}");
        client.ended(spawned["runId"].as_str().unwrap()).await;
        client.quiet().await;
        let inbox = client
            .call("sessions.inbox", json!({ "sessionKey": root }))
            .await;
        assert_eq!(inbox["announces"].as_array().unwrap().len(), 1);
    });
}
