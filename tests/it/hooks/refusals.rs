//! Deliveries that do not fit: what their senders are told, and that nothing is started.

use super::sender::{Reply, deliver, github};
use super::{ISSUE, SECRET, place, run_of, runs, signed, with_hook};
use crate::harness::{Daemon, Place, Script, run, says};

/// A signed delivery with this Content-Type and further headers.
async fn sent(daemon: &Daemon, hook: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let signature = github(SECRET, body);
    let mut all = vec![("x-hub-signature-256", signature.as_str())];
    all.extend(headers);
    deliver(daemon, hook, &all, body).await
}

#[test]
fn a_delivery_that_does_not_fit_its_template_is_told_which_field_is_missing() {
    run(async {
        let place = place().with("hooks.issues.idempotency_header", "\"x-event-id\"");
        let place = with_hook(place, "alerts", "Look at {.} of {header.X-Source}");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let id = ("x-event-id", "1");
        for (body, names) in [
            (ISSUE.replace("\"title\"", "\"headline\""), "issue.title"),
            (ISSUE.replace("\"opened\"", "null"), "action"),
            ("[]".to_owned(), "issue.title"),
            ("7".to_owned(), "issue.title"),
        ] {
            let refused = sent(&daemon, "issues", &[id], body.as_bytes()).await;
            assert_eq!(refused.status, 422, "{refused:?}");
            assert!(
                refused.message().contains(&format!("no {names}")),
                "{refused:?}"
            );
            assert_eq!(refused.json()["error"]["data"]["path"], names);
        }
        let unnamed = sent(&daemon, "issues", &[], ISSUE.as_bytes()).await;
        assert_eq!(unnamed.status, 422, "{unnamed:?}");
        assert!(unnamed.message().contains("x-event-id"), "{unnamed:?}");
        let long = "x".repeat(300);
        let long = sent(
            &daemon,
            "issues",
            &[("x-event-id", &long)],
            ISSUE.as_bytes(),
        )
        .await;
        assert_eq!(long.status, 422, "{long:?}");
        let headless = sent(&daemon, "alerts", &[], b"{}").await;
        assert!(
            headless.message().contains("header.X-Source"),
            "{headless:?}"
        );
        assert_eq!(runs(&client).await, 0);
        // What was refused starts its run once it fits, under the same id.
        let fits = ISSUE.replace("\"It says", "null, \"was\": \"It says");
        run_of(&sent(&daemon, "issues", &[id], fits.as_bytes()).await);
        let alert = sent(
            &daemon,
            "alerts",
            &[("x-source", "probe")],
            b"{\"b\":[1],\"a\":2}",
        )
        .await;
        let session = alert.json()["sessionKey"].clone();
        client.ended(&run_of(&alert)).await;
        let task = super::first_message(&client, &session).await;
        let expected = "Look at <<<.\n{\"b\":[1],\"a\":2}\n.>>> of <<<header.X-Source\nprobe\n";
        assert!(task.starts_with(expected), "{task}");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn bodies_are_json_of_limited_size_and_pings_of_github_start_nothing() {
    run(async {
        let place = place().with("hooks.issues.max_body", "\"4 KiB\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let large = ISSUE.replace("\"open\"", &format!("{:?}", "x".repeat(4096)));
        assert_eq!(signed(&daemon, "issues", "1", &large).await.status, 413);
        for (kind, status) in [("text/plain", 415), ("application/xml", 415)] {
            let kind = [("content-type", kind)];
            let refused = sent(&daemon, "issues", &kind, ISSUE.as_bytes()).await;
            assert_eq!(refused.status, status, "{refused:?}");
        }
        for broken in [&b"{"[..], b"", b"\xff\xfe", b"{} {}"] {
            let refused = sent(&daemon, "issues", &[], broken).await;
            assert_eq!(refused.status, 400, "{refused:?}");
            assert!(refused.message().contains("not JSON"), "{refused:?}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(
            sent(&daemon, "issues", &[], &deep.as_bytes()[..4000])
                .await
                .status,
            400
        );
        let ping = sent(
            &daemon,
            "issues",
            &[("x-github-event", "ping")],
            b"{\"zen\": \"x\"}",
        )
        .await;
        assert_eq!((ping.status, &ping.json()["status"]), (200, &"pong".into()));
        assert_eq!(runs(&client).await, 0);
        // A form is signed as it is sent.
        let form: String = form_urlencoded::Serializer::new(String::new())
            .append_pair("payload", ISSUE)
            .finish();
        let kind = [("content-type", "application/x-www-form-urlencoded")];
        let id = run_of(&sent(&daemon, "issues", &kind, form.as_bytes()).await);
        assert_eq!(client.ended(&id).await["result"], "triaged");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_hook_without_its_agent_asks_for_a_repeat() {
    run(async {
        let place = with_hook(
            Place::new(Script::new().on("*", [says("done")])),
            "issues",
            "Do {issue.title}",
        )
        .with("hooks.issues.agent", "\"triage\"");
        let daemon = place.start().await;
        let refused = signed(&daemon, "issues", "1", ISSUE).await;
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
        // Which agents there are is for the log, not for the sender.
        assert!(!refused.body.contains("triage"), "{refused:?}");
        assert!(daemon.logged().contains("no agent"), "{}", daemon.logged());
        let client = daemon.client().await;
        assert_eq!(runs(&client).await, 0);
        let agent = serde_json::json!({
            "name": "triage",
            "definition": { "description": "Triages." },
        });
        client.call("agents.create", agent).await;
        let id = run_of(&signed(&daemon, "issues", "1", ISSUE).await);
        assert_eq!(client.ended(&id).await["agent"], "triage");
        assert_eq!(daemon.stop().await, 0);
    });
}
