//! The OpenAI-compatible API: the form of its answers, conversations, repeats, disconnects and
//! restarts. `outside` has the official clients.

mod client;
mod durable;
mod outside;

pub(crate) use client::{CHAT, Sent};

use serde_json::{Value, json};

use self::client::{RESPONSES, Reply, get, post};
use crate::harness::{Place, Script, calls, eventually, fails, run, says};

fn place() -> Place {
    let grep = || calls("grep", json!({ "pattern": "alpha" }));
    Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[look]", [grep(), says("it was found")])
            .on("[more]", [says("more is said")])
            .on("[held]", [says("it was held").held_by("go")])
            .on("[pieces]", [says("one two three").in_pieces(4, 1, "go")])
            .on("[fail]", [fails("the model is down")]),
    )
}

fn chat(text: &str) -> Value {
    json!({ "model": "abide/build", "messages": [{ "role": "user", "content": text }] })
}

fn response(text: &str) -> Value {
    json!({ "model": "abide/build", "input": text })
}

/// The joined text of the chunks of a stream, in this field of their deltas.
fn streamed(reply: &Reply, field: &str) -> String {
    let events = reply.events();
    let deltas = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"][field].as_str());
    deltas.collect()
}

async fn at_work(place: &Place, rule: &str) {
    eventually("the model call", async || {
        let call = (rule.to_owned(), 0);
        place.model_calls().contains_key(&call).then_some(())
    })
    .await;
}

#[test]
fn agents_are_models_and_answer_chats_streamed_or_not() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let models = get(&daemon, "/v1/models").await.json();
        let ids: Vec<&str> = models["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].as_str().unwrap())
            .collect();
        assert!(ids.contains(&"abide/build"), "{ids:?}");
        assert_eq!(
            get(&daemon, "/v1/models/abide/build").await.json()["id"],
            "abide/build"
        );
        assert_eq!(get(&daemon, "/v1/models/abide/nope").await.status, 404);
        let whole = post(&daemon, CHAT, "", chat("[look]")).await;
        let answer = whole.json();
        assert_eq!(answer["object"], "chat.completion", "{answer}");
        let message = &answer["choices"][0]["message"];
        assert_eq!(message["content"], "it was found");
        assert!(
            message["reasoning_content"]
                .as_str()
                .unwrap()
                .starts_with("grep ")
        );
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        let mut request = chat("[look]");
        request["stream"] = true.into();
        request["stream_options"] = json!({ "include_usage": true });
        let stream = post(&daemon, CHAT, "", request).await;
        assert!(
            stream
                .header("content-type")
                .starts_with("text/event-stream")
        );
        assert_eq!(streamed(&stream, "content"), "it was found");
        assert!(
            streamed(&stream, "reasoning_content").contains("grep "),
            "{stream:?}"
        );
        assert!(stream.body.trim_end().ends_with("data: [DONE]"));
        let events = stream.events();
        assert!(events.last().unwrap()["usage"]["total_tokens"].is_u64());
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn tool_calls_are_hidden_if_the_setting_says_so_also_after_a_reload() {
    run(async {
        let mut place = place().with("openai.tool_calls", "\"hidden\"");
        let daemon = place.start().await;
        let answer = post(&daemon, CHAT, "", chat("[look]")).await.json();
        assert!(
            answer["choices"][0]["message"]
                .get("reasoning_content")
                .is_none(),
            "{answer}"
        );
        let mut request = chat("[look]");
        request["stream"] = true.into();
        let stream = post(&daemon, CHAT, "", request).await;
        assert_eq!(streamed(&stream, "reasoning_content"), "");
        assert_eq!(streamed(&stream, "content"), "it was found");
        place.set("openai.tool_calls", "\"reasoning\"");
        daemon
            .client()
            .await
            .call("gateway.reload", json!({}))
            .await;
        let answer = post(&daemon, RESPONSES, "", response("[look]"))
            .await
            .json();
        assert_eq!(answer["output"][0]["type"], "reasoning", "{answer}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_conversation_continues_by_response_by_header_and_by_metadata() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let first = post(&daemon, RESPONSES, "", response("[a]")).await;
        let session = first.header("x-abide-session");
        let first = first.json();
        assert_eq!(first["status"], "completed");
        assert_eq!(first["conversation"]["id"], session);
        let mut second = response("[more]");
        second["previous_response_id"] = first["id"].clone();
        let second = post(&daemon, RESPONSES, "", second).await;
        assert_eq!(second.header("x-abide-session"), session);
        assert_eq!(second.json()["previous_response_id"], first["id"]);
        let header = format!("x-abide-session: {session}\r\n");
        let mut third = chat("[a]");
        third["messages"] = json!([
            { "role": "user", "content": "[a]" },
            { "role": "assistant", "content": "a is done" },
            { "role": "user", "content": "[more] and more" },
        ]);
        let third = post(&daemon, CHAT, &header, third).await;
        assert_eq!(third.header("x-abide-session"), session);
        let mut fourth = chat("[more] at last");
        fourth["metadata"] = json!({ "abide_session": session });
        let fourth = post(&daemon, CHAT, "", fourth).await;
        assert_eq!(fourth.header("x-abide-session"), session);
        let client = daemon.client().await;
        let history = client
            .call("sessions.history", json!({ "sessionKey": session }))
            .await;
        let messages = history["messages"].as_array().unwrap().iter();
        let asked: Vec<&str> = messages
            .filter(|one| one["role"] == "user")
            .map(|one| one["content"][0]["text"].as_str().unwrap())
            .collect();
        // What the session knows is not told again.
        assert_eq!(
            asked,
            ["[a]", "[more]", "[more] and more", "[more] at last"]
        );
        // Another agent is another conversation.
        let mut other = response("[a]");
        other["model"] = "abide/explore".into();
        other["previous_response_id"] = first["id"].clone();
        let refused = post(&daemon, RESPONSES, "", other).await;
        assert_eq!(refused.status, 400);
        assert_eq!(refused.json()["error"]["code"], "model_mismatch");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn errors_have_the_form_of_the_openai_api() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let with = |field: &str, value: Value| {
            let mut request = chat("[a]");
            request[field] = value;
            request
        };
        let image = json!([{ "role": "user", "content": [{ "type": "image_url" }] }]);
        for (request, status, code, param) in [
            (
                with("model", json!("abide/nope")),
                404,
                "model_not_found",
                json!("model"),
            ),
            (
                with("tools", json!([{}])),
                400,
                "unsupported_parameter",
                json!("tools"),
            ),
            (
                with("n", json!(2)),
                400,
                "unsupported_parameter",
                json!("n"),
            ),
            (
                with("messages", json!([])),
                400,
                "invalid_value",
                json!("messages"),
            ),
            (
                with("messages", image),
                400,
                "unsupported_value",
                json!("messages[0].content"),
            ),
            (
                with("messages", json!(7)),
                400,
                "invalid_value",
                json!("messages"),
            ),
            (chat("[fail]"), 500, "provider", json!(null)),
        ] {
            let refused = post(&daemon, CHAT, "", request).await;
            let error = &refused.json()["error"];
            assert_eq!(refused.status, status, "{refused:?}");
            assert_eq!(error["code"], code, "{refused:?}");
            assert_eq!(error["param"], param, "{refused:?}");
            assert!(error["message"].is_string() && error["type"].is_string());
            // The clients would otherwise start the run again.
            assert_eq!(refused.header("x-should-retry"), "false");
        }
        let mut failing = chat("[fail]");
        failing["stream"] = true.into();
        let stream = post(&daemon, CHAT, "", failing).await;
        assert_eq!(stream.status, 200);
        assert!(stream.events().last().unwrap()["error"]["message"].is_string());
        let failed = post(&daemon, RESPONSES, "", response("[fail]"))
            .await
            .json();
        assert_eq!(failed["status"], "failed");
        assert_eq!(failed["error"]["code"], "server_error");
        let stray = post(&daemon, "/v1/embeddings", "", json!({})).await;
        assert_eq!(stray.status, 404);
        assert_eq!(stray.json()["error"]["type"], "not_found_error");
        assert_eq!(daemon.stop().await, 0);
    });
}
