//! Server failures and how the provider client handles them.

use serde_json::{Value, json};

use super::place;
use crate::harness::{ModelServer, Place, Reply, chat, messages, run};

/// Runs one task against these replies; returns the ended run and the number of requests.
fn ended_with(place: &Place, server: &ModelServer, replies: Vec<Reply>) -> (Value, usize) {
    server.on("[job]", replies);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client.spawn(json!({ "task": "[job] look" })).await;
        let ended = client.ended(&spawned.id).await;
        (ended, server.requests().len())
    })
}

fn message_of(ended: &Value) -> &str {
    ended["error"]["message"].as_str().unwrap()
}

/// Each failure happens once, and the retry succeeds.
#[test]
fn g11_1_what_may_pass_is_tried_again_until_it_has() {
    let whole = || chat::says(&["all ", "of it"]);
    let server = ModelServer::start();
    let (ended, asked) = ended_with(
        &place(&server, "chat/small"),
        &server,
        vec![
            Reply::status(500, "oops"),
            Reply::status(529, "overloaded"),
            Reply::status(408, "too slow"),
            whole().cut_after(1),
            whole(),
        ],
    );
    assert_eq!(
        (ended["result"].as_str(), asked),
        (Some("all of it"), 5),
        "{ended}"
    );

    for (what, faulty) in [
        ("a cut", whole().cut_after(1)),
        ("a cut before the first piece", whole().cut_after(0)),
        ("an end without a reason", whole().ends_after(2)),
        ("no events at all", whole().ends_after(0)),
        ("garbage", chat::events(&["{\"choices\": [{\"delta\""])),
        (
            "an error in the stream",
            chat::events(&[r#"{"error":{"message":"busy","code":503}}"#]),
        ),
        ("no UTF-8", Reply::bytes(b"data: \xff\xfe{}\n\n")),
    ] {
        let server = ModelServer::start();
        let place = place(&server, "chat/small");
        let (ended, asked) = ended_with(&place, &server, vec![faulty, whole()]);
        assert_eq!(
            (ended["result"].as_str(), asked),
            (Some("all of it"), 2),
            "{what}: {ended}"
        );
    }
}

#[test]
fn g11_1_a_server_that_goes_silent_is_given_up_and_asked_again() {
    for (what, silent) in [
        ("no answer", Reply::hang()),
        ("nothing after the head", chat::says(&["a"]).stalls_after(0)),
        ("half an answer", chat::says(&["a", "b"]).stalls_after(1)),
    ] {
        let server = ModelServer::start();
        let place = place(&server, "chat/small").with("providers.chat.stall_timeout", "\"300ms\"");
        let (ended, asked) = ended_with(&place, &server, vec![silent, chat::says(&["done"])]);
        assert_eq!(
            (ended["result"].as_str(), asked),
            (Some("done"), 2),
            "{what}: {ended}"
        );
    }
    // The error after the last attempt includes the attempt's number.
    let server = ModelServer::start();
    let place = place(&server, "chat/small")
        .with("providers.chat.stall_timeout", "\"100ms\"")
        .with("providers.chat.retries", "1");
    let (ended, asked) = ended_with(&place, &server, vec![Reply::hang(), Reply::hang()]);
    assert_eq!(
        (&ended["error"]["kind"], asked),
        (&json!("provider_timeout"), 2)
    );
    let message = message_of(&ended);
    assert!(
        message.contains("stall_timeout") && message.contains("tried 2 times"),
        "{message}"
    );
}

#[test]
fn an_answer_that_never_ends_is_given_up_at_its_limit() {
    let server = ModelServer::start();
    // It sends keep-alives all the time, so only the limit of the whole request can end it.
    let endless = Reply::stream(vec![": still here\n\n".to_owned(); 3]).stalls_after(3);
    let place = place(&server, "chat/small")
        .with("providers.chat.timeout", "\"300ms\"")
        .with("providers.chat.retries", "0");
    let (ended, _) = ended_with(&place, &server, vec![endless]);
    assert_eq!(ended["error"]["kind"], "provider_timeout", "{ended}");
    assert!(message_of(&ended).contains("300ms"), "{ended}");
}

#[test]
fn g11_2_the_wait_that_the_provider_asks_for_is_kept() {
    let server = ModelServer::start();
    let wait = |ms: &str| Reply::status(429, "slow down").with_header("retry-after-ms", ms);
    let replies = vec![
        wait("400"),
        Reply::status(503, "later").with_header("retry-after", "1"),
        chat::says(&["done"]),
    ];
    let (ended, asked) = ended_with(&place(&server, "chat/small"), &server, replies);
    assert_eq!(
        (ended["result"].as_str(), asked),
        (Some("done"), 3),
        "{ended}"
    );
    // The attempts themselves take less than 1.4 s; without waiting they would end much sooner.
    let elapsed = ended["elapsedMs"].as_u64().unwrap();
    assert!(elapsed >= 1400, "{elapsed} ms");

    let server = ModelServer::start();
    let replies = vec![Reply::status(429, "tomorrow").with_header("retry-after", "86400")];
    let (ended, asked) = ended_with(&place(&server, "chat/small"), &server, replies);
    assert_eq!(asked, 1, "nobody waits a day");
    let message = message_of(&ended);
    assert!(
        message.contains("1day") && message.contains("max_wait (1h)"),
        "{message}"
    );
}

#[test]
fn what_is_wrong_for_good_is_tried_once_and_told() {
    for (status, kind) in [
        (400, "provider_request"),
        (401, "provider_auth"),
        (403, "provider_auth"),
        (404, "provider"),
        (422, "provider_request"),
    ] {
        let server = ModelServer::start();
        let replies = vec![Reply::status(status, "because"), chat::says(&["never"])];
        let (ended, asked) = ended_with(&place(&server, "chat/small"), &server, replies);
        assert_eq!(
            (&ended["error"]["kind"], asked),
            (&json!(kind), 1),
            "{status}: {ended}"
        );
        let message = message_of(&ended);
        assert!(message.contains(&status.to_string()), "{message}");
        assert!(
            message.contains("because") && message.contains("chat/small"),
            "{message}"
        );
    }
}

#[test]
fn g11_1_the_end_of_all_tries_says_what_was_tried() {
    let server = ModelServer::start();
    let place = place(&server, "claude/big").with("providers.claude.retries", "2");
    let replies = vec![
        Reply::status(529, "Overloaded"),
        Reply::status(500, "oops"),
        Reply::status(500, "oops"),
        messages::answers(&[], "end_turn"),
    ];
    let (ended, asked) = ended_with(&place, &server, replies);
    assert_eq!(
        (&ended["error"]["kind"], asked),
        (&json!("provider"), 3),
        "{ended}"
    );
    let message = message_of(&ended);
    for part in [
        "HTTP 500",
        "oops",
        "tried 3 times",
        "Overloaded",
        "kept in its session",
    ] {
        assert!(message.contains(part), "{part} is missing: {message}");
    }
}

#[test]
fn nobody_at_the_address_is_told_as_that() {
    let server = ModelServer::start();
    let place = place(&server, "chat/small")
        .with("providers.chat.base_url", "\"http://127.0.0.1:1/v1\"")
        .with("providers.chat.retries", "1");
    let (ended, _) = ended_with(&place, &server, Vec::new());
    let message = message_of(&ended);
    assert!(
        message.contains("no connection") && message.contains("refused"),
        "{message}"
    );
}

/// A success status without a model's answer is reported without a retry, with the address and the
/// first words.
#[test]
fn a_success_that_no_model_has_given_is_told_and_not_tried_again() {
    let page = b"<!DOCTYPE html><html><title>Sign in to the portal</title></html>";
    let reply = |kind: &str, body: &[u8]| Reply::bytes(body).with_type(kind);
    for (what, faulty, words) in [
        (
            "a web page",
            reply("text/html; charset=utf-8", page),
            "Sign in to the portal",
        ),
        ("a page without a type", reply("", page), "a web page"),
        (
            "a page that is said to be a stream",
            reply("text/event-stream", page),
            "a web page",
        ),
        (
            "a page that is said to be JSON",
            reply("application/json", page),
            "a web page",
        ),
        ("a text", reply("text/plain", b"It works!"), "It works!"),
        ("a list", reply("application/json", b"[1, 2]"), "[1, 2]"),
        (
            "another object",
            reply("application/json", b"{\"status\": \"up\"}"),
            "status",
        ),
        (
            "a packed answer",
            reply("text/event-stream", b"\x1f\x8b\x08\x00").with_header("content-encoding", "gzip"),
            "gzip",
        ),
    ] {
        let server = ModelServer::start();
        let place = place(&server, "chat/small");
        let (ended, asked) = ended_with(&place, &server, vec![faulty, chat::says(&["never"])]);
        assert_eq!(
            (&ended["error"]["kind"], asked),
            (&json!("provider"), 1),
            "{what}: {ended}"
        );
        let message = message_of(&ended);
        assert!(
            message.contains(&server.url("/v1/chat/completions")),
            "{what}: {message}"
        );
        assert!(message.contains(words), "{what}: {message}");
        assert!(!message.contains("cut"), "{what}: {message}");
        assert_eq!(
            server.requests()[0].header("accept-encoding"),
            Some("identity")
        );
    }
}

#[test]
fn a_stream_or_a_whole_answer_is_known_by_its_beginning_whatever_its_type() {
    let whole = json!({
        "choices": [{ "message": { "role": "assistant", "content": "all at once" }, "finish_reason": "stop" }],
    });
    for (reply, result) in [
        (Reply::whole(&whole).with_type("text/plain"), "all at once"),
        (
            Reply::whole(&whole).with_type("text/event-stream"),
            "all at once",
        ),
        (chat::says(&["in pieces"]).with_type(""), "in pieces"),
        (
            chat::says(&["in pieces"])
                .with_type("application/json")
                .in_bytes(1),
            "in pieces",
        ),
    ] {
        let server = ModelServer::start();
        let (ended, asked) = ended_with(&place(&server, "chat/small"), &server, vec![reply]);
        assert_eq!(
            (ended["result"].as_str(), asked),
            (Some(result), 1),
            "{ended}"
        );
    }
}

#[test]
fn an_address_with_the_whole_path_of_the_api_is_taken_as_it_is() {
    for (name, path, model, reply) in [
        (
            "chat",
            "/v1/chat/completions/",
            "chat/small",
            chat::says(&["done"]),
        ),
        (
            "claude",
            "/v1/messages",
            "claude/big",
            messages::answers(&[json!({ "type": "text", "text": "done" })], "end_turn"),
        ),
    ] {
        let server = ModelServer::start();
        let url = format!("{:?}", server.url(path));
        let place = place(&server, model).with(&format!("providers.{name}.base_url"), &url);
        let (ended, _) = ended_with(&place, &server, vec![reply]);
        assert_eq!(ended["result"], "done", "{ended}");
        assert_eq!(server.requests()[0].path, path.trim_end_matches('/'));
    }
}

#[test]
fn a_redirect_is_not_followed() {
    let server = ModelServer::start();
    let elsewhere = ModelServer::start();
    let moved = Reply::status(307, "moved").with_header("location", &elsewhere.url("/v1/x"));
    let (ended, asked) = ended_with(&place(&server, "chat/small"), &server, vec![moved]);
    assert_eq!(
        (&ended["error"]["kind"], asked),
        (&json!("provider"), 1),
        "{ended}"
    );
    assert_eq!(
        elsewhere.requests().len(),
        0,
        "the key would have gone there"
    );
}

#[test]
fn a_server_that_does_not_stream_is_read_all_the_same() {
    let server = ModelServer::start();
    let whole = json!({
        "choices": [{ "message": { "role": "assistant", "content": "all at once" }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 4, "completion_tokens": 2 },
    });
    let (ended, _) = ended_with(
        &place(&server, "chat/small"),
        &server,
        vec![Reply::whole(&whole)],
    );
    assert_eq!(ended["result"], "all at once", "{ended}");
    assert_eq!(ended["usage"]["inputTokens"], 4);
}

/// Streamed text of a broken answer is withdrawn before the answer is repeated, and tool calls of
/// an earlier answer are not repeated.
#[test]
fn g11_3_an_answer_that_breaks_comes_again_as_a_whole() {
    let server = ModelServer::start();
    let call = chat::calls(&[("a", "read", r#"{"path": "notes.txt"}"#)]);
    server.on(
        "[job]",
        [
            call.clone().cut_after(1),
            call,
            // Without a delta there is no withdrawal: the cut is held until the delta was received.
            chat::says(&["half an ", "answer"])
                .cut_after(1)
                .held_by("told"),
            chat::says(&["the whole"]).held_by("heard"),
        ],
    );
    let place = place(&server, "chat/small");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut events = client.subscribe(json!({ "deltas": true })).await;
        let spawned = client.spawn(json!({ "task": "[job] look" })).await;
        let mut heard = String::new();
        let mut resets = 0;
        while !(resets == 1 && heard == "the whole") {
            let event = events.next().await.unwrap().unwrap();
            let data = &event.data;
            match event.kind.as_str() {
                "message.delta" => {
                    heard.push_str(data["text"].as_str().unwrap());
                    server.let_go("told");
                }
                "message.reset" => {
                    assert_eq!(heard, "half an ");
                    heard.clear();
                    resets += 1;
                    server.let_go("heard");
                }
                _ => {}
            }
        }
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "the whole", "{ended}");
        assert_eq!(ended["toolCalls"], 1, "{ended}");
    });
}

#[test]
fn g11_6_an_answer_with_nothing_in_it_is_asked_for_again_and_then_no_success() {
    let server = ModelServer::start();
    let empty = chat::says(&[]);
    let replies = vec![empty.clone(), chat::says(&["at last"])];
    let (ended, asked) = ended_with(&place(&server, "chat/small"), &server, replies);
    assert_eq!((ended["result"].as_str(), asked), (Some("at last"), 2));
    let server = ModelServer::start();
    let (ended, asked) = ended_with(&place(&server, "chat/small"), &server, vec![empty; 9]);
    assert_eq!(
        (&ended["error"]["kind"], asked),
        (&json!("no_answer"), 3),
        "{ended}"
    );
}

#[test]
fn a_model_that_never_comes_to_an_end_is_stopped_at_max_loops() {
    let server = ModelServer::start();
    let call = chat::calls(&[("same", "list", "")]);
    let (ended, asked) = ended_with(&place(&server, "chat/small"), &server, vec![call; 60]);
    // The preset explore has 20. Every answer used the same call id.
    assert_eq!(
        (&ended["error"]["kind"], asked),
        (&json!("max_loops"), 20),
        "{ended}"
    );
    assert_eq!(ended["toolCalls"], 20);
    let last = server.requests().pop().unwrap().json();
    let ids: std::collections::BTreeSet<&str> = super::messages_of(&last)
        .iter()
        .filter_map(|message| message["tool_call_id"].as_str())
        .collect();
    assert_eq!(ids.len(), 19, "each call has an id of its own: {ids:?}");
}

#[test]
fn a_cancel_hangs_up_in_the_middle_of_an_answer() {
    let server = ModelServer::start();
    server.on("[job]", [chat::says(&["a", "b"]).stalls_after(1)]);
    let place = place(&server, "chat/small");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client.spawn(json!({ "task": "[job]" })).await;
        server.until_model_called(1);
        client
            .call("runs.cancel", json!({ "runId": spawned.id }))
            .await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["state"], "cancelled", "{ended}");
    });
}
