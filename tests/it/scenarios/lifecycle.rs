//! Cancels, steers, announces that are retried or dismissed, and sessions that are changed, reset,
//! deleted and swept.

use serde_json::{Value, json};

use super::Scenario;
use crate::harness::{Caller, Place, Script, calls, kind_of, says};

/// The scenarios of cancels, changes and removals.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "cancel",
        place: cancel_place,
        play: |caller| Box::pin(cancel(caller)),
    },
    Scenario {
        name: "steer",
        place: steer_place,
        play: |caller| Box::pin(steer(caller)),
    },
    Scenario {
        name: "tell_again",
        place: tell_again_place,
        play: |caller| Box::pin(tell_again(caller)),
    },
    Scenario {
        name: "dismiss",
        place: dismiss_place,
        play: |caller| Box::pin(dismiss(caller)),
    },
    Scenario {
        name: "reset",
        place: reset_place,
        play: |caller| Box::pin(reset(caller)),
    },
    Scenario {
        name: "delete",
        place: delete_place,
        play: |caller| Box::pin(delete(caller)),
    },
    Scenario {
        name: "cleanup",
        place: cleanup_place,
        play: |caller| Box::pin(cleanup(caller)),
    },
    Scenario {
        name: "retry",
        place: retry_place,
        play: |caller| Box::pin(retry(caller)),
    },
    Scenario {
        name: "sweep",
        place: sweep_place,
        play: |caller| Box::pin(sweep(caller)),
    },
];

/// The texts of a session's transcript, without notices for users.
async fn texts(caller: &mut Caller, session: &str) -> Vec<String> {
    let history = caller
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let messages = history["messages"].as_array().unwrap();
    messages
        .iter()
        .filter(|message| message["kind"] == "text")
        .map(|message| message["content"][0]["text"].as_str().unwrap().to_owned())
        .collect()
}

fn cancel_place() -> Place {
    Place::new(
        Script::new()
            .on("[c]", [says("c waits for g").held_by("go-c")])
            .on(
                "[g]",
                [
                    calls("list", json!({ "path": "." })),
                    says("never").held_by("never"),
                ],
            )
            .on("[h]", [says("never").held_by("never")]),
    )
    .with("defaults.max_spawn_depth", "3")
    .with("lanes.subagent", "2")
}

/// A settling child has a running child and a queued descendant: one call cancels all of them, and
/// only the child's requester gets an announce.
async fn cancel(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let c = caller
        .spawn(json!({ "task": "[c]", "parent": root, "label": "c" }))
        .await;
    let g = caller
        .spawn(json!({ "task": "[g]", "parent": c.session }))
        .await;
    caller.until_model_called("[g]", 1).await;
    caller.place().let_go("go-c");
    caller.in_state(&c.id, "settling").await;
    let other = caller.spawn(json!({ "task": "[h]", "parent": root })).await;
    caller.until_model_called("[h]", 0).await;
    let queued = caller
        .spawn(json!({ "task": "[h]", "parent": g.session }))
        .await;
    let params = json!({ "runId": c.id, "reason": "not needed" });
    let done = caller.call("runs.cancel", params.clone()).await;
    assert_eq!(done["notEnded"], json!([]), "{done}");
    for run in [&c, &g, &queued] {
        let ended = caller.ended(&run.id).await;
        assert_eq!(ended["state"], "cancelled", "{ended}");
        assert_eq!(ended["cancel"]["by"], "admin", "{ended}");
    }
    let again = caller.call("runs.cancel", params).await;
    assert_eq!(again["alreadyEnded"], json!([c.id]), "{again}");
    // After a kill it needs its slot again first.
    caller.in_state(&other.id, "running").await;
    let params = json!({ "sessionKey": root });
    let rest = caller.call("sessions.cancel", params).await;
    assert_eq!(rest["notEnded"], json!([]), "{rest}");
    assert_eq!(caller.ended(&other.id).await["state"], "cancelled");
    caller.quiet().await;
    let inbox = caller.ack_all(&root).await;
    let mut told: Vec<&str> = inbox
        .iter()
        .map(|one| one["runId"].as_str().unwrap())
        .collect();
    told.sort_unstable();
    let mut expected = [c.id.as_str(), other.id.as_str()];
    expected.sort_unstable();
    assert_eq!(told, expected);
}

fn steer_place() -> Place {
    Place::new(
        Script::new()
            .on(
                "[talk]",
                [
                    calls("list", json!({ "path": "." })).held_by("go"),
                    says("too early"),
                ],
            )
            .on("[left]", [says("turned left").held_by("on")])
            .on("[k]", [says("k is done")])
            .on_announce("k is done", [says("heard of k")]),
    )
}

/// A steering message and an announce enter a running turn: at its step boundary, and before its
/// end.
async fn steer(caller: &mut Caller) {
    let session = caller.session("agent", "agent:build:talk").await;
    let talk = caller.turn(&session, "[talk]").await;
    caller.until_model_called("[talk]", 0).await;
    let message = abide::clock::Clock::system().new_id().to_string();
    let params = json!({ "runId": talk.id, "message": "[left]", "messageId": message });
    let said = caller.call("runs.steer", params.clone()).await;
    assert_eq!(said["messageId"], message.as_str());
    caller.place().let_go("go");
    caller.until_model_called("[left]", 0).await;
    // A repeat is the same message.
    caller.call("runs.steer", params).await;
    let k = caller
        .spawn(json!({ "task": "[k]", "parent": session, "announce": "steer" }))
        .await;
    assert_eq!(caller.ended(&k.id).await["result"], "k is done");
    caller.place().let_go("on");
    assert_eq!(caller.ended(&talk.id).await["result"], "heard of k");
    caller.quiet().await;
    let said = texts(caller, &session).await;
    assert_eq!(said, ["[talk]", "[left]", "turned left", "heard of k"]);
}

fn tell_again_place() -> Place {
    let heard = ["heard", "again", "again", "again", "again"].map(says);
    Place::new(
        Script::new()
            .on("[k]", [says("k is done")])
            .on_announce("k is done", heard),
    )
}

/// An announce is shown to its session's agent again: another turn, and no second message.
async fn tell_again(caller: &mut Caller) {
    let session = caller.session("agent", "agent:build:talk").await;
    let k = caller
        .spawn(json!({ "task": "[k]", "parent": session }))
        .await;
    caller.ended(&k.id).await;
    caller.quiet().await;
    let again = caller
        .call("runs.retry_announce", json!({ "runId": k.id }))
        .await;
    assert!(again["wakeRunId"].is_string() || caller.was_killed_as_ordered());
    caller.quiet().await;
    let said = texts(caller, &session).await;
    assert_eq!(said[..2], ["heard", "again"]);
    let history = caller
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let announces = history["messages"].as_array().unwrap().iter();
    assert_eq!(announces.filter(|one| one["kind"] == "announce").count(), 1);
}

fn dismiss_place() -> Place {
    Place::new(
        Script::new()
            .on("[talk]", [says("talked").held_by("go")])
            .on("[k]", [says("k is done")]),
    )
}

/// An announce that waits for the end of a turn is dismissed and not delivered.
async fn dismiss(caller: &mut Caller) {
    let session = caller.session("agent", "agent:build:talk").await;
    let talk = caller.turn(&session, "[talk]").await;
    caller.until_model_called("[talk]", 0).await;
    let k = caller
        .spawn(json!({ "task": "[k]", "parent": session }))
        .await;
    caller.ended(&k.id).await;
    caller
        .call("runs.dismiss_announce", json!({ "runId": k.id }))
        .await;
    assert_eq!(caller.run(&k.id).await["announce"]["state"], "dismissed");
    caller.place().let_go("go");
    caller.ended(&talk.id).await;
    caller.quiet().await;
    assert_eq!(texts(caller, &session).await, ["[talk]", "talked"]);
}

fn reset_place() -> Place {
    Place::new(
        Script::new()
            .on("[a]", [says("first")])
            .on("[b]", [says("never").held_by("never")])
            .on("[c]", [says("anew")]),
    )
}

/// A session gets a title and is reset during a turn: that turn is cancelled, and the next one
/// starts with an empty transcript.
async fn reset(caller: &mut Caller) {
    let session = caller.session("agent", "agent:build:talk").await;
    let a = caller.turn(&session, "[a]").await;
    assert_eq!(caller.ended(&a.id).await["result"], "first");
    let params = json!({ "sessionKey": session, "title": "talk", "label": null });
    let patched = caller.call("sessions.patch", params).await;
    assert_eq!(patched["title"], "talk");
    assert_eq!(patched["label"], Value::Null);
    let b = caller.turn(&session, "[b]").await;
    caller.until_model_called("[b]", 0).await;
    let params = json!({ "sessionKey": session });
    let refused = caller.attempt("sessions.reset", &params).await.unwrap_err();
    assert_eq!(kind_of(&refused), "conflict");
    // A repeat after a kill still has a single effect.
    let params = json!({ "sessionKey": session, "force": true, "ifGeneration": 1 });
    let reset = caller.call("sessions.reset", params).await;
    assert_eq!(reset["generation"], 2, "{reset}");
    assert_eq!(caller.ended(&b.id).await["state"], "cancelled");
    let c = caller.turn(&session, "[c]").await;
    assert_eq!(caller.ended(&c.id).await["result"], "anew");
    let history = caller
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let messages = history["messages"].as_array().unwrap();
    assert_eq!(messages.first().unwrap()["generation"], 1);
    assert_eq!(messages.last().unwrap()["generation"], 2);
}

fn delete_place() -> Place {
    Place::new(
        Script::new()
            .on(
                "[a]",
                [calls("list", json!({ "path": "." })), says("first")],
            )
            .on("[k]", [says("never").held_by("never")])
            .on("[b]", [says("anew")]),
    )
}

/// A session is deleted while a child runs: the child is cancelled and deleted too, and the key is
/// used for a new session.
async fn delete(caller: &mut Caller) {
    let session = caller.session("agent", "agent:build:talk").await;
    let a = caller.turn(&session, "[a]").await;
    assert_eq!(caller.ended(&a.id).await["result"], "first");
    let k = caller
        .spawn(json!({ "task": "[k]", "parent": session }))
        .await;
    caller.until_model_called("[k]", 0).await;
    let params = json!({ "sessionKey": session, "force": true });
    caller.once("sessions.delete", params, "not_found").await;
    assert_eq!(caller.ended(&k.id).await["state"], "cancelled");
    for key in [&session, &k.session] {
        let params = json!({ "sessionKey": key });
        let gone = caller.attempt("sessions.get", &params).await.unwrap_err();
        assert_eq!(kind_of(&gone), "not_found", "{key}");
    }
    // The results of its runs are kept.
    assert_eq!(caller.run(&a.id).await["result"], "first");
    let b = caller.turn(&session, "[b]").await;
    assert_eq!(caller.ended(&b.id).await["result"], "anew");
    assert_eq!(texts(caller, &session).await, ["[b]", "anew"]);
    caller
        .until("the journal gone", async |caller: &mut Caller| {
            let params = json!({ "runId": a.id });
            let steps = caller.call("runs.steps", params).await;
            steps["steps"].as_array().unwrap().is_empty().then_some(())
        })
        .await;
}

fn cleanup_place() -> Place {
    Place::new(
        Script::new()
            .on("[c]", [says("c waits for g").held_by("go-c")])
            .on("[g]", [says("g found it")])
            .on_announce("g found it", [says("c heard of g")]),
    )
    .with("defaults.max_spawn_depth", "2")
}

/// A child with cleanup `delete` has a child of its own: both sessions stay until the client has
/// acknowledged the end, and are then deleted.
async fn cleanup(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let c = caller
        .spawn(json!({ "task": "[c]", "parent": root, "cleanup": "delete" }))
        .await;
    let g = caller
        .spawn(json!({ "task": "[g]", "parent": c.session }))
        .await;
    caller.place().let_go("go-c");
    assert_eq!(caller.ended(&g.id).await["result"], "g found it");
    assert_eq!(caller.ended(&c.id).await["result"], "c heard of g");
    caller.quiet().await;
    assert_eq!(texts(caller, &g.session).await, ["[g]", "g found it"]);
    caller.ack_all(&root).await;
    for key in [&c.session, &g.session] {
        let params = json!({ "sessionKey": key });
        let gone = caller.attempt("sessions.get", &params).await.unwrap_err();
        assert_eq!(kind_of(&gone), "not_found", "{key}");
    }
    assert_eq!(caller.run(&c.id).await["result"], "c heard of g");
}

fn retry_place() -> Place {
    Place::new(
        Script::new()
            .on("[k]", [says("k is done")])
            .on("[a]", [says("a is said"), says("a is said")]),
    )
}

/// A spawned run and a turn are retried: one in a fresh session, one in its own.
async fn retry(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let k = caller
        .spawn(json!({ "task": "[k]", "parent": root, "label": "k" }))
        .await;
    caller.ended(&k.id).await;
    let again = caller.retry(&k.id).await;
    assert_ne!(again.session, k.session);
    let ended = caller.ended(&again.id).await;
    assert_eq!(
        (&ended["result"], &ended["retryOf"], &ended["label"]),
        (&json!("k is done"), &json!(k.id), &json!("k"))
    );
    let session = caller.session("agent", "agent:build:talk").await;
    let a = caller.turn(&session, "[a]").await;
    caller.ended(&a.id).await;
    let again = caller.retry(&a.id).await;
    assert_eq!(again.session, session);
    assert_eq!(caller.ended(&again.id).await["result"], "a is said");
    caller.quiet().await;
    assert_eq!(caller.ack_all(&root).await.len(), 2);
}

fn sweep_place() -> Place {
    Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[b]", [says("b is done")]),
    )
    .with("retention.archive_after", "\"1ms\"")
    .with("retention.runs", "\"1ms\"")
    .with("retention.keys", "\"1ms\"")
    .with("retention.sweep_each", "\"30ms\"")
}

/// A run whose end was acknowledged is archived and removed with its session; one with an
/// unacknowledged announce stays.
async fn sweep(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let a = caller
        .spawn_chosen(json!({ "task": "[a]", "parent": root }))
        .await;
    let b = caller
        .spawn_chosen(json!({ "task": "[b]", "parent": root }))
        .await;
    caller
        .until("a is gone", async |caller: &mut Caller| {
            caller.ack_all_but(&root, &b).await;
            let params = json!({ "runId": a, "waitTimeout": 0 });
            let waited = caller.call("agent.wait", params).await;
            (waited["runs"][0]["status"] == "expired").then_some(())
        })
        .await;
    // The run's row may be removed before its session, which is archived first.
    let left = json!({ "kind": "all", "parent": root, "archived": true });
    caller
        .until("its session too", async |caller: &mut Caller| {
            let listed = caller.call("sessions.list", left.clone()).await;
            (listed["sessions"].as_array().unwrap().len() == 1).then_some(())
        })
        .await;
    caller.in_state(&b, "ok").await;
    caller.quiet().await;
    let inbox = caller
        .call("sessions.inbox", json!({ "sessionKey": root }))
        .await;
    assert_eq!(inbox["announces"][0]["runId"], b.as_str(), "{inbox}");
    assert_eq!(caller.run(&b).await["result"], "b is done");
}
