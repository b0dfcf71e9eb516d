//! Tests of parsing provider errors.

use serde_json::json;

use super::*;

#[test]
fn an_error_is_found_however_it_is_wrapped() {
    let inner = r#"{"error":{"type":"invalid_request_error","message":"inner words"}}"#;
    for (body, text, name) in [
        (
            json!({"error": {"message": "plain", "code": "a_code"}}),
            "plain",
            "a_code",
        ),
        (
            json!([{"error": {"message": "in a list", "status": "INVALID_ARGUMENT"}}]),
            "in a list",
            "invalid_argument",
        ),
        (
            json!({"object": "error", "message": "flat", "type": "BadRequestError"}),
            "flat",
            "badrequesterror",
        ),
        (
            json!({"detail": [{"loc": ["body", "x"], "msg": "extra", "type": "extra_forbidden"}]}),
            "extra",
            "extra_forbidden",
        ),
        (
            json!({"error": {"message": "Provider returned error", "metadata": {"raw": inner}}}),
            "Provider returned error: inner words",
            "invalid_request_error",
        ),
        (
            json!({"message": inner}),
            "inner words",
            "invalid_request_error",
        ),
        (
            json!({"base_resp": {"status_code": 1008, "status_msg": "no money"}}),
            "no money",
            "1008",
        ),
        (
            json!({"__type": "ThrottlingException", "Message": "slow"}),
            "slow",
            "throttlingexception",
        ),
    ] {
        let refusal = Refusal::read(400, &body.to_string());
        assert_eq!(refusal.text, text, "{body}");
        assert!(refusal.names(name), "{body}: {refusal:?}");
    }
    assert_eq!(Refusal::read(400, "<html>\n no").text, "<html> no");
    assert_eq!(Refusal::read(500, "").text, "");
}

#[test]
fn the_cause_and_the_wait_are_found_where_they_are_named() {
    let refusal = Refusal::read(
        422,
        r#"{"detail":[{"loc":["body","stream_options"],"msg":"no"}]}"#,
    );
    assert!(refusal.is_about("stream_options") && !refusal.is_about("stream"));
    let refusal = Refusal::read(
        400,
        r#"{"error":{"param":"thinking.budget_tokens","message":"m"}}"#,
    );
    assert!(refusal.is_about("thinking") && refusal.is_about("budget_tokens"));
    let body = json!({"error": {"code": 429, "message": "m", "details": [
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "33.5s"}]}});
    let refusal = Refusal::read(429, &body.to_string());
    assert_eq!(refusal.wait, Some(Duration::from_millis(33_500)));
}

#[test]
fn numbers_are_lengths_and_not_parts_of_names() {
    let of = |text: &str| Refusal::read(400, text).numbers();
    assert_eq!(
        of("gpt-4o has 128,000 tokens, you sent 131072"),
        [128_000, 131_072]
    );
    assert_eq!(
        of("the window is 200k; llama-3.1-8b: 1_048_576"),
        [1_048_576]
    );
    assert_eq!(of("188240 + 21333 > 200000"), [188_240, 21_333, 200_000]);
    assert_eq!(of("none"), [0_u64; 0]);
    let refusal = Refusal::read(429, "tokens per min: Limit 30000, Requested 45,000.");
    assert_eq!(refusal.number_behind("limit"), Some(30_000));
    assert_eq!(refusal.number_behind("requested"), Some(45_000));
}
