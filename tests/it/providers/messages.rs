//! Messages API: whole turns, and thinking blocks after a kill in each phase.

use serde_json::{Value, json};

use super::{messages_of, place};
use crate::harness::{Faults, ModelServer, Request, eventually, messages, run};

fn thinking_call() -> Vec<Value> {
    vec![
        json!({ "type": "thinking", "thinking": "let me look – 漢", "signature": "EqQB+/=" }),
        json!({ "type": "redacted_thinking", "data": "opaque==" }),
        json!({ "type": "text", "text": "Looking." }),
        json!({ "type": "tool_use", "id": "toolu_1", "name": "read",
                "input": { "path": "notes.txt", "limit": 2 } }),
    ]
}

fn last_answer() -> Vec<Value> {
    vec![json!({ "type": "text", "text": "It says beta." })]
}

/// The blocks that are sent back, byte for byte.
fn as_text(blocks: &[Value]) -> String {
    Value::from(blocks.to_vec()).to_string()
}

fn assert_goes_back(request: &Request) {
    let expected = format!(
        r#"{{"role":"assistant","content":{}}}"#,
        as_text(&thinking_call())
    );
    assert!(request.body.contains(&expected), "{}", request.body);
    let body = request.json();
    let results = &messages_of(&body)[2]["content"];
    assert_eq!(results[0]["tool_use_id"], "toolu_1", "{results}");
}

#[test]
fn a_turn_thinks_calls_a_tool_and_answers() {
    let server = ModelServer::start();
    server.on(
        "[job]",
        [
            messages::answers(&thinking_call(), "tool_use").in_bytes(7),
            messages::answers(&last_answer(), "end_turn"),
        ],
    );
    let place = place(&server, "claude/big");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut events = client.subscribe(json!({ "deltas": true })).await;
        let params = json!({ "task": "[job] look", "thinking": "minimal" });
        let spawned = client.spawn(params).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "It says beta.", "{ended}");
        assert_eq!(ended["usage"]["inputTokens"], 42);
        let requests = server.requests();
        assert_eq!(requests[0].path, "/v1/messages");
        assert_eq!(requests[0].header("anthropic-version"), Some("2023-06-01"));
        assert_eq!(requests[0].json()["thinking"]["budget_tokens"], 1024);
        assert_goes_back(&requests[1]);
        let mut thought = String::new();
        while thought != "let me look – 漢" {
            let event = events.next().await.unwrap().unwrap();
            if event.kind == "message.delta" {
                let data = &event.data;
                if data["channel"] == "thinking" {
                    thought.push_str(data["text"].as_str().unwrap());
                }
            }
        }
    });
}

/// A kill before the request is sent, while the answer streams, and after it is stored.
#[test]
fn g11_3_what_was_thought_goes_back_unchanged_after_a_kill_in_each_phase() {
    for (phase, failpoint) in [
        ("before the request", Some("drive.performing=kill@3")),
        ("in the middle of the answer", None),
        (
            "before the answer is written",
            Some("drive.recording=kill@3"),
        ),
    ] {
        let server = ModelServer::start();
        let call = messages::answers(&thinking_call(), "tool_use");
        let last = messages::answers(&last_answer(), "end_turn");
        let replies = match failpoint {
            None => vec![call, last.clone().held_by("never"), last],
            Some(_) => vec![call, last.clone(), last.clone(), last],
        };
        server.on("[job]", replies);
        let place = place(&server, "claude/big");
        run(async {
            let faults = match failpoint {
                Some(orders) => Faults::ordered(orders),
                None => Faults::default(),
            };
            let mut daemon = place.start_with(&faults).await.unwrap();
            let client = daemon.client().await;
            let spawned = client.spawn(json!({ "task": "[job] look" })).await;
            if failpoint.is_none() {
                eventually("the second request", async || {
                    (server.requests().len() == 2).then_some(())
                })
                .await;
                daemon.kill().await;
            } else {
                daemon.ended().await;
            }
            let before = server.requests().len();
            let daemon = place.start().await;
            let client = daemon.client().await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["result"], "It says beta.", "{phase}: {ended}");
            let requests = server.requests();
            assert!(
                requests.len() > before,
                "{phase}: nothing was asked after the kill"
            );
            assert_goes_back(requests.last().unwrap());
            let book = {
                assert_eq!(daemon.stop().await, 0);
                place.book()
            };
            let reads = book
                .steps
                .values()
                .filter(|step| step.tool.as_deref() == Some("read"));
            assert_eq!(
                reads.count(),
                1,
                "{phase}: a finished tool call was repeated"
            );
        });
    }
}
