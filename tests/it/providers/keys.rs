//! A provider's text about its key is not stored anywhere.

use serde_json::json;

use super::place;
use crate::harness::{ModelServer, Reply, run};

const KEY: &str = "sk-canary-Zq81XvTn04WbLd77PhRc52Ym";

/// Every file in the state folder, and the daemon's log.
fn kept(folder: &std::path::Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(kept(&path)),
            false => all.extend(std::fs::read(&path).unwrap_or_default()),
        }
    }
    all
}

#[test]
fn no_part_of_a_key_that_a_refusal_repeats_is_kept_anywhere() {
    let digest = ring::digest::digest(&ring::digest::SHA256, KEY.as_bytes());
    let digest: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let middle = &KEY[12..20];
    let backwards: String = KEY.chars().rev().collect();
    let pieces = KEY.as_bytes().chunks(4);
    let pieces: Vec<&str> = pieces
        .map(|one| std::str::from_utf8(one).unwrap())
        .collect();
    let replies = [
        Reply::status(
            401,
            &format!(
                "Incorrect API key provided: {}****{}",
                &KEY[..12],
                &KEY[30..]
            ),
        ),
        Reply::status(
            403,
            &format!("key with the hash sha256:{digest} is revoked"),
        ),
        Reply::status(400, &format!("the header has …{middle}… in it")),
        Reply::bytes(format!("<html>denied: {KEY}</html>").as_bytes()).with_type("text/html"),
        Reply::status(529, &format!("overloaded for {}", &KEY[18..]))
            .with_header("retry-after", "0"),
        Reply::status(401, &format!("Bearer {KEY}")),
        Reply::status(401, &format!("bad key {}", pieces.join(" "))),
        Reply::status(401, &format!("bad key {backwards}")),
        Reply::status(
            401,
            &format!("bad key {}[redacted]{}", &KEY[..4], &KEY[30..]),
        ),
    ];
    let server = ModelServer::start();
    let count = replies.len();
    server.on("[job]", replies);
    let mut place = place(&server, "chat/small");
    let file = place.path().join("key");
    std::fs::write(&file, KEY).unwrap();
    place.set("providers.chat.api_key_file", &format!("{file:?}"));
    place.set("providers.chat.max_wait", "\"0s\"");
    place.set("providers.chat.retries", "0");
    let logged = run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        for _ in 0..count {
            let spawned = client.spawn(json!({ "task": "[job]" })).await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["state"], "error", "{ended}");
        }
        let logged = daemon.logged();
        assert_eq!(daemon.stop().await, 0);
        logged
    });
    assert_eq!(server.requests().len(), count);
    assert!(logged.contains("[key]"), "{logged}");
    let mut all = kept(&place.state()).to_ascii_lowercase();
    all.extend(logged.to_ascii_lowercase().into_bytes());
    let finder = |part: &str| {
        all.windows(part.len())
            .any(|window| window == part.as_bytes())
    };
    // Ids are hexadecimal too: a short part of a digest may occur in one of them.
    for (form, length) in [
        (KEY.to_ascii_lowercase(), 5),
        (backwards.to_ascii_lowercase(), 5),
        (pieces.join(" ").to_ascii_lowercase(), 6),
        (digest, 12),
    ] {
        for at in 0..=form.len() - length {
            let part = &form[at..at + length];
            assert!(!finder(part), "{part} of {form} is kept");
        }
    }
}
