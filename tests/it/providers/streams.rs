//! Undocumented stream behaviour: duplicate or indistinguishable calls, false ends, characters that
//! are split.

use serde_json::{Value, json};

use super::{messages_of, place};
use crate::harness::{Link, ModelServer, Reply, chat, messages, run};

/// A run and its effects.
struct Played {
    ended: Value,
    /// Its tool steps.
    tools: Vec<Value>,
    /// The model requests, in order.
    requests: Vec<Value>,
}

impl Played {
    fn new(model: &str, replies: Vec<Reply>) -> Played {
        let server = ModelServer::start();
        server.on("[job]", replies);
        let place = place(&server, model);
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let spawned = client.spawn(json!({ "task": "[job] look" })).await;
            let ended = client.ended(&spawned.id).await;
            let tools = tools(&client, &spawned.id).await;
            let requests = server.requests().iter().map(|one| one.json()).collect();
            Played {
                ended,
                tools,
                requests,
            }
        })
    }

    fn states(&self) -> Vec<&str> {
        let states = self
            .tools
            .iter()
            .map(|step| step["state"].as_str().unwrap());
        states.collect()
    }

    /// The results that the model was shown in the second request.
    fn told(&self) -> Vec<&str> {
        let messages = messages_of(&self.requests[1]).iter();
        let results = messages.filter(|message| message["role"] == "tool");
        results
            .map(|message| message["content"].as_str().unwrap())
            .collect()
    }

    /// The calls of the second request, each with its tool.
    fn sent_back(&self) -> Vec<(&str, &str)> {
        let messages = messages_of(&self.requests[1]).iter();
        let calls = messages.filter_map(|message| message["tool_calls"].as_array());
        calls
            .flatten()
            .map(|call| {
                let name = &call["function"]["name"];
                (call["id"].as_str().unwrap(), name.as_str().unwrap())
            })
            .collect()
    }
}

async fn tools(client: &Link, run: &str) -> Vec<Value> {
    let steps = client.call("runs.steps", json!({ "runId": run })).await;
    let steps = steps["steps"].as_array().unwrap().iter();
    steps
        .filter(|step| step["kind"] == "tool")
        .cloned()
        .collect()
}

fn pieces(pieces: &[Value], reason: &str) -> Reply {
    let delta = |piece: &Value| {
        json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [piece] }, "finish_reason": null }] })
            .to_string()
    };
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
    let mut events: Vec<String> = pieces.iter().map(delta).collect();
    events.extend([end.to_string(), "[DONE]".to_owned()]);
    chat::events(&events.iter().map(String::as_str).collect::<Vec<_>>())
}

fn piece(index: u64, id: &str, name: &str, arguments: &str) -> Value {
    let mut piece = json!({ "index": index, "function": { "arguments": arguments } });
    if !id.is_empty() {
        piece["id"] = id.into();
    }
    if !name.is_empty() {
        piece["function"]["name"] = name.into();
    }
    piece
}

const NOTES: &str = r#"{"path": "notes.txt"}"#;

#[test]
fn a_call_that_comes_twice_is_carried_out_once() {
    let whole = json!({ "choices": [{ "index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "tool_calls": [piece(0, "a", "read", NOTES)] } }] });
    let whole = format!("data: {whole}\n\n");
    let after_pieces = {
        let delta = json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [piece(0, "a", "read", NOTES)] } }] });
        Reply::stream([
            format!("data: {delta}\n\n"),
            whole.clone(),
            whole,
            "data: [DONE]\n\n".to_owned(),
        ])
    };
    for twice in [
        pieces(
            &[piece(0, "a", "read", NOTES), piece(1, "a", "read", NOTES)],
            "tool_calls",
        ),
        pieces(
            &[piece(0, "a", "read", NOTES), piece(0, "a", "read", NOTES)],
            "tool_calls",
        ),
        after_pieces,
    ] {
        let played = Played::new("chat/small", vec![twice, chat::says(&["done"])]);
        assert_eq!(played.ended["result"], "done", "{}", played.ended);
        assert_eq!(played.states(), ["done"]);
        assert_eq!(played.sent_back(), [("a", "read")]);
        assert_eq!(played.told().len(), 1);
    }
    let call =
        json!({ "type": "tool_use", "id": "a", "name": "read", "input": { "path": "notes.txt" } });
    let twice = messages::answers(&[call.clone(), call], "tool_use");
    let done = messages::answers(&[json!({ "type": "text", "text": "done" })], "end_turn");
    let played = Played::new("claude/big", vec![twice, done]);
    assert_eq!(played.states(), ["done"], "{}", played.ended);
    assert_eq!(played.ended["result"], "done");
}

#[test]
fn a_call_that_comes_in_two_versions_is_not_carried_out_and_the_model_is_told() {
    let other = r#"{"path": "other.txt"}"#;
    let differ = pieces(
        &[piece(0, "a", "read", NOTES), piece(1, "a", "read", other)],
        "tool_calls",
    );
    let played = Played::new("chat/small", vec![differ, chat::says(&["done"])]);
    assert_eq!(played.ended["result"], "done", "{}", played.ended);
    assert_eq!(played.states(), ["failed"]);
    let told = played.told();
    assert!(
        told[0].contains("was not run") && told[0].contains("under one id"),
        "{told:?}"
    );
}

#[test]
fn calls_that_share_an_index_keep_their_own_arguments() {
    let list = r#"{"path": "."}"#;
    let shared = pieces(
        &[piece(0, "a", "read", NOTES), piece(0, "b", "list", list)],
        "tool_calls",
    );
    let played = Played::new("chat/small", vec![shared, chat::says(&["done"])]);
    assert_eq!(played.states(), ["done", "done"]);
    assert_eq!(played.sent_back(), [("a", "read"), ("b", "list")]);
    let mixed = pieces(
        &[
            piece(0, "a", "read", ""),
            piece(0, "b", "list", ""),
            piece(0, "", "", list),
        ],
        "tool_calls",
    );
    let played = Played::new("chat/small", vec![mixed, chat::says(&["done"])]);
    assert_eq!(played.states(), ["failed", "failed"]);
    assert!(
        played
            .told()
            .iter()
            .all(|told| told.contains("belong to no call"))
    );
}

#[test]
fn a_call_that_nothing_names_does_not_go_back() {
    // Once beside another call, and once alone.
    let beside = pieces(
        &[piece(0, "a", "read", NOTES), piece(4, "", "", NOTES)],
        "tool_calls",
    );
    let played = Played::new("chat/small", vec![beside, chat::says(&["done"])]);
    assert_eq!(played.ended["result"], "done", "{}", played.ended);
    assert_eq!(played.sent_back(), [("a", "read")]);
    assert!(played.told()[0].contains("belong to no call"));
    let alone = pieces(&[piece(4, "x", "", NOTES)], "tool_calls");
    let played = Played::new("chat/small", vec![alone, chat::says(&["done"])]);
    assert_eq!(played.ended["result"], "done", "{}", played.ended);
    assert_eq!(played.tools.len(), 0);
    assert_eq!(played.requests[0], played.requests[1]);
}

#[test]
fn an_answer_that_ends_badly_is_asked_for_again_and_never_a_success() {
    let half = |reason: &str| {
        let delta = json!({ "choices": [{ "index": 0, "delta": { "content": "half of it" } }] });
        let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
        chat::events(&[&delta.to_string(), &end.to_string(), "[DONE]"])
    };
    let whole = json!({ "choices": [{ "message": { "role": "assistant", "content": "half of it" },
                                      "finish_reason": "error" }] });
    for bad in [
        half("error"),
        half("insufficient_system_resource"),
        half("new"),
        Reply::whole(&whole),
    ] {
        let played = Played::new("chat/small", vec![bad, chat::says(&["all of it"])]);
        assert_eq!(played.ended["result"], "all of it", "{}", played.ended);
        assert_eq!(played.requests.len(), 2);
    }
    let played = Played::new("chat/small", vec![half("error"); 9]);
    assert_eq!(
        played.ended["error"]["kind"], "provider",
        "{}",
        played.ended
    );
    let message = played.ended["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("\"error\"") && message.contains("half of it"),
        "{message}"
    );

    let text = |text: &str| json!({ "type": "text", "text": text });
    let bad = messages::answers(&[text("half")], "something_new");
    let good = messages::answers(&[text("whole")], "end_turn");
    let played = Played::new("claude/big", vec![bad, good]);
    assert_eq!(played.ended["result"], "whole", "{}", played.ended);
    let refused = messages::answers(&[text("half")], "refusal");
    let played = Played::new("claude/big", vec![refused]);
    assert_eq!(played.ended["error"]["kind"], "refused", "{}", played.ended);
}

#[test]
fn an_answer_that_pauses_goes_on_where_it_was() {
    let search = json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
                         "input": {} });
    let paused = messages::answers(std::slice::from_ref(&search), "pause_turn");
    let done = messages::answers(&[json!({ "type": "text", "text": "found" })], "end_turn");
    let played = Played::new("claude/big", vec![paused, done]);
    assert_eq!(played.ended["result"], "found", "{}", played.ended);
    let messages = messages_of(&played.requests[1]);
    let last = messages.last().unwrap();
    assert_eq!(
        (&last["role"], &last["content"][0]),
        (&json!("assistant"), &search)
    );
}

#[test]
fn a_character_that_is_cut_in_two_comes_together() {
    let events = [
        r#"{"choices":[{"index":0,"delta":{"content":"a \ud83d"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"\ude00 \ud83d b"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ];
    let played = Played::new("chat/small", vec![chat::events(&events)]);
    assert_eq!(
        played.ended["result"], "a 😀 \u{FFFD} b",
        "{}",
        played.ended
    );
    assert_eq!(played.requests.len(), 1);
}

#[test]
fn a_call_that_is_announced_again_under_another_id_runs_once_and_a_part_of_one_never() {
    let events = |events: &[Value]| {
        let events: Vec<String> = events.iter().map(Value::to_string).collect();
        chat::events(&events.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let call = |id: &str, name: &str, arguments: &str| json!({ "index": 0, "id": id, "function": { "name": name, "arguments": arguments } });
    let delta =
        |call: Value| json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] } }] });
    let end = |field: &str, calls: Value| {
        json!({ "choices": [{ "index": 0, field: { "tool_calls": calls },
                              "finish_reason": "tool_calls" }] })
    };
    let other = r#"{"path": "other.txt"}"#;
    let begun = delta(call("c1", "read", NOTES));
    for (answer, runs) in [
        (
            vec![
                begun.clone(),
                end("message", json!([call("zz9", "read", NOTES)])),
            ],
            1,
        ),
        (
            vec![
                begun.clone(),
                end("delta", json!([call("c2", "read", NOTES)])),
            ],
            1,
        ),
        (
            vec![
                begun.clone(),
                end("message", json!([call("", "read", other)])),
            ],
            0,
        ),
        (
            vec![
                delta(call("a1", "read", r#"{"note": "#)),
                delta(call("a2", "read", NOTES)),
                delta(call("a3", "read", "}")),
                end("delta", json!([])),
            ],
            0,
        ),
    ] {
        let played = Played::new("chat/small", vec![events(&answer), chat::says(&["done"])]);
        assert_eq!(played.ended["result"], "done", "{}", played.ended);
        let done = played
            .states()
            .iter()
            .filter(|state| **state == "done")
            .count();
        assert_eq!(done, runs, "{answer:?}: {:?}", played.tools);
    }
}

#[test]
fn an_answer_that_ends_for_its_calls_and_has_none_is_asked_for_again() {
    let half = json!({ "choices": [{ "index": 0, "delta": { "content": "I will read" },
                                     "finish_reason": "tool_calls" }] });
    let replies = vec![chat::events(&[&half.to_string()]), chat::says(&["done"])];
    let played = Played::new("chat/small", replies);
    assert_eq!(played.ended["result"], "done", "{}", played.ended);
    assert_eq!(played.requests.len(), 2);
}
