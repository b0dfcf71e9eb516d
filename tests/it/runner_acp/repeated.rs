//! Decisions that were stored when the daemon stopped, and the questions that an outside agent repeats
//! after that; and programs that end between two prompts of a run.

use serde_json::{Value, json};

use super::permissions::{ask, decide, decisions, open};
use super::played::{heard, lines, prompts};
use super::{calls_of, go, place};
use crate::harness::{Daemon, Faults, Link, Place, Spawned, eventually, run};
use crate::processes::is_alive;

/// The approvals of every state.
async fn approvals(client: &Link) -> Vec<Value> {
    let listed = client.call("approvals.list", json!({})).await;
    listed["approvals"].as_array().unwrap().clone()
}

/// A run whose agent asked for a command that people allowed; the daemon was killed before the agent
/// was answered, and started again.
async fn allowed_unanswered(command: &str, env: Value) -> (Place, Daemon, Link, Spawned) {
    let place = place("load repeats", "");
    // The first pass is the prompt, the second the prompt or the call after the decision.
    let killed = Faults::ordered("drive.performing=kill@2");
    let mut daemon = place.start_with(&killed).await.unwrap();
    let client = daemon.client().await;
    let task = json!([ask("a", command), { "say": "over" }]).to_string();
    let spawned = client
        .spawn(json!({ "task": task, "agent": "outside", "env": env }))
        .await;
    let approval = open(&client).await;
    let params = json!({ "id": approval["id"], "decision": "allow" });
    // The answer may be lost with the daemon.
    let _ = client.attempt("approvals.resolve", &params).await;
    daemon.ended().await;
    assert_eq!(decisions(&place), Vec::<Value>::new());
    let daemon = place.start().await;
    let client = daemon.client().await;
    (place, daemon, client, spawned)
}

#[test]
fn a_stored_decision_answers_the_same_question_after_a_restart() {
    run(async {
        let (place, daemon, client, spawned) = allowed_unanswered("make", json!({})).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "over", "{ended}");
        assert_eq!(decisions(&place), ["yes"]);
        assert_eq!(lines(&place, "effects"), ["a"]);
        let approvals = approvals(&client).await;
        assert_eq!(approvals.len(), 1, "{approvals:?}");
        assert_eq!(approvals[0]["state"], "allowed");
        let calls = calls_of(&client, &spawned.id).await;
        assert_eq!(calls.len(), 1, "{calls:?}");
        assert_eq!(calls[0]["state"], "done", "{calls:?}");
        assert_eq!(daemon.stop().await, 0);
        heard(&place);
    });
}

#[test]
fn a_stored_decision_answers_no_other_question() {
    run(async {
        let hidden = json!({ "DATA": "hidden-value-1" });
        for (command, env) in [
            // The second time `@first` is `@second`.
            ("make @first", json!({})),
            // Two commands with hidden values may look the same.
            ("cat hidden-value-1", hidden),
        ] {
            let (place, daemon, client, spawned) = allowed_unanswered(command, env).await;
            let second = eventually("a question to people", async || {
                let all = approvals(&client).await;
                all.into_iter().find(|one| one["state"] == "open")
            })
            .await;
            decide(&client, &second, "deny").await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["result"], "over", "{ended}");
            assert_eq!(decisions(&place), ["no"], "{command}");
            assert_eq!(lines(&place, "effects"), Vec::<String>::new());
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn a_permission_that_the_agent_has_got_is_used_up() {
    run(async {
        let place = place("load repeats", "");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let task = json!([ask("a", "make"), { "until": "go" }, { "say": "over" }]);
        let spawned = go(&client, &task).await;
        let first = open(&client).await;
        decide(&client, &first, "allow").await;
        eventually("the effect", async || {
            (!lines(&place, "effects").is_empty()).then_some(())
        })
        .await;
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let second = open(&client).await;
        assert_ne!(second["id"], first["id"], "{second}");
        decide(&client, &second, "deny").await;
        std::fs::write(place.work().join("go"), "").unwrap();
        assert_eq!(client.ended(&spawned.id).await["result"], "over");
        assert_eq!(decisions(&place), ["yes", "no"]);
        assert_eq!(lines(&place, "effects"), ["a"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_permission_that_is_not_asked_for_again_is_of_no_effect() {
    run(async {
        let place = place("load", "");
        let killed = Faults::ordered("drive.performing=kill@2");
        let mut daemon = place.start_with(&killed).await.unwrap();
        let client = daemon.client().await;
        let spawned = go(&client, &json!([ask("a", "make"), { "say": "over" }])).await;
        let params = json!({ "id": open(&client).await["id"], "decision": "allow" });
        let _ = client.attempt("approvals.resolve", &params).await;
        daemon.ended().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(
            ended["result"], "finished after the interruption",
            "{ended}"
        );
        let calls = calls_of(&client, &spawned.id).await;
        assert_eq!(calls[0]["state"], "failed", "{calls:?}");
        assert!(
            calls[0]["error"]
                .as_str()
                .unwrap()
                .contains("nothing was done"),
            "{calls:?}"
        );
        assert_eq!(lines(&place, "effects"), Vec::<String>::new());
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_program_that_ended_between_two_prompts_is_started_again() {
    run(async {
        for does_leave in [false, true] {
            let place = place("load", "");
            let daemon = place.start().await;
            let client = daemon.client().await;
            // What it leaves takes a second to end, and the next prompt is there before.
            let leaves = if does_leave {
                json!({ "leaves": 1 })
            } else {
                json!({ "think": "hm" })
            };
            let task = json!([
                leaves, { "effect": "begun" }, { "until": "go" }, { "say": "one" }, { "leave": 1 },
            ]);
            let spawned = go(&client, &task).await;
            eventually("the agent at work", async || {
                (!lines(&place, "effects").is_empty()).then_some(())
            })
            .await;
            let steer = json!({ "runId": spawned.id, "message": "two" });
            client.call("runs.steer", steer).await;
            std::fs::write(place.work().join("go"), "").unwrap();
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["result"], "heard: two", "{ended}");
            assert_eq!(lines(&place, "starts").len(), 2);
            assert_eq!(prompts(&place).len(), 2);
            assert!(
                heard(&place)
                    .iter()
                    .any(|one| one["method"] == "session/load"),
                "the second program opens the session of the first"
            );
            assert_eq!(daemon.stop().await, 0);
            for pid in lines(&place, "starts").iter().chain(&lines(&place, "left")) {
                assert!(!is_alive(pid.parse().unwrap()), "{pid}");
            }
        }
    });
}
