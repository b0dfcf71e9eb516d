//! Dead letters: shown, delivered again, dropped, and kept within their bound.

use serde_json::json;

use super::receiver::{Receiver, Verdict};
use super::{accepted_of, ended_run, place, until};
use crate::harness::{Place, Terminal, kind_of, run};

/// Runs the command and returns its exit code and what it has written.
fn command(place: &Place, arguments: &[&str]) -> (i32, String, String) {
    let output = place.command(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn what_was_given_up_is_shown_and_delivered_again_after_a_kill() {
    run(async {
        let receiver = Receiver::start();
        receiver.decide(|_, _| Verdict::Status(500));
        let place = place(&receiver).with("webhooks.audit.attempts", "3");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = ended_run(&client).await;
        let webhook = until(&client, "the dead letter", |one| one["deadLetters"] == 1).await;
        assert_eq!(
            (&webhook["failed"], &webhook["givenUp"]),
            (&json!(3), &json!(1))
        );
        assert_eq!(webhook["waiting"], 0, "{webhook}");
        let dead = client
            .call("webhooks.dead", json!({ "webhook": "audit" }))
            .await;
        let letter = &dead["letters"][0];
        assert_eq!(letter["runId"], run.as_str(), "{letter}");
        assert_eq!(
            (&letter["attempts"], &letter["kind"]),
            (&json!(3), &json!("run.ended"))
        );
        assert!(
            letter["failure"].as_str().unwrap().contains("500"),
            "{letter}"
        );

        let (code, listed, _) = command(&place, &["webhooks"]);
        assert_eq!(code, 0);
        assert!(
            listed.contains("audit") && listed.contains("500"),
            "{listed}"
        );
        let (code, listed, _) = command(&place, &["webhooks", "dead", "audit"]);
        assert_eq!(code, 0);
        assert!(listed.contains(&letter["id"].to_string()), "{listed}");
        for arguments in [&["webhooks"][..], &["webhooks", "dead", "audit"]] {
            let mut screen = Terminal::sized(place.command(arguments), 80);
            let (_, shown) = screen.end();
            assert!(shown.contains("500"), "{shown}");
            let is_within = |line: &str| line.trim_end().chars().count() <= 80;
            assert!(shown.lines().all(is_within), "{shown}");
        }
        let (_, found, _) = command(&place, &["doctor"]);
        assert!(
            found.contains("webhook audit has 1 dead letters"),
            "{found}"
        );
        let metrics = crate::metrics::numbers(&daemon);
        assert_eq!(metrics["abide_webhook_dead_letters"], 1.0);
        assert_eq!(
            metrics["abide_webhook_attempts_total{result=\"failed\"}"],
            3.0
        );

        // It fails again, and is dead again.
        let replay = json!({ "webhook": "audit", "ids": [letter["id"], 1] });
        let replayed = client.call("webhooks.replay", replay).await;
        assert_eq!(replayed["replaying"], json!([letter["id"]]));
        until(&client, "the failure", |one| one["failed"] == 4).await;
        let dead = client
            .call("webhooks.dead", json!({ "webhook": "audit" }))
            .await;
        assert_eq!(dead["letters"][0]["attempts"], 4, "{dead}");
        assert_eq!(dead["letters"][0]["replaying"], false, "{dead}");

        // A kill right after the request does not lose it.
        receiver.decide(|_, _| Verdict::Hang);
        let all = json!({ "webhook": "audit" });
        client.call("webhooks.replay", all).await;
        receiver.until("the attempt", |all| all.len() == 5);
        daemon.kill().await;
        receiver.decide(|_, _| Verdict::Status(200));
        let daemon = place.start().await;
        let client = daemon.client().await;
        let attempts = receiver.until("the delivery", |all| accepted_of(all, &run) == 1);
        assert!(attempts.iter().all(|one| one.id == attempts[0].id));
        let webhook = until(&client, "no letters", |one| one["deadLetters"] == 0).await;
        assert_eq!(webhook["delivered"], 1, "{webhook}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn dead_letters_are_dropped_on_request_and_commands_name_what_is_missing() {
    run(async {
        let receiver = Receiver::start();
        receiver.decide(|_, _| Verdict::Status(400));
        let place = place(&receiver).with("webhooks.audit.attempts", "1");
        let daemon = place.start().await;
        let client = daemon.client().await;
        for _ in 0..3 {
            ended_run(&client).await;
        }
        until(&client, "three dead letters", |one| one["deadLetters"] == 3).await;
        let page = json!({ "webhook": "audit", "limit": 2 });
        let first = client.call("webhooks.dead", page).await;
        let page = json!({ "webhook": "audit", "limit": 2, "cursor": first["nextCursor"] });
        let second = client.call("webhooks.dead", page).await;
        let count = |page: &serde_json::Value| page["letters"].as_array().unwrap().len();
        assert_eq!((count(&first), count(&second)), (2, 1));
        assert!(second.get("nextCursor").is_none(), "{second}");

        let id = first["letters"][0]["id"].to_string();
        let (code, _, said) = command(&place, &["webhooks", "drop", "audit", &id, "7"]);
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("no dead letter 7"), "{said}");
        until(&client, "two dead letters", |one| one["deadLetters"] == 2).await;
        let (code, _, said) = command(&place, &["webhooks", "drop", "other", "--all"]);
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("other"), "{said}");
        let refused = client
            .refused("webhooks.dead", json!({ "webhook": "other" }))
            .await;
        assert_eq!(kind_of(&refused), "not_found");
        let empty = json!({ "webhook": "audit", "ids": [] });
        let refused = client.refused("webhooks.replay", empty).await;
        assert_eq!(kind_of(&refused), "invalid_params");

        receiver.decide(|_, _| Verdict::Status(200));
        let (code, _, said) = command(&place, &["webhooks", "replay", "audit", "--all"]);
        assert_eq!(code, 0, "{said}");
        assert!(
            said.contains("2 dead letters are delivered again"),
            "{said}"
        );
        until(&client, "no dead letters", |one| one["deadLetters"] == 0).await;
        assert_eq!(receiver.delivered().len(), 2);
        let (code, listed, _) = command(&place, &["--json", "webhooks"]);
        assert_eq!(code, 0);
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(listed["webhooks"][0]["delivered"], 2, "{listed}");
        assert_eq!(daemon.stop().await, 0);
    });
}
