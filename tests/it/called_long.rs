//! Sessions with called agents that exceed the context window: every call keeps its result, and no
//! context window contains the intermediate work of a called agent. Tests are named after their
//! requirements.

use serde_json::{Value, json};

use crate::harness::{Link, ModelServer, Place, Reply, chat, run};
use crate::providers;

const HOST: &str = "agent:host:a";
/// Occurs in every summary request and in no other request.
const SUMMARY: &str = "Summarize the conversation below";
/// More tokens than the context window of these tests.
const MUCH: u64 = 9000;

/// A text, an optional tool call, and the provider's token count.
fn answers(text: &str, call: Option<(&str, &str, Value)>, tokens: u64) -> Reply {
    let piece = |delta: Value| json!({ "choices": [{ "index": 0, "delta": delta }] }).to_string();
    let mut events = vec![piece(json!({ "content": text }))];
    let reason = match call {
        None => "stop",
        Some((id, name, arguments)) => {
            events.push(piece(json!({ "tool_calls": [{
                "index": 0, "id": id, "type": "function",
                "function": { "name": name, "arguments": arguments.to_string() },
            }] })));
            "tool_calls"
        }
    };
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
    let usage = json!({ "choices": [],
        "usage": { "prompt_tokens": tokens, "completion_tokens": 10 } });
    events.extend([end.to_string(), usage.to_string(), "[DONE]".to_owned()]);
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    chat::events(&events)
}

/// The host's call of its helper.
fn asks(number: u32, tokens: u64) -> Reply {
    let arguments = json!({ "message": format!("help {number}") });
    answers(
        "",
        Some((&format!("c{number}"), "call_helper", arguments)),
        tokens,
    )
}

/// The helper reads a file and adds a text of its own.
fn muses(number: u32, tokens: u64) -> Reply {
    let call = (
        &*format!("k{number}"),
        "read",
        json!({ "path": "notes.txt" }),
    );
    answers(&format!("inner musing {number}"), Some(call), tokens)
}

fn helped(number: u32) -> Reply {
    let text = format!("helper says {number} {}", "x".repeat(3000));
    answers(&text, None, 100)
}

fn place(server: &ModelServer, overflow: &str, helper: &str) -> Place {
    providers::place(server, "chat/big")
        .with("sessions.window", "5000")
        .with("sessions.overflow", &format!("{overflow:?}"))
        .with_agent(
            "host",
            "mode: primary\ntools: []\nlinked_agents: [{agent: helper, session: shared}]",
        )
        .with_agent(
            "helper",
            &format!("mode: subagent\ntools: [read]\n{helper}"),
        )
}

async fn turn(client: &Link, text: &str) -> Value {
    let params = json!({ "key": HOST, "agent": "host", "ifExists": "get" });
    client.call("sessions.create", params).await;
    let turn = client.turn(HOST, text).await;
    client.ended(&turn.id).await
}

/// The number of compaction entries in the session.
async fn compactions(client: &Link) -> usize {
    let params = json!({ "sessionKey": HOST });
    let history = client.call("sessions.history", params).await;
    let entries = history["messages"].as_array().unwrap().iter();
    entries
        .filter(|entry| entry["kind"] == "compaction")
        .count()
}

/// The requests that contain this text.
fn with(server: &ModelServer, text: &str) -> Vec<Value> {
    let requests = server.requests().into_iter();
    let found = requests.filter(|request| request.body.contains(text));
    found.map(|request| request.json()).collect()
}

/// Checks that each call of a request is followed by exactly one result, in call order, and that
/// there are no other results.
fn is_whole(request: &Value) {
    let messages = request["messages"].as_array().unwrap();
    let mut open: Vec<&Value> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            assert!(!open.is_empty(), "a result without its call: {request}");
            assert_eq!(*open.remove(0), message["tool_call_id"], "{request}");
            continue;
        }
        assert!(open.is_empty(), "{open:?} without a result: {request}");
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        open.extend(calls.map(|call| &call["id"]));
    }
    assert!(open.is_empty(), "{open:?} without a result: {request}");
}

#[test]
fn b5_a_session_with_called_agents_is_shortened_and_each_call_keeps_its_result() {
    for overflow in ["summarize", "slide"] {
        let server = ModelServer::start();
        server.on(SUMMARY, (0..9).map(|_| chat::says(&["the gist of it"])));
        server.on_agent(
            "host",
            [
                asks(1, 100),
                answers("host said one", None, 100),
                // In the middle of a turn, and before one.
                asks(2, MUCH),
                answers("host said two", None, 100),
                asks(3, 100),
                answers("host said three", None, MUCH),
                asks(4, 100),
                answers("host said four", None, 100),
            ],
        );
        let helps = (1..=4).flat_map(|number| [muses(number, 100), helped(number)]);
        server.on_agent("helper", helps);
        let place = place(&server, overflow, "");
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            for (text, said) in [
                ("one", "host said one"),
                ("two", "host said two"),
                ("three", "host said three"),
                ("four", "host said four"),
            ] {
                let ended = turn(&client, text).await;
                assert_eq!(ended["result"], said, "{overflow}: {ended}");
            }
            assert_eq!(compactions(&client).await, 2, "{overflow}");
            assert_eq!(daemon.stop().await, 0);
        });
        let hosts = server.requests_of("host");
        assert_eq!(hosts.len(), 8, "{overflow}");
        let mut seen = hosts.clone();
        seen.extend(with(&server, SUMMARY));
        for request in &seen {
            is_whole(request);
            let text = request.to_string();
            for inner in [
                "inner musing",
                "beta",
                "\"k1\"",
                "\"k2\"",
                "\"k3\"",
                "\"k4\"",
            ] {
                assert!(!text.contains(inner), "{overflow}, {inner}: {text}");
            }
        }
        // The compacted part is missing, the recent part is present.
        assert!(
            !hosts[3].to_string().contains("helper says 1"),
            "{overflow}"
        );
        assert!(hosts[3].to_string().contains("helper says 2"), "{overflow}");
        assert!(
            !hosts[7].to_string().contains("helper says 2"),
            "{overflow}"
        );
        assert!(hosts[7].to_string().contains("helper says 4"), "{overflow}");
        if overflow == "summarize" {
            assert!(hosts[3].to_string().contains("the gist of it"));
        }
        let helpers = server.requests_of("helper");
        assert_eq!(helpers.len(), 8, "{overflow}");
        for (number, request) in helpers.iter().enumerate() {
            is_whole(request);
            let text = request.to_string();
            let call = format!("help {}", number / 2 + 1);
            let count = text.matches("inner musing").count();
            assert_eq!(count, number % 2, "only its own of this call: {text}");
            if number % 2 == 0 {
                let last = request["messages"].as_array().unwrap().last().unwrap();
                assert_eq!(last["role"], "user", "{text}");
                assert!(last["content"].to_string().contains(&call), "{text}");
            }
        }
    }
}

#[test]
fn b1_a_called_one_that_shortens_what_it_sees_leaves_its_callers_window_as_it_is() {
    let server = ModelServer::start();
    server.on(SUMMARY, [chat::says(&["the gist of it"])]);
    let long = format!("host said one {}", "y".repeat(6000));
    server.on_agent(
        "host",
        [
            answers(&long, None, 100),
            asks(1, 100),
            answers("host said two", None, 100),
        ],
    );
    server.on_agent("helper", [muses(1, MUCH), helped(1)]);
    let place = place(&server, "summarize", "execution: {compression: true}");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(turn(&client, "one").await["result"], long);
        let ended = turn(&client, "two").await;
        assert_eq!(ended["result"], "host said two", "{ended}");
        assert_eq!(compactions(&client).await, 1);
        assert_eq!(daemon.stop().await, 0);
    });
    let helpers = server.requests_of("helper");
    assert_eq!(helpers.len(), 2);
    let after = helpers[1].to_string();
    assert!(after.contains("the gist of it"), "{after}");
    assert!(!after.contains("host said one"), "{after}");
    assert!(
        after.contains("help 1") && after.contains("beta"),
        "{after}"
    );
    is_whole(&helpers[1]);
    let last = server.requests_of("host").pop().unwrap();
    is_whole(&last);
    let text = last.to_string();
    assert!(text.contains("host said one"), "{text}");
    assert!(text.contains("helper says 1"), "{text}");
    for inner in ["the gist of it", "inner musing", "beta"] {
        assert!(!text.contains(inner), "{inner}: {text}");
    }
}
