//! Tests of how a table becomes a provider and of the message after all attempts failed. The
//! sequence of attempts is tested over real sockets.

use std::collections::BTreeMap;

use super::*;
use crate::config::Secret;

fn remote(name: &str, table: ProviderTable) -> HttpProvider {
    let clock = Clock::system();
    let record = Record::new(name, clock.clone(), Arc::new(|_, _| {}));
    HttpProvider::new(name, &table, clock, record)
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
        headers: BTreeMap::from([("X-Team".to_owned(), Secret::new("canary"))]),
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
        AttemptFailure::passing("HTTP 429: slow down"),
        AttemptFailure::passing("HTTP 503: busy"),
        AttemptFailure::passing("HTTP 503: busy"),
    ];
    let fault = combined_fault(&failures, None, Duration::from_millis(2100));
    assert_eq!(
        fault.message,
        "HTTP 503: busy; tried 3 times in 2.1 s, before that: HTTP 429: slow down"
    );
    assert!(fault.switches);
    let fault = combined_fault(
        &[AttemptFailure::lasting("provider_request", "HTTP 400")],
        None,
        Duration::ZERO,
    );
    assert_eq!(
        (fault.message.as_str(), fault.switches),
        ("HTTP 400", false)
    );
}

#[test]
fn every_way_of_writing_the_address_of_an_api_is_understood() {
    for (kind, base, url) in [
        (
            ProviderKind::OpenAi,
            "https://a.example/v1",
            "https://a.example/v1/chat/completions",
        ),
        (
            ProviderKind::OpenAi,
            "https://a.example/v1//",
            "https://a.example/v1/chat/completions",
        ),
        (
            ProviderKind::OpenAi,
            "https://a.example/v1/chat/completions",
            "https://a.example/v1/chat/completions",
        ),
        (
            ProviderKind::OpenAi,
            "https://a.example/api/paas/v4/chat/completions/",
            "https://a.example/api/paas/v4/chat/completions",
        ),
        (
            ProviderKind::OpenAi,
            "https://a.example/openai/deployments/d?api-version=1",
            "https://a.example/openai/deployments/d/chat/completions?api-version=1",
        ),
        (
            ProviderKind::OpenAi,
            "https://a.example/d/chat/completions?api-version=1",
            "https://a.example/d/chat/completions?api-version=1",
        ),
        (
            ProviderKind::Anthropic,
            "https://a.example",
            "https://a.example/v1/messages",
        ),
        (
            ProviderKind::Anthropic,
            "https://a.example/v1/",
            "https://a.example/v1/messages",
        ),
        (
            ProviderKind::Anthropic,
            "https://a.example/v1/messages/",
            "https://a.example/v1/messages",
        ),
    ] {
        assert_eq!(endpoint(kind, base), url, "{base}");
    }
}

fn tries_of(table: ProviderTable) -> HttpProvider {
    remote(
        "x",
        ProviderTable {
            kind: Some(ProviderKind::OpenAi),
            ..table
        },
    )
}

fn asking(seconds: u64) -> AttemptFailure {
    AttemptFailure {
        retry_after: Some(Duration::from_secs(seconds)),
        remedy: Remedy::Later,
        ..AttemptFailure::passing("HTTP 429")
    }
}

#[test]
fn g11_2_a_long_wait_pauses_the_run_and_an_endless_one_ends_it() {
    let remote = tries_of(ProviderTable::default());
    let mut tries = Attempts::new(&remote.0);
    assert!(matches!(
        tries.after(asking(0), "m"),
        RetryDecision::WhenAllowed
    ));
    assert!(matches!(tries.after(asking(7), "m"), RetryDecision::Pause));
    let RetryDecision::Over(Some(why)) = tries.after(asking(86_400), "m") else {
        panic!("it waits for a day");
    };
    assert!(why.contains("1day") && why.contains("1h"), "{why}");
    let lasting = AttemptFailure::lasting("provider_request", "HTTP 400");
    assert!(matches!(
        tries.after(lasting, "m"),
        RetryDecision::Over(None)
    ));
}

#[test]
fn a_provider_that_is_never_waited_for_has_its_tries_and_no_more() {
    let remote = tries_of(ProviderTable {
        max_wait: Duration::ZERO,
        retries: 1,
        ..ProviderTable::default()
    });
    let mut tries = Attempts::new(&remote.0);
    assert!(matches!(
        tries.after(asking(7), "m"),
        RetryDecision::Again(_)
    ));
    assert!(matches!(
        tries.after(asking(7), "m"),
        RetryDecision::Over(None)
    ));
}
