//! The tables of hooks: reloads, tables that are refused, and secrets that are read and never
//! shown.

use std::fs;

use serde_json::{Value, json};

use super::sender::{deliver, github};
use super::{ISSUE, SECRET, place, run_of, runs, signed, with_hook};
use crate::harness::{kind_of, run};

#[test]
fn a_reload_changes_adds_and_removes_hooks() {
    run(async {
        let mut place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        run_of(&signed(&daemon, "issues", "1", ISSUE).await);
        place.set("hooks.issues.secret", "\"another secret of this test\"");
        let mut place = with_hook(place, "new", "Do {issue.title}");
        assert_eq!(signed(&daemon, "new", "1", ISSUE).await.status, 404);
        let reloaded = client.call("gateway.reload", json!({})).await;
        assert!(
            !reloaded.to_string().contains("another secret"),
            "{reloaded}"
        );
        assert_eq!(signed(&daemon, "issues", "2", ISSUE).await.status, 401);
        run_of(&signed(&daemon, "new", "1", ISSUE).await);
        for field in ["check", "secret", "task"] {
            place.unset(&format!("hooks.new.{field}"));
        }
        client.call("gateway.reload", json!({})).await;
        assert_eq!(signed(&daemon, "new", "2", ISSUE).await.status, 404);
        let shown = client.call("gateway.config", json!({})).await;
        let settings = shown["settings"].as_array().unwrap();
        let of_hooks = |setting: &&Value| setting["key"].as_str().unwrap().starts_with("hooks.");
        let hooks: Vec<&Value> = settings.iter().filter(of_hooks).collect();
        assert_eq!(hooks.len(), 7, "{hooks:?}");
        assert!(!shown.to_string().contains("secret of this"), "{shown}");
        let secret = hooks.iter().find(|one| one["key"] == "hooks.issues.secret");
        assert_eq!(secret.unwrap()["value"], "[secret]");
        client.quiet().await;
        assert!(!daemon.logged().contains("secret of this"));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_table_that_could_not_be_trusted_is_refused_and_the_settings_in_force_stay() {
    run(async {
        let mut place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        for (field, value, says) in [
            ("check", None, "hooks.issues.check is missing"),
            ("secret", None, "hooks.issues.secret is missing"),
            ("task", None, "hooks.issues.task is missing"),
            ("secret", Some("\"\""), "hooks.issues.secret"),
            ("secret", Some("\"short-canary\""), "at least 16"),
            ("check", Some("\"none\""), "github, standard, bearer"),
            ("check", Some("\"standard\""), "base64"),
            ("task", Some("\"Do {issue.title\""), "is not closed"),
            ("task", Some("\"Do {a b}\""), "names no field"),
            (
                "session",
                Some("\"{issue.number}\""),
                "begins with fixed text",
            ),
            ("max_body", Some("\"11 MiB\""), "bytes are allowed"),
        ] {
            let key = format!("hooks.issues.{field}");
            let fresh = |place: &mut crate::harness::Place| {
                place.set("hooks.issues.check", "\"github\"");
                place.set("hooks.issues.secret", &format!("{SECRET:?}"));
                place.set("hooks.issues.task", "\"Do {issue.title}\"");
            };
            match value {
                Some(value) => place.set(&key, value),
                None => place.unset(&key),
            }
            let refused = client.refused("gateway.reload", json!({})).await;
            assert_eq!(kind_of(&refused), "conflict", "{refused}");
            assert!(refused.message.contains(says), "{says}: {refused}");
            assert!(!refused.message.contains("canary"), "{refused}");
            let config = place.path().join("abide.toml");
            let config = ["config", "check", "--config", config.to_str().unwrap()];
            let check = place.command(&config).output().unwrap();
            assert_eq!(check.status.code(), Some(78), "{check:?}");
            place.unset(&key);
            fresh(&mut place);
        }
        run_of(&signed(&daemon, "issues", "1", ISSUE).await);
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_referenced_secret_is_read_at_each_delivery_and_doctor_names_a_missing_one() {
    run(async {
        let mut place = place();
        let file = place.path().join("hook-secret");
        place.set(
            "hooks.issues.secret",
            &format!("{{ from = \"file:{}\" }}", file.display()),
        );
        let daemon = place.start().await;
        let client = daemon.client().await;
        let missing = signed(&daemon, "issues", "1", ISSUE).await;
        assert_eq!(missing.status, 503, "{missing:?}");
        assert!(missing.header("retry-after").is_some(), "{missing:?}");
        assert!(!missing.body.contains("hook-secret"), "{missing:?}");
        assert!(daemon.logged().contains("hook-secret"));
        let finding = async || {
            let found = client.call("gateway.doctor", json!({})).await;
            let all = found["findings"].as_array().unwrap().clone();
            all.into_iter().find(|one| one["id"] == "hook.issues")
        };
        let found = finding().await.unwrap();
        assert_eq!(found["status"], "warn", "{found}");
        assert!(
            found["message"].as_str().unwrap().contains("hook-secret"),
            "{found}"
        );
        fs::write(&file, format!("{SECRET}\n")).unwrap();
        run_of(&signed(&daemon, "issues", "1", ISSUE).await);
        assert_eq!(finding().await, None);
        let other = "the secret after a change";
        fs::write(&file, other).unwrap();
        assert_eq!(signed(&daemon, "issues", "2", ISSUE).await.status, 401);
        let signature = github(other, ISSUE.as_bytes());
        let headers = [("x-hub-signature-256", signature.as_str())];
        run_of(&deliver(&daemon, "issues", &headers, ISSUE.as_bytes()).await);
        client.quiet().await;
        assert_eq!(runs(&client).await, 2);
        assert_eq!(daemon.stop().await, 0);
    });
}
