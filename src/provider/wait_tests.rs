//! Tests of reading requested waits.

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

#[test]
fn g11_2_the_wait_asked_for_is_read_in_every_form() {
    let now = Timestamp(784_111_777_000);
    for (pairs, expected) in [
        (vec![("retry-after", "7")], Some(7_000)),
        (vec![("retry-after", "0.5")], Some(500)),
        (
            vec![("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT")],
            Some(10_000),
        ),
        (
            vec![("retry-after", "Sun, 06 Nov 1994 08:49:27 GMT")],
            Some(0),
        ),
        (
            vec![("retry-after-ms", "250"), ("retry-after", "9")],
            Some(250),
        ),
        (vec![("retry-after", "soon")], None),
        (vec![("retry-after", "-3")], None),
        (vec![], None),
    ] {
        let found = requested(&headers(&pairs), now);
        assert_eq!(found, expected.map(Duration::from_millis), "{pairs:?}");
    }
}

#[test]
fn an_allowance_comes_back_when_its_headers_say_so() {
    // 2001-09-09T01:46:40Z
    let now = Timestamp(1_000_000_000_000);
    for (pairs, expected) in [
        (
            vec![
                ("x-ratelimit-reset-requests", "120ms"),
                ("x-ratelimit-remaining-requests", "40"),
                ("x-ratelimit-reset-tokens", "6m0s"),
                ("x-ratelimit-remaining-tokens", "0"),
            ],
            Some(360_000),
        ),
        (
            vec![
                ("anthropic-ratelimit-tokens-reset", "2001-09-09T01:46:52Z"),
                ("anthropic-ratelimit-tokens-remaining", "0"),
            ],
            Some(12_000),
        ),
        (
            vec![
                ("x-ratelimit-reset", "1000000007000"),
                ("x-ratelimit-remaining", "0"),
            ],
            Some(7_000),
        ),
        (vec![("x-ratelimit-reset", "1000000009")], Some(9_000)),
        (vec![("ratelimit-reset", "3")], Some(3_000)),
        (
            vec![("ratelimit-reset", "3"), ("ratelimit-remaining", "2")],
            None,
        ),
        (vec![("x-ratelimit-reset", "soon")], None),
        (vec![], None),
    ] {
        let found = until_allowed(&headers(&pairs), now);
        assert_eq!(found, expected.map(Duration::from_millis), "{pairs:?}");
    }
}

#[test]
fn a_wait_is_found_in_words() {
    for (words, expected) in [
        (
            "rate limit reached. please try again in 1m30.5s.",
            Some(90_500),
        ),
        ("please retry in 33.6s", Some(33_600)),
        ("retry after 20 seconds", Some(20_000)),
        ("try again in 350ms. visit the pages", Some(350)),
        ("try again in 2 minutes", Some(120_000)),
        ("try again later", None),
        ("decrease the input length and try again", None),
    ] {
        let expected = expected.map(Duration::from_millis);
        assert_eq!(in_words(words), expected, "{words}");
    }
}
