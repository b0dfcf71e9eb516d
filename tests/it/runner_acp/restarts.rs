//! Turns of outside agents over restarts of the daemon: continued where the agent can open its
//! session again, otherwise uncertain; a prompt is never silently sent twice.

use serde_json::{Value, json};

use super::played::{heard, lines, prompts};
use super::{go, place};
use crate::harness::{Daemon, Link, Place, Spawned, eventually, run};
use crate::processes::is_alive;

/// An agent in the middle of its turn, whose daemon was killed and started again.
async fn interrupted(manner: &str, fields: &str) -> (Place, Daemon, Link, Spawned) {
    let place = place(manner, fields);
    let daemon = place.start().await;
    let client = daemon.client().await;
    let task = json!([{ "effect": "begun" }, { "until": "never" }]);
    let spawned = go(&client, &task).await;
    eventually("the agent at work", async || {
        (lines(&place, "effects").len() == 1).then_some(())
    })
    .await;
    daemon.kill().await;
    let daemon = place.start().await;
    let client = daemon.client().await;
    (place, daemon, client, spawned)
}

#[test]
fn a_turn_goes_on_in_its_session_and_the_agent_is_told_of_the_interruption() {
    run(async {
        for (manner, method) in [("load", "session/load"), ("load resume", "session/resume")] {
            let (place, daemon, client, spawned) = interrupted(manner, "").await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(
                ended["result"], "finished after the interruption",
                "{ended}"
            );
            assert_eq!(ended["status"], "ok");
            assert_eq!(daemon.stop().await, 0);
            let heard = heard(&place);
            assert!(heard.iter().any(|one| one["method"] == method), "{heard:?}");
            let told = prompts(&place);
            assert_eq!(told.len(), 2, "{told:?}");
            assert!(told[1].starts_with("Your previous turn"), "{told:?}");
            assert_eq!(lines(&place, "effects").len(), 1);
            for pid in lines(&place, "starts") {
                assert!(!is_alive(pid.parse().unwrap()));
            }
        }
    });
}

#[test]
fn a_turn_that_cannot_go_on_is_uncertain_as_every_effect_that_happens_once() {
    run(async {
        for manner in ["", "load forgets"] {
            let (place, daemon, client, spawned) = interrupted(manner, "").await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["status"], "interrupted", "{manner}: {ended}");
            assert_eq!(ended["error"]["kind"], "uncertain", "{ended}");
            assert_eq!(daemon.stop().await, 0);
            assert_eq!(prompts(&place).len(), 1, "{manner}");

            let (place, daemon, client, spawned) =
                interrupted(manner, "on_uncertain: review").await;
            client.in_state(&spawned.id, "paused").await;
            let waits = eventually("the review", async || {
                let run = client.run(&spawned.id).await;
                (run["needsReview"] == true).then_some(run)
            })
            .await;
            let step = waits["reviews"][0]["stepId"].clone();
            let verdict = json!({ "runId": spawned.id, "stepId": step, "decision": "done", "result": "it is made" });
            client.call("runs.resolve", verdict).await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["result"], "it is made", "{waits} {ended}");
            assert_eq!(prompts(&place).len(), 1);
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn a_stop_of_the_daemon_waits_for_a_turn() {
    run(async {
        let place = place("", "");
        let mut daemon = place.start().await;
        let client = daemon.client().await;
        let call = json!({ "toolCallId": "c", "title": "look", "kind": "search", "status": "in_progress" });
        let done = json!({ "toolCallId": "c", "status": "completed" });
        let task = json!([
            { "effect": "begun" }, { "until": "go" }, { "call": call }, { "done": done }, { "say": "over" },
        ]);
        let spawned = go(&client, &task).await;
        eventually("the agent at work", async || {
            (lines(&place, "effects").len() == 1).then_some(())
        })
        .await;
        daemon.terminate();
        eventually("the drain", async || {
            daemon.logged().contains("draining").then_some(())
        })
        .await;
        std::fs::write(place.work().join("go"), "").unwrap();
        assert_eq!(daemon.ended().await.code(), Some(0));
        let daemon = place.start().await;
        let client = daemon.client().await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(
            (&ended["result"], &ended["status"]),
            (&json!("over"), &json!("ok")),
            "{ended}"
        );
        assert_eq!(prompts(&place).len(), 1);
        assert_eq!(daemon.stop().await, 0);
        heard(&place);
    });
}

#[test]
fn a_question_to_people_ends_with_the_program_that_asked() {
    run(async {
        for (manner, result, status) in [
            ("load", json!("finished after the interruption"), "ok"),
            ("", Value::Null, "interrupted"),
        ] {
            let place = place(manner, "");
            let daemon = place.start().await;
            let client = daemon.client().await;
            let ask = json!({ "ask": {
                "toolCallId": "a", "title": "make", "kind": "execute", "rawInput": { "command": "make" },
            } });
            let spawned = go(&client, &json!([ask, { "say": "over" }])).await;
            client.in_state(&spawned.id, "paused").await;
            daemon.kill().await;
            let daemon = place.start().await;
            let client = daemon.client().await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["status"], status, "{manner}: {ended}");
            assert_eq!(ended["result"], result, "{manner}: {ended}");
            let listed = client
                .call("approvals.list", json!({ "state": "open" }))
                .await;
            assert_eq!(listed["approvals"], json!([]), "{manner}");
            assert_eq!(lines(&place, "effects"), Vec::<String>::new());
            assert_eq!(daemon.stop().await, 0);
        }
    });
}
