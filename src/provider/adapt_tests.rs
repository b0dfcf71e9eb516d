//! Tests of what is learned from refusals. The JSON shapes are those of real servers; the wording
//! is not.

use serde_json::{Value, json};

use super::*;
use crate::provider::testing::{request, user};

/// A request with all optional fields set.
fn asked(level: Option<Thinking>) -> ModelRequest {
    ModelRequest {
        thinking: level,
        temperature: Some(0.2),
        max_tokens: Some(32_000),
        ..request(vec![user(1, "hello")])
    }
}

fn learn(
    switches: &Switches,
    sent: &Value,
    status: u16,
    body: &Value,
    level: Option<Thinking>,
) -> Option<RequestAdaptation> {
    let text = sent.to_string();
    let sent = SentBody::new(&text, sent.get("system").is_some());
    switches.adapted(
        &Refusal::read(status, &body.to_string()),
        &sent,
        &asked(level),
    )
}

fn learned(sent: &Value, body: &Value, level: Option<Thinking>) -> Switches {
    learn(&Switches::default(), sent, 400, body, level)
        .unwrap_or_else(|| panic!("nothing is learned from {body}"))
        .switches
}

fn error(message: &str) -> Value {
    json!({"error": {"message": message, "type": "invalid_request_error"}})
}

#[test]
fn an_optional_field_that_is_named_is_left_out() {
    let sent = json!({"model": "m", "stream": true, "stream_options": {"include_usage": true},
        "temperature": 0.2, "max_tokens": 32_000, "reasoning_effort": "high"});
    for body in [
        error("Unrecognized request argument supplied: stream_options"),
        json!({"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}),
        json!({"error": {"param": "stream_options", "message": "not taken here"}}),
    ] {
        assert!(learned(&sent, &body, None).no_stream_options, "{body}");
    }
    let temperature =
        error("Unsupported value: 'temperature' does not support 0.2; only the default (1)");
    assert!(learned(&sent, &temperature, None).no_temperature);
    let effort = error("Unrecognized request argument supplied: reasoning_effort");
    assert!(learned(&sent, &effort, Some(Thinking::High)).no_thinking);
    let stream = json!({"error": {"param": "stream", "code": "unsupported_value", "message": "must be verified to stream this model"}});
    assert!(learned(&sent, &stream, None).no_stream);
    // A wrong value set by the user is for the user to correct.
    let range = error("temperature: must be between 0 and 1");
    assert_eq!(learn(&Switches::default(), &sent, 400, &range, None), None);
    // A field that was not sent cannot be left out.
    let bare = json!({"model": "m"});
    let refused = error("Unknown field: stream_options");
    assert_eq!(
        learn(&Switches::default(), &bare, 400, &refused, None),
        None
    );
    assert_eq!(
        learn(&Switches::default(), &sent, 401, &refused, None),
        None
    );
}

#[test]
fn the_limit_of_an_answer_gets_its_other_name_or_a_smaller_value() {
    let sent = json!({"max_tokens": 32_000});
    let other = error(
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    );
    let first = learned(&sent, &other, None);
    assert!(first.other_limit && !first.no_limit);
    let sent_new = json!({"max_completion_tokens": 32_000});
    let back = error("Unknown field: max_completion_tokens");
    let second = learn(&first, &sent_new, 422, &back, None).unwrap();
    assert!(second.switches.no_limit, "neither name is taken");
    for body in [
        error("max_tokens is too large: 32000. This model takes at most 16384 completion tokens"),
        error("Invalid max_tokens value, the valid range of max_tokens is [1, 16384]"),
        error("`max_tokens` must be less than or equal to `16384`"),
    ] {
        let next = learned(&sent, &body, None);
        assert_eq!(
            (next.token_cap, next.limited(32_000)),
            (Some(16_384), 16_384),
            "{body}"
        );
    }
    let required = json!({"max_tokens": 32_000, "system": []});
    let capped = error(
        "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for the model",
    );
    assert_eq!(learned(&required, &capped, None).token_cap, Some(8192));
    // The remaining context window is a different number for the next request.
    let rest = error(
        "'max_tokens' is too large: 32000. The maximum context length is 32768 tokens and the request has 2000 input tokens",
    );
    let change = learn(&Switches::default(), &sent, 400, &rest, None).unwrap();
    assert!(change.once && change.switches.no_limit);
}

#[test]
fn a_level_that_is_refused_becomes_the_nearest_that_is_taken() {
    let sent = json!({"reasoning_effort": "max"});
    let listed =
        error("Invalid value: 'max'. Supported values are: 'low', 'medium', 'high' and 'xhigh'.");
    let next = learned(&sent, &listed, Some(Thinking::Max));
    assert_eq!(next.level(Thinking::Max), Some(Thinking::XHigh));
    assert_eq!(next.level(Thinking::Minimal), Some(Thinking::Low));
    let single = error("reasoning_effort: the value 'max' is not supported");
    let next = learned(&sent, &single, Some(Thinking::Max));
    assert_eq!(next.level(Thinking::Max), Some(Thinking::XHigh));
    let words = next.warnings(&asked(Some(Thinking::Max)));
    assert!(
        words
            .iter()
            .any(|words| words.contains("thinking max: xhigh was sent")),
        "{words:?}"
    );
    assert_eq!(next.level(Thinking::Off), None);
}

#[test]
fn thinking_goes_from_a_budget_to_an_effort_and_from_there_to_nothing() {
    let sent = json!({"thinking": {"type": "enabled", "budget_tokens": 4096}, "max_tokens": 9, "system": []});
    let refused = error(
        "\"thinking.type.enabled\" is not taken by this model. Use \"thinking.type.adaptive\" and \"output_config.effort\".",
    );
    let adaptive = learned(&sent, &refused, Some(Thinking::XHigh));
    assert!(adaptive.adaptive && !adaptive.no_thinking);
    // A refused thinking block of an earlier answer is a different problem.
    let block = error("messages.1.content.0: a final answer must begin with a thinking block");
    let untouched = learn(
        &Switches::default(),
        &sent,
        400,
        &block,
        Some(Thinking::XHigh),
    );
    assert_eq!(untouched, None);

    let sent = json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}, "system": []});
    let level =
        error("This model takes no effort level 'xhigh'. Supported levels: high, low, medium.");
    let next = learn(&adaptive, &sent, 400, &level, Some(Thinking::XHigh))
        .unwrap()
        .switches;
    assert_eq!(next.level(Thinking::XHigh), Some(Thinking::High));
    let effort = error("output_config: Extra inputs are not permitted");
    let next = learn(&adaptive, &sent, 400, &effort, Some(Thinking::XHigh))
        .unwrap()
        .switches;
    assert!(next.no_effort && !next.no_thinking);
    let none = error("adaptive thinking is not supported on this model");
    let next = learn(&adaptive, &sent, 400, &none, Some(Thinking::XHigh))
        .unwrap()
        .switches;
    assert!(next.no_thinking);
    let cache = error("system.0.cache_control: Extra inputs are not permitted");
    let sent = json!({"system": [{"text": "x", "cache_control": {}}]});
    assert!(learned(&sent, &cache, None).no_cache_control);
}

#[test]
fn a_refusal_of_the_same_form_is_not_answered_with_it_again() {
    let sent = json!({"stream_options": {}, "reasoning_effort": "high", "max_tokens": 32_000, "temperature": 1});
    let mut switches = Switches::default();
    let body =
        error("none of stream_options, reasoning_effort, max_tokens and temperature is supported");
    let mut changes = 0;
    while let Some(change) = learn(&switches, &sent, 400, &body, Some(Thinking::High)) {
        assert_ne!(change.switches, switches);
        switches = change.switches;
        changes += 1;
        assert!(changes < 20, "{switches:?}");
    }
}
