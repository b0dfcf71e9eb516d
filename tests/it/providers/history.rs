//! What a provider gets back of its own answers: always a form that it accepts, and plain text once
//! it has refused its own blocks.

use serde_json::{Value, json};

use super::{messages_of, place};
use crate::harness::{Link, ModelServer, Reply, chat, messages, run};

const TALK: &str = "agent:build:talk";

async fn turn(client: &Link, message: &str) -> Value {
    let params = json!({ "sessionKey": TALK, "message": message });
    let accepted = client.call("agent.run", params).await;
    client.ended(accepted["runId"].as_str().unwrap()).await
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn call(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "read", "input": { "path": "notes.txt" } })
}

fn thinking() -> Value {
    json!({ "type": "thinking", "thinking": "hm", "signature": "c2ln" })
}

/// The types of the blocks of each message of a request.
fn blocks(request: &Value) -> Vec<Vec<&str>> {
    messages_of(request)
        .iter()
        .map(|message| {
            let blocks = message["content"].as_array().unwrap().iter();
            blocks
                .map(|block| block["type"].as_str().unwrap())
                .collect()
        })
        .collect()
}

#[test]
fn a_text_of_line_ends_before_a_call_does_not_go_back() {
    let server = ModelServer::start();
    server.on(
        "[talk]",
        [
            messages::answers(&[thinking(), text("\n\n"), call("t")], "tool_use"),
            messages::answers(&[text("done")], "end_turn"),
        ],
    );
    let place = place(&server, "claude/big");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(turn(&client, "[talk]").await["result"], "done");
        let request = server.requests()[1].json();
        let expected = [
            vec!["text"],
            vec!["thinking", "tool_use"],
            vec!["tool_result"],
        ];
        assert_eq!(blocks(&request), expected);
    });
}

#[test]
fn a_refused_history_is_repaired_once_and_the_session_goes_on() {
    let server = ModelServer::start();
    let refusal = || Reply::status(400, "messages.1.content.0: Invalid `signature` in block");
    server.on(
        "[talk]",
        [
            messages::answers(&[thinking(), call("t")], "tool_use"),
            refusal(),
            messages::answers(&[call("u")], "tool_use"),
            messages::answers(&[text("done")], "end_turn"),
            messages::answers(&[text("more")], "end_turn"),
        ],
    );
    let place = place(&server, "claude/big");
    run(async {
        let mut daemon = place.start().await;
        let mut client = daemon.client().await;
        let ended = turn(&client, "[talk] one").await;
        assert_eq!(ended["result"], "done", "{ended}");
        let warnings = ended["warnings"].to_string();
        assert!(warnings.contains("Invalid `signature`"), "{warnings}");
        assert!(
            warnings.contains("was sent again as text and tool calls only"),
            "{warnings}"
        );
        let requests: Vec<Value> = server.requests().iter().map(|one| one.json()).collect();
        assert_eq!(requests.len(), 4);
        assert_eq!(blocks(&requests[1])[1], ["thinking", "tool_use"]);
        assert_eq!(blocks(&requests[2])[1], ["tool_use"]);
        let ids = |request: &Value| {
            let messages = messages_of(request);
            let (call, result) = (&messages[1]["content"][0], &messages[2]["content"][0]);
            (call["id"].clone(), result["tool_use_id"].clone())
        };
        let (call, result) = ids(&requests[2]);
        assert_eq!(call, result);
        // A repair persists, in this turn, the next one, and after a restart.
        assert_eq!(blocks(&requests[3])[1], ["tool_use"]);
        daemon.kill().await;
        daemon = place.start().await;
        client = daemon.client().await;
        let ended = turn(&client, "[talk] two").await;
        assert_eq!(ended["result"], "more", "{ended}");
        assert_eq!(server.requests().len(), 5, "it is not refused again");
        assert_eq!(blocks(&server.requests()[4].json())[1], ["tool_use"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Three turns, and one more after a restart. Every request that contains the answer `given` is
/// refused. Returns the number of requests of each turn.
fn turns(model: &str, marker: &str, given: &Reply, refused: &Reply) -> Vec<usize> {
    let server = ModelServer::start();
    server.on(marker, vec![refused.clone(); 40]);
    server.on("[talk]", vec![given.clone(); 9]);
    let place = place(&server, model).with("providers.chat.retries", "1");
    run(async {
        let mut daemon = place.start().await;
        let mut client = daemon.client().await;
        let mut counts = Vec::new();
        for number in 0..4 {
            if number == 3 {
                daemon.kill().await;
                daemon = place.start().await;
                client = daemon.client().await;
            }
            let before = server.requests().len();
            let ended = turn(&client, &format!("[talk] {number}")).await;
            assert_eq!(ended["result"], "said", "{refused:?}: {ended}");
            let warnings = ended["warnings"].to_string();
            assert_eq!(
                warnings.contains("was sent again as text and tool calls only"),
                number == 1,
                "{warnings}"
            );
            counts.push(server.requests().len() - before);
        }
        assert_eq!(daemon.stop().await, 0);
        counts
    })
}

#[test]
fn a_history_is_repaired_however_it_is_refused_and_the_next_turn_makes_one_request() {
    let delta = |delta: Value, reason: Value| {
        json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }] }).to_string()
    };
    let given = [
        delta(json!({ "reasoning_content": "hm" }), json!(null)),
        delta(json!({ "content": "said" }), json!("stop")),
    ];
    let given = chat::events(&[&given[0], &given[1]]);
    let words = "unexpected field reasoning_content in message";
    let broken_off = json!({ "error": { "message": words, "type": "server_error", "code": 500 } });
    let half = delta(json!({ "content": "hal" }), json!("error"));
    for (refused, tries) in [
        (Reply::status(400, words), 1),
        (Reply::status(422, words), 1),
        (
            Reply::status(404, "No endpoints found that support reasoning"),
            1,
        ),
        (Reply::status(403, words), 1),
        (Reply::status(500, words), 2),
        (Reply::bytes(b"").refuses(500), 2),
        (chat::events(&[&broken_off.to_string()]), 2),
        (chat::events(&[&half]), 2),
        (chat::events(&[]).cut_after(0), 2),
    ] {
        let counts = turns("chat/small", "\"reasoning_content\"", &given, &refused);
        assert_eq!(counts, [1, tries + 1, 1, 1], "{refused:?}");
    }
    let given = messages::answers(&[thinking(), text("said")], "end_turn");
    let refused = Reply::status(400, words);
    let counts = turns("claude/big", "\"signature\"", &given, &refused);
    assert_eq!(counts, [1, 2, 1, 1]);
}

#[test]
fn a_session_is_not_wedged_by_a_provider_that_takes_only_its_own_form_again() {
    let server = ModelServer::start();
    let refused = || Reply::status(400, "Function call is missing a thought_signature");
    server.on(
        "[talk]",
        [
            messages::answers(&[thinking(), text("one")], "end_turn"),
            refused(),
            messages::answers(&[thinking(), text("two")], "end_turn"),
            refused(),
            messages::answers(&[thinking(), text("three")], "end_turn"),
            messages::answers(&[thinking(), text("four")], "end_turn"),
        ],
    );
    let place = place(&server, "claude/big");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        for said in ["one", "two", "three", "four"] {
            assert_eq!(turn(&client, "[talk]").await["result"], said);
        }
        let requests: Vec<Value> = server.requests().iter().map(|one| one.json()).collect();
        // The answer whose form was refused stays plain; the later ones keep their form.
        let last = blocks(requests.last().unwrap());
        assert_eq!(last[1], ["text"]);
        assert_eq!(last[3], ["thinking", "text"]);
        assert_eq!(last[5], ["thinking", "text"]);
    });
}

#[test]
fn a_history_that_is_refused_in_plain_form_too_ends_the_run_and_says_so() {
    let server = ModelServer::start();
    server.on(
        "[talk]",
        [
            chat::calls(&[("a", "read", r#"{"path": "notes.txt"}"#)]),
            Reply::status(400, "first words"),
            Reply::status(400, "second words"),
            chat::says(&["never"]),
        ],
    );
    let place = place(&server, "chat/small");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let ended = turn(&client, "[talk]").await;
        assert_eq!(ended["error"]["kind"], "provider_request", "{ended}");
        let message = ended["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("first words") && message.contains("second words"),
            "{message}"
        );
        assert_eq!(server.requests().len(), 3);
    });
}
