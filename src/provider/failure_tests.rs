//! Tests of how provider errors become failures.

use serde_json::json;

use super::*;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| {
            (
                http::HeaderName::from_static(name),
                value.parse().expect("a header's value"),
            )
        })
        .collect()
}

fn of_status(status: u16, body: &str) -> AttemptFailure {
    let status = StatusCode::from_u16(status).unwrap();
    AttemptFailure::of_status(status, &HeaderMap::new(), body, Timestamp(0))
}

#[test]
fn g11_1_only_what_may_pass_is_tried_again() {
    for status in [408, 409, 500, 502, 504] {
        assert_eq!(of_status(status, "").remedy, Remedy::Again, "{status}");
    }
    for status in [429, 503, 529] {
        assert_eq!(of_status(status, "").remedy, Remedy::Later, "{status}");
    }
    for status in [301, 401, 403, 404] {
        assert_eq!(of_status(status, "").remedy, Remedy::Elsewhere, "{status}");
    }
    for status in [400, 405, 415, 422] {
        assert_eq!(of_status(status, "").remedy, Remedy::Nothing, "{status}");
    }
    let quota = r#"{"error": {"message": "pay first", "code": "insufficient_quota"}}"#;
    assert_eq!(of_status(429, quota).remedy, Remedy::Elsewhere);
    let model = r#"{"error": {"message": "no such model", "code": "model_not_found"}}"#;
    assert_eq!(of_status(400, model).remedy, Remedy::Elsewhere);
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let told = headers(&[("x-should-retry", "false")]);
    let failure = AttemptFailure::of_status(status, &told, "", Timestamp(0));
    assert_eq!(failure.remedy, Remedy::Elsewhere);
}

#[test]
fn the_providers_words_are_kept_short_whatever_form_they_have() {
    for (body, expected) in [
        (
            r#"{"error": {"message": "no"}}"#,
            "HTTP 400 Bad Request: no",
        ),
        (r#"{"error": "no"}"#, "HTTP 400 Bad Request: no"),
        (
            r#"{"object": "error", "message": "no"}"#,
            "HTTP 400 Bad Request: no",
        ),
        (r#"{"detail": "no"}"#, "HTTP 400 Bad Request: no"),
        ("<html>\n no", "HTTP 400 Bad Request: <html> no"),
        ("", "HTTP 400 Bad Request"),
    ] {
        assert_eq!(of_status(400, body).message, expected, "{body}");
    }
    let long = format!(r#"{{"error": {{"message": "{}"}}}}"#, "é".repeat(4000));
    let message = of_status(400, &long).message;
    assert!(message.chars().count() < 550 && message.ends_with('…'));
}

#[test]
fn an_error_in_the_stream_is_judged_by_its_name() {
    for (error, remedy) in [
        (
            json!({"type": "overloaded_error", "message": "m"}),
            Remedy::Later,
        ),
        (json!({"type": "api_error"}), Remedy::Again),
        (json!({"code": 502, "message": "m"}), Remedy::Again),
        (json!({"code": 429}), Remedy::Later),
        (json!("upstream is gone"), Remedy::Again),
        (json!(null), Remedy::Again),
        (json!({"type": "invalid_request_error"}), Remedy::Nothing),
        (json!({"code": 400, "message": "m"}), Remedy::Nothing),
        (json!({"type": "authentication_error"}), Remedy::Elsewhere),
        (json!({"type": "not_found_error"}), Remedy::Elsewhere),
    ] {
        assert_eq!(AttemptFailure::in_stream(&error).remedy, remedy, "{error}");
    }
    let failure = AttemptFailure::in_stream(&json!({"message": "too many"}));
    assert_eq!(
        failure.message,
        "the provider ended the stream with an error: too many"
    );
    assert_eq!(failure.kind, "provider");
}
