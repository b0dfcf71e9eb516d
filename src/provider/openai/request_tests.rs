//! Tests of requests to Chat Completions servers.

use super::super::super::testing::{assistant, calls, request, result, stored, user};
use super::*;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::session::message::Block;
use crate::provider::adapt::Switches;

fn sent(messages: Vec<Message>) -> Value {
    sent_to("https://example.org/v1", &mut request(messages))
}

fn sent_to(base_url: &str, request: &mut crate::provider::ModelRequest) -> Value {
    written_with(base_url, request, &Switches::default())
}

fn written_with(
    base_url: &str,
    request: &crate::provider::ModelRequest,
    switches: &Switches,
) -> Value {
    let text = |request: &crate::provider::ModelRequest| {
        body(&PreparedRequest::new(request, "mine", "openai", base_url).with(switches))
    };
    let sent = text(request);
    assert_eq!(
        sent,
        text(&stored(request)),
        "it is the same out of the store"
    );
    serde_json::from_str(&sent).unwrap()
}

fn call(id: &str, arguments: Value) -> Block {
    Block::ToolCall {
        id: id.to_owned(),
        name: "read".to_owned(),
        arguments,
    }
}

fn native(provider: &str, api: &str, json: &str) -> Block {
    Block::Native {
        provider: provider.to_owned(),
        api: api.to_owned(),
        model: "mine/m".to_owned(),
        json: json.to_owned(),
    }
}

#[test]
fn a_conversation_becomes_messages_in_order() {
    let broken = Value::from("{\"path\": ");
    let body = sent(vec![
        user(1, "one"),
        user(2, "two"),
        calls(3, vec![call("a", json!({"path": "x"})), call("b", broken)]),
        result(4, "a", "text", false),
        result(5, "b", "no JSON", true),
        assistant(6, "done"),
        user(7, "more"),
    ]);
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        ["user", "assistant", "tool", "tool", "assistant", "user"]
    );
    assert_eq!(messages[0]["content"], "one\n\ntwo");
    let made = &messages[1]["tool_calls"];
    assert_eq!(made[0]["function"]["arguments"], r#"{"path":"x"}"#);
    // Servers parse the arguments they get back: they must be JSON whatever the model wrote.
    let again = made[1]["function"]["arguments"].as_str().unwrap();
    let again: Value = serde_json::from_str(again).unwrap();
    assert_eq!(again["INVALID_JSON"], "{\"path\": ");
    assert_eq!(messages[3]["content"], "The call failed: no JSON");
    assert_eq!(messages[3]["tool_call_id"], "b");
    assert_eq!(body["stream_options"]["include_usage"], true);
    assert_eq!(body["tools"][0]["function"]["name"], "read");
    for unset in ["temperature", "max_tokens", "reasoning_effort"] {
        assert_eq!(body.get(unset), None, "{unset}");
    }
}

#[test]
fn what_is_set_is_sent_under_the_name_that_the_server_knows() {
    let mut asked = request(vec![user(1, "hi")]);
    asked.system = "be brief".to_owned();
    asked.tools.clear();
    asked.thinking = Some(Thinking::Low);
    asked.temperature = Some(0.3);
    asked.max_tokens = Some(100);
    let body = sent_to("http://127.0.0.1:1/v1", &mut asked);
    assert_eq!(
        body["messages"][0],
        json!({"role": "system", "content": "be brief"})
    );
    assert_eq!(body["reasoning_effort"], "low");
    assert_eq!(
        (&body["temperature"], &body["max_tokens"]),
        (&json!(0.3), &json!(100))
    );
    assert_eq!(body.get("tools"), None, "some servers refuse an empty list");
    let body = sent_to("https://api.openai.com/v1", &mut asked);
    assert_eq!(body["max_completion_tokens"], 100);
    assert_eq!(body.get("max_tokens"), None);
    asked.thinking = Some(Thinking::Off);
    let body = sent_to("http://127.0.0.1:1/v1", &mut asked);
    assert_eq!(body.get("reasoning_effort"), None);
}

#[test]
fn what_a_model_was_found_not_to_take_is_not_sent() {
    let mut asked = request(vec![user(1, "hi")]);
    asked.thinking = Some(Thinking::Max);
    asked.temperature = Some(0.3);
    asked.max_tokens = Some(100);
    let body = written_with("http://127.0.0.1:1/v1", &asked, &Switches::default());
    assert_eq!(body["reasoning_effort"], "max");
    let switches = Switches {
        no_stream_options: true,
        no_stream: true,
        no_temperature: true,
        other_limit: true,
        token_cap: Some(64),
        refused: [Thinking::Max as u8].into(),
        ..Switches::default()
    };
    let body = written_with("http://127.0.0.1:1/v1", &asked, &switches);
    let fields: Vec<&str> = body
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        fields,
        [
            "model",
            "messages",
            "tools",
            "reasoning_effort",
            "max_completion_tokens"
        ]
    );
    assert_eq!(
        (&body["reasoning_effort"], &body["max_completion_tokens"]),
        (&json!("xhigh"), &json!(64))
    );
    let switches = Switches {
        no_thinking: true,
        no_limit: true,
        ..Switches::default()
    };
    let body = written_with("http://127.0.0.1:1/v1", &asked, &switches);
    assert_eq!(body.get("reasoning_effort"), None);
    assert_eq!(body.get("max_tokens"), None);
}

#[test]
fn an_answer_goes_back_to_its_own_provider_as_it_came() {
    // Whitespace, field order and number format differ from what this program would write.
    let json =
        r#"{"role": "assistant",  "z":1.50, "content":"hi" ,"reasoning_details":[{"a":1e3}]}"#;
    let said = |block: Block| {
        let mut message = assistant(2, "hi");
        message.content = [message.content.into_vec(), vec![block]].concat().into();
        let request = request(vec![user(1, "x"), message]);
        body(&PreparedRequest::new(
            &request,
            "mine",
            "openai",
            "http://127.0.0.1:1/v1",
        ))
    };
    assert!(said(native("mine", "openai", json)).contains(json));
    for foreign in [
        native("other", "openai", json),
        native("mine", "anthropic", json),
    ] {
        let body = said(foreign);
        assert!(!body.contains("reasoning_details") && body.contains(r#""content":"hi""#));
    }
}

#[test]
fn g11_9_an_agents_options_are_sent_and_those_of_other_apis_are_not() {
    let mut request = request(vec![user(1, "one")]);
    let options = json!({
        "top_p": 0.5, "stop": ["x"], "stop_sequences": ["x"], "guided_json": {},
    });
    request.options = serde_json::from_value(options).unwrap();
    let body = sent_to("https://example.org/v1", &mut request);
    assert_eq!(body["top_p"], 0.5);
    assert_eq!(body["stop"], json!(["x"]));
    assert_eq!(body["guided_json"], json!({}));
    assert_eq!(body["stop_sequences"], Value::Null);
}

#[test]
fn nothing_that_servers_refuse_is_sent_of_what_was_said() {
    let mut nameless = call("n", json!({}));
    if let Block::ToolCall { name, .. } = &mut nameless {
        name.clear();
    }
    let mut odd = call("o", json!({}));
    if let Block::ToolCall { name, .. } = &mut odd {
        "functions.read".clone_into(name);
    }
    let body = sent(vec![
        user(1, " \n"),
        calls(2, vec![nameless.clone(), odd]),
        result(3, "n", "x", true),
        result(4, "o", "", false),
        calls(5, vec![nameless]),
        assistant(6, "\n"),
        user(7, "more"),
    ]);
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": "(empty)"},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "o", "type": "function",
                 "function": {"name": "functions_read", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "o", "content": "(no output)"},
            {"role": "user", "content": "more"},
        ])
    );
}
