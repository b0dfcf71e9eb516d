//! Each check takes what its sender proves, and nothing else; failures are limited and audited.

use serde_json::json;

use super::sender::{Reply, deliver, github, request, standard};
use super::{ISSUE, SECRET, place, run_of, runs, signed};
use crate::harness::{Daemon, Place, Script, run, says};

const STANDARD: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

/// A place with one hook of each check.
fn three() -> Place {
    let mut place = Place::new(Script::new().on("*", [says("done")]));
    for (name, secret) in [
        ("github", SECRET),
        ("standard", STANDARD),
        ("bearer", SECRET),
    ] {
        place.set(&format!("hooks.{name}.check"), &format!("{name:?}"));
        place.set(&format!("hooks.{name}.secret"), &format!("{secret:?}"));
        place.set(&format!("hooks.{name}.task"), "\"Do {a}\"");
    }
    place
}

const BODY: &[u8] = b"{\"a\": 1}";

fn now() -> i64 {
    abide::clock::Clock::system().now().0 / 1000
}

/// A delivery as Standard Webhooks define it, signed at `timestamp` with the other secret first.
async fn standard_at(daemon: &Daemon, id: &str, timestamp: i64) -> Reply {
    let other = "whsec_b3RoZXItc2VjcmV0LW90aGVyLXNlY3JldA==";
    let signatures = [other, STANDARD].map(|secret| standard(secret, id, timestamp, BODY));
    let (signatures, time) = (signatures.join(" "), timestamp.to_string());
    let headers = [
        ("webhook-id", id),
        ("webhook-timestamp", time.as_str()),
        ("webhook-signature", signatures.as_str()),
    ];
    deliver(daemon, "standard", &headers, BODY).await
}

#[test]
fn each_check_takes_what_its_sender_signs_and_nothing_else() {
    run(async {
        let place = three();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let token = format!("Bearer {SECRET}");
        let right = github(SECRET, BODY);
        let headers = [("x-hub-signature-256", right.as_str())];
        run_of(&deliver(&daemon, "github", &headers, BODY).await);
        let bearer = [("authorization", token.as_str())];
        run_of(&deliver(&daemon, "bearer", &bearer, BODY).await);
        let first = run_of(&standard_at(&daemon, "msg_1", now()).await);
        // A repeat has a time and a signature of its own.
        assert_eq!(
            run_of(&standard_at(&daemon, "msg_1", now() - 60).await),
            first
        );
        assert_eq!(runs(&client).await, 3);

        let other = github("another secret of it", BODY);
        let moved = github(SECRET, b"{\"a\": 2}");
        let old = format!("Bearer {}", daemon.token());
        let by_time = |timestamp: i64| standard(STANDARD, "msg_2", timestamp, BODY);
        let (late, early) = (now() - 400, now() + 400);
        let (late_text, early_text) = (late.to_string(), early.to_string());
        let (late, early) = (by_time(late), by_time(early));
        let fresh = now().to_string();
        let wrong: [(&str, &[(&str, &str)]); 12] = [
            ("github", &[]),
            ("github", &[("x-hub-signature-256", &other)]),
            ("github", &[("x-hub-signature-256", &moved)]),
            ("github", &[("x-hub-signature-256", "sha256=")]),
            ("github", &[("authorization", &token)]),
            ("bearer", &[]),
            ("bearer", &[("authorization", &old)]),
            ("bearer", &[("x-hub-signature-256", &right)]),
            ("standard", &[("authorization", &token)]),
            (
                "standard",
                &[
                    ("webhook-id", "msg_2"),
                    ("webhook-timestamp", &late_text),
                    ("webhook-signature", &late),
                ],
            ),
            (
                "standard",
                &[
                    ("webhook-id", "msg_2"),
                    ("webhook-timestamp", &early_text),
                    ("webhook-signature", &early),
                ],
            ),
            // The time of another delivery makes an old signature no younger.
            (
                "standard",
                &[
                    ("webhook-id", "msg_2"),
                    ("webhook-timestamp", &fresh),
                    ("webhook-signature", &late),
                ],
            ),
        ];
        let mut said = Vec::new();
        for (hook, headers) in wrong {
            let refused = deliver(&daemon, hook, headers, BODY).await;
            assert_eq!(refused.status, 401, "{hook} {headers:?}: {refused:?}");
            said.push(refused.body);
        }
        said.dedup();
        assert_eq!(said.len(), 1, "an answer says what is wrong: {said:?}");
        assert_eq!(runs(&client).await, 3);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn failures_are_limited_and_audited_and_a_genuine_delivery_still_passes() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let wrong = [("x-hub-signature-256", "sha256=00")];
        for _ in 0..20 {
            let refused = deliver(&daemon, "issues", &wrong, ISSUE.as_bytes()).await;
            assert_eq!(refused.status, 401, "{refused:?}");
        }
        for name in ["issues", "nope"] {
            let refused = deliver(&daemon, name, &wrong, ISSUE.as_bytes()).await;
            assert_eq!(refused.status, 429, "{refused:?}");
            let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=60).contains(&wait), "{refused:?}");
        }
        let id = run_of(&signed(&daemon, "issues", "1", ISSUE).await);
        client.ended(&id).await;
        let audit = crate::harness::eventually("the rows", async || {
            let params = json!({ "method": "hooks.deliver", "limit": 100 });
            let audit = client.call("gateway.audit", params).await;
            let entries = audit["entries"].as_array().unwrap().clone();
            (entries.len() >= 20).then_some(entries)
        })
        .await;
        assert_eq!(audit.len(), 20, "{audit:?}");
        for entry in audit {
            assert_eq!(entry["principal"], "hook:issues");
            assert_eq!(entry["outcome"], "unauthorized");
            assert_eq!(entry["client"], "127.0.0.1");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn only_servers_that_name_the_daemon_reach_a_hook_and_it_opens_nothing_else() {
    run(async {
        let place = three().with("gateway.allowed_origins", "[\"https://panel.lan\"]");
        let daemon = place.start().await;
        let token = format!("Bearer {SECRET}");
        let send = async |first: &str, extra: (&str, &str)| {
            let headers = [("authorization", token.as_str()), extra];
            request(&daemon, first, &headers, BODY).await.unwrap()
        };
        let plain = ("accept", "*/*");
        assert_eq!(send("POST /hooks/bearer", plain).await.status, 202);
        for extra in [
            ("host", "evil.example"),
            ("origin", "https://evil.example"),
            ("origin", "https://panel.lan"),
        ] {
            let refused = send("POST /hooks/bearer", extra).await;
            assert_eq!(refused.status, 403, "{extra:?}: {refused:?}");
        }
        for (first, status) in [
            ("GET /hooks/bearer", 405),
            ("PUT /hooks/bearer", 405),
            ("POST /hooks/none", 404),
            ("POST /hooks/", 404),
            ("POST /hooks/bearer/x", 404),
            // The secret of a hook is no token.
            ("POST /", 401),
            ("GET /metrics", 401),
            ("POST /v1/responses", 401),
        ] {
            let refused = send(first, plain).await;
            assert_eq!(refused.status, status, "{first}: {refused:?}");
        }
        let allowed = send("GET /hooks/bearer", plain).await;
        assert_eq!(allowed.header("allow"), Some("POST"));
        // The Unix socket is for programs of this machine, which have the API.
        let socket = place.state().join("abide.sock");
        let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
        let text = format!(
            "POST /hooks/bearer HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: \
             {token}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            BODY.len()
        );
        use std::io::{Read, Write};
        stream.write_all(&[text.as_bytes(), BODY].concat()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        assert_eq!(runs(&daemon.client().await).await, 1);
        assert_eq!(daemon.stop().await, 0);
    });
}
