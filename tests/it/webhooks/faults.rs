//! Accidents of the sending side: receivers that ask for waits, a reader that panics, requests that
//! come while an earlier one is being stored, and the secret in a receiver's address.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::receiver::{Attempt, Receiver, Verdict};
use super::{accepted_of, ended_run, place, until};
use crate::harness::{Faults, Place, run};

/// A dead letter for each of `count` runs; the ids of the letters, oldest first.
async fn letters(client: &crate::harness::Link, count: usize) -> Vec<i64> {
    for _ in 0..count {
        ended_run(client).await;
    }
    until(client, "the dead letters", |one| {
        one["deadLetters"] == count
    })
    .await;
    let dead = json!({ "webhook": "audit" });
    let dead = client.call("webhooks.dead", dead).await;
    let letters = dead["letters"].as_array().unwrap().iter().rev();
    letters.map(|one| one["id"].as_i64().unwrap()).collect()
}

#[test]
fn a_webhook_whose_receiver_asks_for_a_wait_does_nothing_meanwhile() {
    run(async {
        let receiver = Receiver::start();
        receiver.decide(|_, _| Verdict::With(429, "retry-after", "3000".to_owned()));
        let place = place(&receiver);
        let faults = Faults {
            orders: None,
            trace: Some(place.path().join("trace")),
        };
        let daemon = place.start_with(&faults).await.unwrap();
        let client = daemon.client().await;
        ended_run(&client).await;
        until(&client, "the failure", |one| one["failed"] == 1).await;
        // Another event waits as well, and the progress is stored.
        ended_run(&client).await;
        until(&client, "both events", |one| one["waiting"] == 2).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let turns = || {
            let trace = fs::read_to_string(place.path().join("trace")).unwrap();
            let turns = trace.lines().filter(|line| line.contains("webhook.turn"));
            turns.count()
        };
        let before = turns();
        assert!(before > 0);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let more = turns() - before;
        assert!(more < 5, "{more} turns of the loop in two seconds");
        assert_eq!(receiver.attempts().len(), 1);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn of_the_waits_that_parallel_answers_ask_for_the_longest_counts() {
    run(async {
        let receiver = Receiver::start();
        let place = place(&receiver).with("webhooks.audit.retry_wait", "\"2s\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let waits = ["0", "3000", "1", "Sun, 06 Nov 1994 08:49:37 GMT"];
        let order = std::sync::atomic::AtomicUsize::new(0);
        receiver.decide(move |_, _| {
            let nth = order.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            match waits.get(nth) {
                Some(wait) => Verdict::LateWith(503, "retry-after", (*wait).to_owned()),
                None => Verdict::Late,
            }
        });
        for _ in 0..=waits.len() {
            ended_run(&client).await;
        }
        receiver.until("all attempts at once", |all| all.len() == waits.len() + 1);
        receiver.let_go();
        let webhook = until(&client, "all answers", |one| {
            one["failed"] == waits.len() && one["delivered"] == 1
        })
        .await;
        assert_eq!(webhook["waiting"], waits.len(), "{webhook}");
        // The waits of the events themselves and the shorter ones have passed.
        tokio::time::sleep(Duration::from_millis(3500)).await;
        ended_run(&client).await;
        until(&client, "one more event", |one| {
            one["waiting"] == waits.len() + 1
        })
        .await;
        assert_eq!(receiver.attempts().len(), waits.len() + 1);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_reader_that_panics_starts_again_where_it_was() {
    run(async {
        let receiver = Receiver::start();
        let place = place(&receiver);
        let faults = Faults::ordered("webhook.read=panic@3");
        let daemon = place.start_with(&faults).await.unwrap();
        let client = daemon.client().await;
        let mut runs = Vec::new();
        for _ in 0..4 {
            runs.push(ended_run(&client).await);
        }
        receiver.until("all ends", |all| {
            runs.iter().all(|run| accepted_of(all, run) > 0)
        });
        let webhook = until(&client, "its progress", |one| one["waiting"] == 0).await;
        assert_eq!(
            (&webhook["state"], &webhook["missed"]),
            (&json!("active"), &json!(0))
        );
        assert!(place.log().contains("a test asked for this panic"));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_dead_letter_that_is_dropped_before_its_turn_is_not_sent() {
    run(async {
        let receiver = Receiver::start();
        receiver.decide(|_, _| Verdict::Status(500));
        let place = place(&receiver).with("webhooks.audit.attempts", "1");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let letters = letters(&client, 3).await;
        receiver.decide(|_, _| Verdict::Late);
        client
            .call("webhooks.replay", json!({ "webhook": "audit" }))
            .await;
        let attempts = receiver.until("the first one", |all| all.len() == 4);
        assert_eq!(attempts[3].cursor(), letters[0]);
        let dropped = json!({ "webhook": "audit", "ids": [letters[1]] });
        client.call("webhooks.drop", dropped).await;
        receiver.let_go();
        until(&client, "no letters", |one| one["deadLetters"] == 0).await;
        let sent: Vec<i64> = receiver.attempts()[3..]
            .iter()
            .map(Attempt::cursor)
            .collect();
        assert_eq!(sent, [letters[0], letters[2]]);
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Each request comes while the failure of the attempt before it is not stored yet.
#[test]
fn a_replay_that_is_requested_during_an_earlier_one_is_carried_out() {
    run(async {
        let receiver = Receiver::start();
        receiver.decide(|_, _| Verdict::Status(500));
        let place = place(&receiver).with("webhooks.audit.attempts", "1");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let letters = letters(&client, 1).await;
        for attempts in 2..8 {
            let replay = json!({ "webhook": "audit", "ids": letters });
            client.call("webhooks.replay", replay).await;
            receiver.until("the attempt", |all| all.len() >= attempts);
        }
        until(&client, "the failures", |one| one["failed"] == 7).await;
        let dead = json!({ "webhook": "audit" });
        let dead = client.call("webhooks.dead", dead).await;
        assert_eq!(dead["letters"][0]["replaying"], false, "{dead}");
        assert_eq!(receiver.attempts().len(), 7);
        assert_eq!(daemon.stop().await, 0);
    });
}

/// The texts of all files below the folder, but for the settings.
fn stored(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            stored(&path, found);
        } else if path.is_file() && path.file_name().unwrap() != "abide.toml" {
            let text = fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            found.push((path.display().to_string(), text));
        }
    }
}

fn output(place: &Place, arguments: &[&str]) -> String {
    let output = place.command(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn the_query_of_a_receiver_is_sent_and_never_displayed() {
    const CANARY: &str = "canary-of-the-query";
    run(async {
        let receiver = Receiver::start();
        receiver.decide(|_, _| Verdict::Echo);
        let url = format!("{}?v=1&sig={CANARY}", receiver.url());
        let mut place = place(&receiver)
            .with("webhooks.audit.url", &format!("{url:?}"))
            .with("webhooks.audit.attempts", "1")
            .with("log.level", "\"debug\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        letters(&client, 1).await;
        let path = &receiver.attempts()[0].path;
        assert_eq!(path, &format!("/hook?v=1&sig={CANARY}"));

        let mut displayed = Vec::new();
        for (method, params) in [
            ("webhooks.list", json!({})),
            ("webhooks.dead", json!({ "webhook": "audit" })),
            ("gateway.config", json!({})),
        ] {
            displayed.push(client.call(method, params).await.to_string());
        }
        let shown = format!("{}?[secret]", receiver.url());
        assert!(displayed[0].contains(&shown), "{}", displayed[0]);
        assert!(displayed[0].contains("cannot POST"), "{}", displayed[0]);
        assert!(displayed[2].contains(&shown), "{}", displayed[2]);
        for arguments in [
            &["webhooks"][..],
            &["webhooks", "dead", "audit"],
            &["--json", "webhooks"],
            &["doctor"],
            &["config", "show"],
            &["config", "check"],
            &["audit"],
            &["status"],
        ] {
            displayed.push(output(&place, arguments));
        }
        // Another query, and an address that is refused.
        place.set("webhooks.audit.url", &format!("\"{url}-2\""));
        let reloaded = client.call("gateway.reload", json!({})).await;
        displayed.push(reloaded.to_string());
        assert!(reloaded.to_string().contains("webhooks.audit.url"));
        place.set("webhooks.audit.url", &format!("\"ftp://x?sig={CANARY}\""));
        let refused = client.refused("gateway.reload", json!({})).await;
        assert!(refused.message.contains("webhooks.audit.url"), "{refused}");
        displayed.push(format!("{refused:?}"));
        displayed.push(output(&place, &["config", "check"]));
        displayed.push(output(&place, &["audit"]));
        assert_eq!(daemon.stop().await, 0);
        for one in &displayed {
            assert!(!one.contains(CANARY), "{one}");
        }
        let mut files = Vec::new();
        stored(place.path(), &mut files);
        assert!(files.iter().any(|(name, _)| name.ends_with(".db")));
        for (name, text) in files {
            assert!(!text.contains(CANARY), "{name}");
        }
    });
}
