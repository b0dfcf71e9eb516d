//! Answers that are too large, and implausible token counts.

use serde_json::{Value, json};

use super::place;
use crate::harness::{Daemon, Link, ModelServer, Reply, chat, run};

/// One event of Chat Completions.
fn event(delta: &Value) -> String {
    let chunk = json!({ "choices": [{ "index": 0, "delta": delta }] });
    format!("data: {chunk}\n\n")
}

/// A call of `write` with `bytes` bytes of arguments, in chunks of `piece`.
fn chat_call(bytes: usize, piece: usize) -> Reply {
    let begin = json!({ "index": 0, "id": "a", "function": {
        "name": "write", "arguments": "{\"path\":\"x\",\"content\":\"",
    } });
    let more = json!({ "index": 0, "function": { "arguments": "y".repeat(piece) } });
    let more = event(&json!({ "tool_calls": [more] }));
    let mut events = vec![event(&json!({ "tool_calls": [begin] }))];
    events.extend(std::iter::repeat_n(more, bytes / piece));
    Reply::stream(events)
}

fn chat_text(bytes: usize) -> Reply {
    let more = event(&json!({ "content": "y".repeat(1 << 16) }));
    Reply::stream(std::iter::repeat_n(more, bytes >> 16))
}

/// `count` calls of a tool without arguments.
fn chat_calls(count: usize, tool: &str) -> Reply {
    let call =
        |index| json!({ "index": index, "id": format!("c{index}"), "function": { "name": tool } });
    Reply::stream((0..count).map(|index| event(&json!({ "tool_calls": [call(index)] }))))
}

/// A field outside every API, which is sent back unchanged.
fn passed_through(bytes: usize) -> Reply {
    let more = json!([{ "type": "reasoning.text", "index": 0, "text": "y".repeat(1 << 16) }]);
    let more = event(&json!({ "reasoning_details": more }));
    Reply::stream(std::iter::repeat_n(more, bytes >> 16))
}

/// Opaque blocks, each sent with all of its bytes at once.
fn messages_blocks(bytes: usize) -> Reply {
    let blocks = (0..bytes >> 20).map(|index| {
        let block = json!({ "type": "redacted_thinking", "data": "y".repeat(1 << 20) });
        let begin = json!({
            "type": "content_block_start", "index": index, "content_block": block,
        });
        format!("data: {begin}\n\n")
    });
    Reply::stream(blocks)
}

fn messages_call(bytes: usize) -> Reply {
    let more = json!({ "type": "content_block_delta", "index": 0, "delta": {
        "type": "input_json_delta", "partial_json": "y".repeat(1 << 16),
    } });
    let begin = json!({ "type": "content_block_start", "index": 0, "content_block": {
        "type": "tool_use", "id": "a", "name": "write", "input": {},
    } });
    let line = |event: &Value| format!("data: {event}\n\n");
    let mut events = vec![line(&begin)];
    events.extend(std::iter::repeat_n(line(&more), bytes >> 16));
    Reply::stream(events)
}

/// Memory of the daemon in MiB, from this line of `/proc/<pid>/status`.
fn memory(daemon: &Daemon, line: &str) -> f64 {
    let file = format!("/proc/{}/status", daemon.pid());
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find(|one| one.starts_with(line)).unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1024.0
}

#[test]
fn an_answer_that_is_too_large_is_given_up_with_its_limit_before_it_takes_memory() {
    const MUCH: usize = 30 << 20;
    for (what, model, reply, limit) in [
        (
            "pieces",
            "chat/m",
            chat_call(MUCH, 1 << 16),
            "tool write exceed the limit of 1048576",
        ),
        (
            "small pieces",
            "chat/m",
            chat_call(2 << 20, 64),
            "tool write exceed the limit of 1048576",
        ),
        (
            "one event",
            "chat/m",
            chat_call(MUCH, MUCH),
            "longer than 4194304",
        ),
        ("text", "chat/m", chat_text(MUCH), "more than 8388608"),
        (
            "messages",
            "claude/m",
            messages_call(MUCH),
            "tool write exceed the limit of 1048576",
        ),
        (
            "what is passed through",
            "chat/m",
            passed_through(MUCH),
            "more than 8388608",
        ),
        (
            "what is passed through in small pieces",
            "chat/m",
            Reply::stream(std::iter::repeat_n(
                event(&json!({ "notes": [{ "index": null, "text": "y".repeat(200) }] })),
                50_000,
            )),
            "more than 8388608",
        ),
        (
            "blocks",
            "claude/m",
            messages_blocks(MUCH),
            "more than 8388608",
        ),
        (
            "calls",
            "chat/m",
            chat_calls(1000, "read"),
            "more than 128 tool calls",
        ),
        (
            "a name",
            "chat/m",
            chat_calls(1, &"r".repeat(1 << 20)),
            "longer than the limit of 1024 bytes",
        ),
        (
            "whole",
            "chat/m",
            Reply::whole(&json!({ "choices": [{ "message": { "content": "y".repeat(MUCH) } }] })),
            "longer than 4194304",
        ),
    ] {
        let server = ModelServer::start();
        server.on(
            "[small]",
            vec![chat::says(&["small"]), chat::says(&["small"])],
        );
        server.on("[job]", vec![reply, chat::says(&["never"])]);
        let place = place(&server, model);
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let before = memory(&daemon, "VmRSS");
            let spawned = client.spawn(json!({ "task": "[job]" })).await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(
                ended["error"]["kind"], "answer_too_large",
                "{what}: {ended}"
            );
            let message = ended["error"]["message"].as_str().unwrap();
            assert!(message.contains(limit), "{what}: {message}");
            assert_eq!(
                server.requests().len(),
                1,
                "{what}: it is not asked for again"
            );
            let most = memory(&daemon, "VmHWM");
            assert!(most < before + 100.0, "{what}: {before} MiB became {most}");
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn arguments_within_their_limit_are_carried_out() {
    let server = ModelServer::start();
    let content = "y".repeat(900 * 1024);
    let arguments = json!({ "path": "big.txt", "content": content }).to_string();
    let call = chat::calls(&[("a", "write", &arguments)]);
    server.on("[job]", vec![call, chat::says(&["done"])]);
    let place = place(&server, "chat/m");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = json!({ "task": "[job]", "agent": "build" });
        let spawned = client.spawn(spawned).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "done", "{ended}");
        let written = std::fs::read_to_string(place.work().join("big.txt")).unwrap();
        assert_eq!(written.len(), content.len());
        assert_eq!(daemon.stop().await, 0);
    });
}

/// An answer with this token usage.
fn counted(text: &str, usage: &str) -> Reply {
    chat::events(&[
        &json!({ "choices": [{ "index": 0, "delta": { "content": text } }] }).to_string(),
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        &format!(r#"{{"choices":[],"usage":{usage}}}"#),
        "[DONE]",
    ])
}

/// Runs a turn of the session; returns the ended run.
async fn turn(client: &Link, key: &str) -> Value {
    let asked = json!({ "sessionKey": key, "message": "[job]" });
    let run = client.call("agent.run", asked).await;
    client.ended(run["runId"].as_str().unwrap()).await
}

#[test]
fn counts_of_tokens_that_cannot_be_right_are_estimated_and_spoil_nothing() {
    for usage in [
        r#"{"prompt_tokens": 18446744073709551615, "completion_tokens": 18446744073709551615}"#,
        r#"{"prompt_tokens": 9223372036854775807, "completion_tokens": 1}"#,
        r#"{"prompt_tokens": 5000000000, "completion_tokens": 5000000000}"#,
        r#"{"prompt_tokens": 1, "completion_tokens": 9223372036854775807}"#,
    ] {
        let server = ModelServer::start();
        let replies = (0..3).map(|number| counted(&format!("answer {number}"), usage));
        server.on("[job]", replies);
        let place = place(&server, "chat/m")
            .with("budgets.tree_tokens", "1000000")
            .with("prices.\"chat/m\"", "{ input = 1.0, output = 1.0 }");
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let made = client
                .call("sessions.create", json!({ "agent": "build" }))
                .await;
            let key = made["session"]["key"].as_str().unwrap().to_owned();
            for number in 0..3 {
                let ended = turn(&client, &key).await;
                assert_eq!(
                    ended["result"],
                    format!("answer {number}"),
                    "{usage}: {ended}"
                );
                let warnings = ended["warnings"].to_string();
                assert!(warnings.contains("cannot be right"), "{usage}: {warnings}");
                for name in ["inputTokens", "outputTokens"] {
                    let tokens = ended["usage"][name].as_u64().unwrap();
                    assert!(tokens < 100_000, "{usage}: {}", ended["usage"]);
                }
            }
            let summary = json!({ "by": "model" });
            let summary = client.call("usage.summary", summary).await;
            let row = &summary["rows"][0];
            assert_eq!(row["modelCalls"], 3, "{summary}");
            assert!(row["inputTokens"].as_u64().unwrap() < 100_000, "{summary}");
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn a_count_that_is_merely_too_high_does_not_shorten_a_short_conversation() {
    let server = ModelServer::start();
    let high = r#"{"prompt_tokens": 100000, "completion_tokens": 5}"#;
    let replies = (0..3).map(|_| counted("fine", high));
    server.on("[job]", replies);
    let place = place(&server, "chat/m").with("sessions.window", "50000");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let made = client
            .call("sessions.create", json!({ "agent": "build" }))
            .await;
        let key = made["session"]["key"].as_str().unwrap().to_owned();
        for _ in 0..3 {
            let ended = turn(&client, &key).await;
            assert_eq!(ended["result"], "fine", "{ended}");
        }
        assert_eq!(server.requests().len(), 3, "nothing was summed up");
        assert_eq!(daemon.stop().await, 0);
    });
}
