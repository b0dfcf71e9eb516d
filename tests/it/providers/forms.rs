//! Request fields that a model rejects are learned from its refusal and remembered.

use serde_json::{Value, json};

use super::place;
use crate::harness::{Link, ModelServer, Reply, chat, messages, run};

fn refuses(message: &str) -> Reply {
    let error = json!({ "type": "invalid_request_error", "message": message });
    Reply::whole(&json!({ "type": "error", "error": error })).refuses(400)
}

fn says(text: &str) -> Reply {
    messages::answers(&[json!({ "type": "text", "text": text })], "end_turn")
}

async fn ended(client: &Link, params: Value) -> Value {
    let spawned = client.spawn(params).await;
    client.ended(&spawned.id).await
}

async fn learned(client: &Link, name: &str) -> String {
    let status = client.call("gateway.status", json!({})).await;
    let providers = status["providers"].as_array().unwrap();
    let own = providers.iter().find(|one| one["name"] == name).unwrap();
    own["learned"].to_string()
}

#[test]
fn a_model_that_wants_adaptive_thinking_gets_it_in_the_same_try_and_later() {
    let server = ModelServer::start();
    server.on(
        "[job]",
        [
            refuses("\"thinking.type.enabled\" is not taken. Use \"thinking.type.adaptive\"."),
            refuses("No effort level 'max' here. Supported levels: high, low, medium, xhigh."),
            says("first"),
            says("second"),
        ],
    );
    let place = place(&server, "claude/new").with("providers.claude.retries", "0");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "task": "[job]", "thinking": "max" });
        let first = ended(&client, params.clone()).await;
        assert_eq!(first["result"], "first", "{first}");
        assert_eq!(first["loops"], 1, "the same try");
        assert!(
            first["warnings"].to_string().contains("xhigh was sent"),
            "{first}"
        );
        let second = ended(&client, params).await;
        assert_eq!(second["result"], "second", "{second}");
        let known = learned(&client, "claude").await;
        assert!(
            known.contains("new: adaptive thinking, no thinking"),
            "{known}"
        );
        let status = place.command(&["status"]).output().unwrap();
        let status = String::from_utf8(status.stdout).unwrap();
        assert!(
            status.contains("learned  claude/new: adaptive thinking"),
            "{status}"
        );
    });
    let bodies: Vec<Value> = server.requests().iter().map(|one| one.json()).collect();
    assert_eq!(bodies.len(), 4);
    assert_eq!(bodies[0]["thinking"]["type"], "enabled");
    assert_eq!(bodies[1]["output_config"]["effort"], "max");
    for body in &bodies[2..] {
        assert_eq!(body["thinking"], json!({ "type": "adaptive" }));
        assert_eq!(body["output_config"], json!({ "effort": "xhigh" }));
    }
}

#[test]
fn a_field_that_is_refused_is_sent_no_more_and_other_models_still_get_it() {
    let server = ModelServer::start();
    server.on(
        "[job]",
        [
            refuses("Unrecognized request argument supplied: stream_options"),
            chat::says(&["first"]),
            chat::says(&["second"]),
            chat::says(&["third"]),
        ],
    );
    let place = place(&server, "chat/small").with("providers.chat.retries", "0");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(
            ended(&client, json!({ "task": "[job]" })).await["result"],
            "first"
        );
        assert_eq!(
            ended(&client, json!({ "task": "[job]" })).await["result"],
            "second"
        );
        let other = json!({ "task": "[job]", "model": "chat/large" });
        assert_eq!(ended(&client, other).await["result"], "third");
        assert!(
            learned(&client, "chat")
                .await
                .contains("small: no stream_options")
        );
    });
    let sent: Vec<bool> = server
        .requests()
        .iter()
        .map(|one| one.json().get("stream_options").is_some())
        .collect();
    assert_eq!(sent, [true, false, false, true]);
}

/// A refusal that names no optional field is reported unchanged, and so is one that repeats
/// whatever is left out.
#[test]
fn a_refusal_of_something_else_is_tried_once() {
    let server = ModelServer::start();
    server.on("[job]", vec![refuses("messages.0: a role is missing"); 3]);
    let place = place(&server, "claude/new");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let one = ended(&client, json!({ "task": "[job]", "thinking": "high" })).await;
        assert_eq!(one["error"]["kind"], "provider_request", "{one}");
    });
    assert_eq!(server.requests().len(), 1);
}
