//! Questions of an outside agent that it drops before people have decided, and requests beyond its
//! limits.

use std::fs;

use serde_json::{Value, json};

use super::permissions::{ask, decide, decisions, open};
use super::played::{heard, lines};
use super::{calls_of, go, place};
use crate::harness::{Link, Place, eventually, run};

fn asking(id: &str, command: &str) -> Value {
    json!({ "asking": ask(id, command)["ask"] })
}

/// The open approvals.
async fn all_open(client: &Link) -> Vec<Value> {
    let listed = client
        .call("approvals.list", json!({ "state": "open" }))
        .await;
    listed["approvals"].as_array().unwrap().clone()
}

async fn none_open(client: &Link) {
    eventually("no open approval", async || {
        all_open(client).await.is_empty().then_some(())
    })
    .await;
}

fn touch(place: &Place, file: &str) {
    fs::write(place.work().join(file), "").unwrap();
}

#[test]
fn a_question_that_the_agent_withdraws_is_closed_at_once() {
    run(async {
        let place = place("", "");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let task = json!([
            asking("a", "make"), { "until": "asked" }, { "withdraw": 1 }, { "until": "closed" },
            { "say": "over" },
        ]);
        let spawned = go(&client, &task).await;
        let approval = open(&client).await;
        client.in_state(&spawned.id, "paused").await;
        touch(&place, "asked");
        none_open(&client).await;
        // The agent works on.
        client.in_state(&spawned.id, "running").await;
        let late = json!({ "id": approval["id"], "decision": "allow" });
        let late = client
            .attempt("approvals.resolve", &late)
            .await
            .unwrap_err();
        let late = late.unwrap().message;
        assert!(late.contains("dropped"), "{late}");
        touch(&place, "closed");
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "over", "{ended}");
        assert_eq!(lines(&place, "answers"), ["the request was withdrawn"]);
        let calls = calls_of(&client, &spawned.id).await;
        assert_eq!(calls[0]["state"], "failed", "{calls:?}");
        assert!(
            calls[0]["error"].to_string().contains("withdrew"),
            "{calls:?}"
        );
        assert_eq!(daemon.stop().await, 0);
        heard(&place);
    });
}

#[test]
fn a_question_ends_with_the_turn_or_the_program_that_asked() {
    run(async {
        for (end, status) in [
            (json!({ "say": "over" }), "ok"),
            (json!({ "die": 1 }), "error"),
        ] {
            let place = place("", "");
            let daemon = place.start().await;
            let client = daemon.client().await;
            let task = json!([asking("a", "make"), { "until": "asked" }, end]);
            let spawned = go(&client, &task).await;
            open(&client).await;
            client.in_state(&spawned.id, "paused").await;
            touch(&place, "asked");
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["status"], status, "{ended}");
            assert_eq!(all_open(&client).await, Vec::<Value>::new());
            let closed = client
                .call("approvals.list", json!({ "state": "closed" }))
                .await;
            assert_eq!(closed["approvals"].as_array().unwrap().len(), 1, "{closed}");
            let calls = calls_of(&client, &spawned.id).await;
            assert_eq!(calls[0]["state"], "failed", "{calls:?}");
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn a_question_that_is_dropped_before_people_see_it_is_no_approval() {
    run(async {
        let place = place("", "");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let task = json!([asking("a", "make"), { "withdraw": 1 }, { "say": "over" }]);
        let spawned = go(&client, &task).await;
        assert_eq!(client.ended(&spawned.id).await["result"], "over");
        assert_eq!(all_open(&client).await, Vec::<Value>::new());
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn the_decision_on_another_question_still_reaches_the_agent() {
    run(async {
        let place = place("", "");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let task = json!([
            asking("a", "make"), { "until": "asked" }, { "withdraw": 1 }, ask("b", "make test"),
            { "say": "over" },
        ]);
        let spawned = go(&client, &task).await;
        open(&client).await;
        touch(&place, "asked");
        let second = eventually("the second question", async || {
            let open = all_open(&client).await;
            let is_second = |one: &&Value| one["arguments"]["command"] == "make test";
            open.iter().find(is_second).cloned()
        })
        .await;
        decide(&client, &second, "allow").await;
        assert_eq!(client.ended(&spawned.id).await["result"], "over");
        assert_eq!(decisions(&place), ["yes"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn requests_that_wait_have_a_common_limit_in_bytes() {
    run(async {
        let place = place("", "gate: {write: ask}");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let folder = place.work().canonicalize().unwrap();
        // 5 × 14 MiB are more than 64 MiB.
        fs::write(folder.join("content"), "x".repeat(14 * 1024 * 1024)).unwrap();
        let write =
            |name: &str| json!({ "writing": { "path": folder.join(name), "content": "@content" } });
        let task = json!([
            write("1"), write("2"), write("3"), write("4"), write("5"), { "until": "never" },
        ]);
        let spawned = go(&client, &task).await;
        let answers = eventually("a refusal", async || {
            let answers = lines(&place, "answers");
            (!answers.is_empty()).then_some(answers)
        })
        .await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert!(answers[0].contains("67108864 bytes"), "{answers:?}");
        client
            .call("runs.cancel", json!({ "runId": spawned.id }))
            .await;
        assert_eq!(client.ended(&spawned.id).await["status"], "cancelled");
        assert!(!folder.join("1").exists());
        assert_eq!(daemon.stop().await, 0);
    });
}
