//! Tests of what a table is made into and what is said when all tries have failed. How tries
//! follow each other is tested over real sockets.

use std::collections::BTreeMap;

use super::*;

fn remote(name: &str, table: ProviderTable) -> Remote {
    Remote::new(name, &table, Clock::system())
}

#[test]
fn the_usual_names_need_neither_kind_nor_address() {
    for (name, url) in [
        ("openai", "https://api.openai.com/v1/chat/completions"),
        ("anthropic", "https://api.anthropic.com/v1/messages"),
        ("ollama", "http://127.0.0.1:11434/v1/chat/completions"),
    ] {
        let remote = remote(name, ProviderTable::default());
        assert_eq!(remote.0.url, url);
        assert_eq!(remote.problem(), None);
        assert_eq!(remote.offered(), [format!("{name}/*")]);
    }
    for base in [
        "https://x.example",
        "https://x.example/",
        "https://x.example/v1",
    ] {
        let table = ProviderTable {
            kind: Some(ProviderKind::Anthropic),
            base_url: Some(base.to_owned()),
            ..ProviderTable::default()
        };
        assert_eq!(remote("x", table).0.url, "https://x.example/v1/messages");
    }
}

#[test]
fn keys_and_headers_go_out_marked_as_secret() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "sk-canary\n").unwrap();
    let table = |kind| ProviderTable {
        kind: Some(kind),
        api_key_file: Some(file.clone()),
        headers: BTreeMap::from([("X-Team".to_owned(), "canary".to_owned())]),
        ..ProviderTable::default()
    };
    for (kind, name, value) in [
        (ProviderKind::OpenAi, "authorization", "Bearer sk-canary"),
        (ProviderKind::Anthropic, "x-api-key", "sk-canary"),
    ] {
        let headers = remote("x", table(kind)).0.headers().unwrap();
        assert_eq!(headers[name], value);
        assert_eq!(headers["x-team"], "canary");
        assert!(!format!("{headers:?}").contains("canary"), "{headers:?}");
    }
    let none = remote("ollama", ProviderTable::default());
    assert!(none.0.headers().unwrap().is_empty(), "no key, no header");
    let two = ProviderTable {
        api_key_env: Some("X".to_owned()),
        ..table(ProviderKind::OpenAi)
    };
    assert!(
        remote("x", two)
            .problem()
            .unwrap()
            .contains("more than one")
    );
}

#[test]
fn g11_1_a_failure_says_what_was_tried() {
    let failures = [
        Failure::passing("HTTP 429: slow down"),
        Failure::passing("HTTP 503: busy"),
        Failure::passing("HTTP 503: busy"),
    ];
    let fault = told(&failures, None, Duration::from_millis(2100));
    assert_eq!(
        fault.message,
        "HTTP 503: busy; tried 3 times in 2.1 s, before that: HTTP 429: slow down"
    );
    assert!(fault.switches);
    let fault = told(
        &[Failure::lasting("provider_request", "HTTP 400")],
        None,
        Duration::ZERO,
    );
    assert_eq!(
        (fault.message.as_str(), fault.switches),
        ("HTTP 400", false)
    );
}

#[test]
fn g11_2_no_pause_is_shorter_than_the_provider_asks_and_none_is_endless() {
    let asking = |seconds| Failure {
        retry_after: Some(Duration::from_secs(seconds)),
        ..Failure::passing("HTTP 429")
    };
    let mut pauses = std::iter::repeat(Duration::from_millis(400));
    let pause = next_pause(&asking(7), &mut pauses).unwrap();
    assert_eq!(pause, Duration::from_millis(7100));
    let why = next_pause(&asking(3600), &mut pauses).unwrap_err().unwrap();
    assert!(why.contains("1h") && why.contains("2m"), "{why}");
    let lasting = Failure::lasting("provider_request", "HTTP 400");
    assert_eq!(next_pause(&lasting, &mut pauses), Err(None));
    assert_eq!(next_pause(&asking(1), &mut std::iter::empty()), Err(None));
}
