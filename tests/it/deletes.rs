//! Changing and deleting sessions: what is refused, what remains, and that a repeat still gets its
//! first answer.

use serde_json::json;

use crate::harness::{Place, Script, kind_of, run, says};

#[test]
fn a_key_is_known_after_cleanup_and_a_restart_and_at_a_limit() {
    let place = Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[b]", [says("never").held_by("never")]),
    )
    .with("defaults.max_client_children", "1");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "bot").await;
        let params = json!({
            "task": "[a]", "agent": "explore", "parent": root, "cleanup": "delete",
            "idempotencyKey": "once",
        });
        let first = client.call("sessions.spawn", params.clone()).await;
        let id = first["runId"].as_str().unwrap().to_owned();
        client.ended(&id).await;
        client.quiet().await;
        let ack = json!({ "sessionKey": root, "announceIds": [id] });
        client.call("sessions.ack", ack).await;
        let child = json!({ "sessionKey": first["childSessionKey"] });
        let gone = client.refused("sessions.get", child).await;
        assert_eq!(kind_of(&gone), "not_found");
        assert_eq!(daemon.stop().await, 0);

        let daemon = place.start().await;
        let client = daemon.client().await;
        let turn = json!({
            "sessionKey": "agent:build:talk", "message": "[b]", "idempotencyKey": "turn",
        });
        let turned = client.call("agent.run", turn.clone()).await;
        client.spawn(json!({ "task": "[b]", "parent": root })).await;
        let other = json!({ "task": "[b]", "agent": "explore", "parent": root });
        let refused = client.refused("sessions.spawn", other).await;
        assert_eq!(kind_of(&refused), "limit");
        assert_eq!(client.call("sessions.spawn", params).await, first);
        assert_eq!(client.call("agent.run", turn).await, turned);
    });
}

#[test]
fn what_cannot_be_changed_is_refused_by_name() {
    let place = Place::new(Script::new().on("[a]", [says("never").held_by("never")]));
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let session = client.session("agent", "talk").await;
        let own = || json!({ "sessionKey": session });
        let run = client.turn(&session, "[a]").await;
        for method in ["sessions.delete", "sessions.reset"] {
            let refused = client.refused(method, own()).await;
            assert_eq!(kind_of(&refused), "conflict", "{method}");
            assert_eq!(refused.data["runIds"], json!([run.id]), "{method}");
        }
        let model = json!({ "sessionKey": session, "model": "nobody/nothing" });
        let refused = client.refused("sessions.patch", model).await;
        assert_eq!(kind_of(&refused), "invalid_params");
        let retried = client
            .refused("runs.retry", json!({ "runId": run.id }))
            .await;
        assert_eq!(kind_of(&retried), "conflict");
        let again = client
            .refused("runs.retry_announce", json!({ "runId": run.id }))
            .await;
        assert_eq!(kind_of(&again), "conflict");
        let fork = json!({ "task": "[a]", "agent": "explore", "context": "fork" });
        let refused = client.refused("sessions.spawn", fork).await;
        assert_eq!(kind_of(&refused), "invalid_params");
    });
}

#[test]
fn a_fork_shows_its_parents_history_before_its_own() {
    let place = Place::new(
        Script::new()
            .on("[a]", [says("I remember")])
            .on("[k]", [says("so do I")]),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let session = client.session("agent", "talk").await;
        let turn = client.turn(&session, "[a]").await;
        client.ended(&turn.id).await;
        let params = json!({ "task": "[k]", "parent": session, "context": "fork" });
        let child = client.spawn(params).await;
        client.ended(&child.id).await;
        let params = json!({ "sessionKey": child.session });
        let history = client.call("sessions.history", params).await;
        let said: Vec<&str> = history["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["content"][0]["text"].as_str().unwrap())
            .collect();
        assert_eq!(said, ["[a]", "I remember", "[k]", "so do I"]);
    });
}
