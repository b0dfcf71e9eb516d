//! Tests of requests to the Messages API.

use super::super::super::testing::{announce, assistant, calls, request, result, stored, user};
use super::*;
use crate::kernel::session::message::Block;
use crate::provider::ModelRequest;
use crate::provider::adapt::Switches;

fn call(id: &str, arguments: Value) -> Block {
    Block::ToolCall {
        id: id.to_owned(),
        name: "read".to_owned(),
        arguments,
    }
}

fn text_of(request: &ModelRequest) -> String {
    written_with(request, &Switches::default())
}

fn written_with(request: &ModelRequest, switches: &Switches) -> String {
    let base_url = "https://api.anthropic.com";
    let text = |request: &ModelRequest| {
        body(&PreparedRequest::new(request, "claude", "anthropic", base_url).with(switches))
    };
    let sent = text(request);
    assert_eq!(
        sent,
        text(&stored(request)),
        "it is the same out of the store"
    );
    sent
}

fn sent(request: &ModelRequest) -> Value {
    serde_json::from_str(&text_of(request)).unwrap()
}

#[test]
fn results_of_one_answer_stand_together_and_first() {
    let body = sent(&request(vec![
        user(1, "one"),
        calls(
            2,
            vec![
                call("a", json!({"path": "x"})),
                call("b:1", Value::from("{")),
            ],
        ),
        result(3, "a", "text", false),
        result(4, "b:1", "no JSON", true),
        announce(5, "it ended"),
        assistant(6, "done"),
        user(7, " "),
        user(8, "more"),
    ]));
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    let results = messages[2]["content"].as_array().unwrap();
    let kinds: Vec<&str> = results
        .iter()
        .map(|b| b["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["tool_result", "tool_result", "text"]);
    assert_eq!(results[0].get("is_error"), None);
    assert_eq!(results[1]["is_error"], true);
    // An id that this API would refuse is replaced by the same one in call and result.
    let made = &messages[1]["content"][1];
    assert_eq!(made["id"], results[1]["tool_use_id"]);
    assert!(made["id"].as_str().unwrap().starts_with("call_"));
    assert_eq!(made["input"], json!({"INVALID_JSON": "{"}));
    assert_eq!(
        messages[4]["content"],
        json!([{"type": "text", "text": "more"}])
    );
    assert_eq!(body["max_tokens"], 8192);
    assert_eq!(body["tools"][0]["name"], "read");
}

#[test]
fn a_conversation_that_begins_in_the_middle_begins_with_the_user() {
    let body = sent(&request(vec![assistant(5, "as I said"), user(6, "go on")]));
    assert_eq!(body["messages"][0]["role"], "user");
    assert_eq!(body["messages"][1]["role"], "assistant");
}

#[test]
fn thinking_has_its_budget_beside_the_limit_and_no_temperature() {
    let mut asked = request(vec![user(1, "hi")]);
    asked.system = "be brief".to_owned();
    asked.temperature = Some(0.5);
    asked.max_tokens = Some(1000);
    let body = sent(&asked);
    assert_eq!(
        (&body["temperature"], &body["max_tokens"]),
        (&json!(0.5), &json!(1000))
    );
    assert_eq!(body["system"][0]["text"], "be brief");
    asked.thinking = Some(Thinking::Minimal);
    let body = sent(&asked);
    assert_eq!(
        body["thinking"],
        json!({"type": "enabled", "budget_tokens": 1024})
    );
    assert_eq!(body["max_tokens"], 2024);
    assert_eq!(body.get("temperature"), None);
    asked.thinking = Some(Thinking::Off);
    assert_eq!(sent(&asked).get("thinking"), None);
}

#[test]
fn thinking_has_the_form_that_the_model_takes() {
    let mut asked = request(vec![user(1, "hi")]);
    asked.system = "be brief".to_owned();
    asked.max_tokens = Some(1000);
    let written = |level, switches: &Switches| -> Value {
        let asked = ModelRequest {
            thinking: Some(level),
            ..asked.clone()
        };
        serde_json::from_str(&written_with(&asked, switches)).unwrap()
    };
    let adaptive = Switches {
        adaptive: true,
        ..Switches::default()
    };
    for (level, effort) in [
        (Thinking::Minimal, "low"),
        (Thinking::Medium, "medium"),
        (Thinking::XHigh, "xhigh"),
        (Thinking::Max, "max"),
    ] {
        let body = written(level, &adaptive);
        assert_eq!(body["thinking"], json!({"type": "adaptive"}), "{level}");
        assert_eq!(body["output_config"], json!({"effort": effort}), "{level}");
        let budget = &written(level, &Switches::default())["thinking"]["budget_tokens"];
        assert!(body["max_tokens"].as_u64().unwrap() == 1000 + budget.as_u64().unwrap());
    }
    assert_eq!(written(Thinking::Off, &adaptive).get("thinking"), None);
    let small = Switches {
        token_cap: Some(8000),
        ..Switches::default()
    };
    let body = written(Thinking::Max, &small);
    assert_eq!(body["max_tokens"], 8000);
    assert_eq!(
        body["thinking"]["budget_tokens"], 7000,
        "there is room for an answer"
    );
    let none = Switches {
        no_thinking: true,
        no_cache_control: true,
        no_effort: true,
        ..adaptive
    };
    let body = written(Thinking::High, &none);
    assert_eq!(
        (body.get("thinking"), body.get("output_config")),
        (None, None)
    );
    assert_eq!(body["max_tokens"], 1000);
    assert_eq!(body["system"][0].get("cache_control"), None);
}

#[test]
fn g11_3_what_was_thought_goes_back_as_it_came() {
    let json = r#"[{"type":"thinking","thinking":"hm é","signature":"AbC=="},{"type": "tool_use","id":"a","name":"read","input":{"n":1.0}}]"#;
    let mut answer = calls(2, vec![call("a", json!({"n": 1.0}))]);
    let native = Block::Native {
        provider: "claude".to_owned(),
        api: "anthropic".to_owned(),
        model: "claude/x".to_owned(),
        json: json.to_owned(),
    };
    answer.content = [answer.content.into_vec(), vec![native]].concat().into();
    let asked = request(vec![user(1, "x"), answer, result(3, "a", "y", false)]);
    assert!(text_of(&asked).contains(&format!(r#""content":{json}"#)));
}

#[test]
fn g11_9_only_options_that_this_api_knows_are_sent() {
    let mut request = request(vec![user(1, "one")]);
    let options = json!({ "top_k": 5, "stop": ["x"], "stop_sequences": ["x"], "mine": 1 });
    request.options = serde_json::from_value(options).unwrap();
    let body = sent(&request);
    assert_eq!(body["top_k"], 5);
    assert_eq!(body["stop_sequences"], json!(["x"]));
    assert_eq!((&body["stop"], &body["mine"]), (&Value::Null, &Value::Null));
}

#[test]
fn nothing_that_the_api_refuses_is_sent_of_what_was_said() {
    let named = |id: &str, name: &str| Block::ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: json!({}),
    };
    let body = sent(&request(vec![
        user(1, " \n"),
        calls(2, vec![named("n", " "), named("o", "functions.read")]),
        result(3, "n", "x", true),
        result(4, "o", "\n", false),
        calls(5, vec![named("m", "")]),
        assistant(6, "\n"),
        user(7, "more"),
    ]));
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let user = |content: Value| json!({"role": "user", "content": content});
    assert_eq!(
        body["messages"],
        json!([
            user(text("(empty)")),
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "o", "name": "functions_read", "input": {}}]},
            user(json!([{"type": "tool_result", "tool_use_id": "o", "content": "(no output)"}])),
            user(text("more")),
        ])
    );
}

#[test]
fn a_turn_whose_calls_go_back_without_their_thoughts_does_not_think() {
    let answer = calls(2, vec![call("a", json!({"n": 1.0}))]);
    let mut asked = request(vec![user(1, "x"), answer, result(3, "a", "y", false)]);
    asked.thinking = Some(Thinking::Low);
    assert_eq!(sent(&asked).get("thinking"), None);
}
