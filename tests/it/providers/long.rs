//! Transcripts that are too long, by the context window or by the provider's refusal.

use serde_json::{Value, json};

use super::{messages_of, place};
use crate::harness::{Link, ModelServer, Place, Reply, chat, run};

/// Occurs in every summary request and in no other request.
const SUMMARY: &str = "so that another agent can continue";

fn too_long() -> Reply {
    let body = json!({ "error": {
        "message": "This model's maximum context length is 8192 tokens.",
        "type": "invalid_request_error", "code": "context_length_exceeded",
    }});
    Reply::whole(&body).refuses(400)
}

/// An answer with a provider count of `tokens` tokens.
fn counted(text: &str, tokens: u64) -> Reply {
    let piece = json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    let usage = json!({ "choices": [],
        "usage": { "prompt_tokens": tokens, "completion_tokens": 10 } });
    let events = [piece, end, usage].map(|event| event.to_string());
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    chat::events(&[events[0], events[1], events[2], "[DONE]"])
}

fn agent(place: Place, execution: &str) -> Place {
    let fields = format!("mode: primary\ntools: [list]\n{execution}");
    place.with_agent("long", &fields)
}

/// Sends these messages in turn in one session; returns the last run.
async fn talk(client: &Link, messages: &[&str]) -> Value {
    let mut last = Value::Null;
    for message in messages {
        let params =
            json!({ "sessionKey": "agent:long:desk", "agent": "long", "message": message });
        let turn = client.call("agent.run", params).await;
        last = client.ended(turn["runId"].as_str().unwrap()).await;
    }
    last
}

async fn kinds(client: &Link) -> Vec<String> {
    let params = json!({ "sessionKey": "agent:long:desk" });
    let history = client.call("sessions.history", params).await;
    let messages = history["messages"].as_array().unwrap();
    let kinds = messages.iter().map(|one| one["kind"].as_str().unwrap());
    kinds.map(str::to_owned).collect()
}

/// A long answer.
fn long() -> String {
    format!("old {}", "x".repeat(3000))
}

#[test]
fn g11_7_what_the_provider_finds_too_long_is_shortened_once_and_asked_again() {
    let server = ModelServer::start();
    let old = long();
    server.on(SUMMARY, [chat::says(&["the gist of it"])]);
    server.on(
        "[job]",
        [chat::says(&[&old]), too_long(), chat::says(&["done"])],
    );
    let place = agent(place(&server, "chat/small"), "");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let ended = talk(&client, &["[job] first", "[job] second"]).await;
        assert_eq!(ended["result"], "done", "{ended}");
        assert_eq!(
            kinds(&client).await,
            ["text", "text", "text", "compaction", "text"]
        );
        let steps = client
            .call("runs.steps", json!({ "runId": ended["runId"] }))
            .await;
        let steps = steps["steps"].as_array().unwrap();
        let of: Vec<(&str, &str)> = steps
            .iter()
            .map(|step| {
                (
                    step["kind"].as_str().unwrap(),
                    step["state"].as_str().unwrap(),
                )
            })
            .collect();
        let expected = [
            ("model", "failed"),
            ("compaction", "done"),
            ("model", "done"),
        ];
        assert_eq!(of, expected, "{steps:?}");
    });
    let requests = server.requests();
    let last = requests.last().unwrap().json();
    let text = last.to_string();
    assert!(
        text.contains("the gist of it") && !text.contains(&old),
        "{text}"
    );
    let asked = messages_of(&last).last().unwrap()["content"]
        .as_str()
        .unwrap();
    assert!(asked.ends_with("summary>>>\n\n[job] second"), "{asked}");
    // The summary request is based on the agent's own prompt too.
    let summary = requests
        .iter()
        .find(|one| one.body.contains(SUMMARY))
        .unwrap();
    let prompt = messages_of(&last)[0]["content"].as_str().unwrap();
    let base = prompt.split("\n\n---").next().unwrap();
    assert!(
        summary.json()["messages"][0]["content"]
            .as_str()
            .unwrap()
            .starts_with(base)
    );
}

#[test]
fn a_conversation_that_is_too_long_is_shortened_whatever_the_words() {
    let gemini = json!([{ "error": { "code": 400, "status": "INVALID_ARGUMENT", "message":
        "The input token count (1189042) is above the maximum number of tokens allowed (1048576)." } }]);
    for body in [
        json!({ "error": { "code": "1261", "message": "Prompt exceeds max length" } }),
        json!({ "error": { "type": "invalid_request_error", "message":
            "Invalid request: it is over the model token limit: 8192 (requested: 12345)" } }),
        gemini,
        json!({ "error": { "code": 400, "message": "Provider returned error", "metadata":
            { "raw": "{\"error\":{\"message\":\"prompt is too long: 9 tokens > 8\"}}" } } }),
    ] {
        let server = ModelServer::start();
        server.on(SUMMARY, [chat::says(&["the gist of it"])]);
        let refused = Reply::whole(&body).refuses(400);
        server.on(
            "[job]",
            [chat::says(&[&long()]), refused, chat::says(&["done"])],
        );
        let place = agent(place(&server, "chat/small"), "");
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let ended = talk(&client, &["[job] first", "[job] second"]).await;
            assert_eq!(ended["result"], "done", "{body}: {ended}");
            assert!(
                kinds(&client).await.contains(&"compaction".to_owned()),
                "{body}"
            );
        });
    }
}

#[test]
fn a_small_request_that_is_refused_as_too_long_ends_with_the_providers_words() {
    let server = ModelServer::start();
    let words = "Input is too long for requested model.";
    server.on("[job]", vec![Reply::status(400, words); 3]);
    let place = agent(place(&server, "chat/small"), "");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let ended = talk(&client, &["[job] first"]).await;
        let message = ended["error"]["message"].as_str().unwrap();
        assert_eq!(ended["error"]["kind"], "context_overflow", "{ended}");
        assert!(
            message.contains(words) && message.contains("HTTP 400"),
            "{message}"
        );
        assert!(!message.contains("more than sessions.window"), "{message}");
        assert_eq!(server.requests().len(), 1);
    });
}

#[test]
fn a_limit_for_a_span_of_time_never_shortens_the_conversation() {
    for status in [400, 429] {
        let server = ModelServer::start();
        let words = "Too many tokens per day, please wait before trying again.";
        server.on(
            "[job]",
            [
                chat::says(&[&long()]),
                Reply::status(status, words),
                chat::says(&["done"]),
            ],
        );
        let place = agent(place(&server, "chat/small"), "");
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let ended = talk(&client, &["[job] first", "[job] second"]).await;
            assert_eq!(ended["result"], "done", "{status}: {ended}");
            assert_eq!(kinds(&client).await, ["text"; 4], "{status}");
        });
    }
}

#[test]
fn g11_7_what_stays_too_long_ends_with_one_clear_error() {
    for (execution, overflow, tries, why) in [
        ("", "summarize", 2, "even after compaction"),
        (
            "execution: {compression: false}",
            "summarize",
            1,
            "compression = false",
        ),
        ("", "none", 1, "sessions.overflow"),
    ] {
        let server = ModelServer::start();
        let old = long();
        server.on(SUMMARY, [chat::says(&["the gist of it"])]);
        server.on(
            "[job]",
            [chat::says(&[&old]), too_long(), too_long(), too_long()],
        );
        let place =
            place(&server, "chat/small").with("sessions.overflow", &format!("{overflow:?}"));
        let place = agent(place, execution);
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let ended = talk(&client, &["[job] first", "[job] second"]).await;
            assert_eq!(ended["error"]["kind"], "context_overflow", "{ended}");
            let message = ended["error"]["message"].as_str().unwrap();
            assert!(
                message.contains(why) && message.contains("sessions.reset"),
                "{message}"
            );
        });
        let asked = server.requests();
        let asked = asked
            .iter()
            .filter(|one| !one.body.contains(SUMMARY))
            .count();
        assert_eq!(asked, 1 + tries, "{why}");
    }
}

#[test]
fn a_summary_that_is_no_shorter_leaves_the_session_as_it_is_and_is_paid_for() {
    let server = ModelServer::start();
    server.on(SUMMARY, [counted(&long(), 700)]);
    server.on("[job]", [chat::says(&["short"]), chat::says(&["on"])]);
    let place = agent(place(&server, "chat/small"), "");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        talk(&client, &["[job] one"]).await;
        let params = json!({ "sessionKey": "agent:long:desk" });
        let asked = client.call("sessions.compact", params).await;
        let run = asked["runId"].as_str().unwrap();
        let ended = client.ended(run).await;
        assert_eq!(ended["state"], "ok", "{ended}");
        assert_eq!(ended["usage"]["inputTokens"], 700, "{ended}");
        let steps = client.call("runs.steps", json!({ "runId": run })).await;
        let step = &steps["steps"][0];
        assert_eq!(step["kind"], "compaction", "{step}");
        assert_eq!(step["model"], "chat/small", "{step}");
        assert_eq!(step["usage"]["outputTokens"], 10, "{step}");
        let told = step["resultSummary"].as_str().unwrap();
        assert!(told.starts_with("not compacted: "), "{told}");
        let models = json!({ "by": "model", "agent": "long" });
        let summary = client.call("usage.summary", models).await;
        // Includes the turn before, for which the provider counted 11.
        assert_eq!(summary["rows"][0]["inputTokens"], 711, "{summary}");
        assert_eq!(summary["rows"][0]["modelCalls"], 2, "{summary}");
        assert_eq!(kinds(&client).await, ["text", "text"]);
        assert_eq!(talk(&client, &["[job] two"]).await["result"], "on");
    });
}

#[test]
fn what_the_provider_has_counted_is_held_against_the_window() {
    for overflow in ["summarize", "slide"] {
        let server = ModelServer::start();
        let old = long();
        server.on(SUMMARY, [chat::says(&["the gist of it"])]);
        server.on("[job]", [counted(&old, 9000), chat::says(&["done"])]);
        let place = place(&server, "chat/small")
            .with("sessions.window", "8000")
            .with("sessions.overflow", &format!("{overflow:?}"));
        let place = agent(place, "");
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let ended = talk(&client, &["[job] first", "[job] second"]).await;
            assert_eq!(ended["result"], "done", "{ended}");
        });
        let requests = server.requests();
        let (summaries, last) = (requests.len() - 2, requests.last().unwrap());
        assert_eq!(
            summaries,
            usize::from(overflow == "summarize"),
            "{overflow}"
        );
        assert!(!last.body.contains(&old), "{overflow}");
        let gist = last.body.contains("the gist of it");
        assert_eq!(gist, overflow == "summarize");
        assert_eq!(last.body.contains("are omitted here"), !gist);
    }
}
