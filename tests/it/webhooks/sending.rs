//! What is sent, to whom, in which order, how often, and after which wait.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::json;

use super::receiver::{Attempt, Receiver, Verdict};
use super::{SECRET, accepted_of, ended_run, place, shown, until, with_webhook, without_webhook};
use crate::harness::peers::{python, skipped};
use crate::harness::{Faults, Place, Script, run, says};

/// Cursors of events, by run.
type ByRun = BTreeMap<String, Vec<i64>>;

/// The first accepted attempt of each event came in the order of its run's events.
fn assert_in_order(delivered: &[Attempt]) {
    let mut by_run = ByRun::new();
    for one in delivered {
        let run = one.run().unwrap_or_default().to_owned();
        by_run.entry(run).or_default().push(one.cursor());
    }
    for (run, cursors) in by_run {
        assert!(cursors.is_sorted(), "{run}: {cursors:?}");
    }
}

#[test]
fn an_event_is_sent_as_clients_get_it_and_signed() {
    run(async {
        let receiver = Receiver::start();
        let place = place(&receiver);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = ended_run(&client).await;
        let attempts = receiver.until("the end", |all| accepted_of(all, &run) == 1);
        let sent = &attempts[0];
        assert_eq!((sent.kind(), sent.path.as_str()), ("run.ended", "/hook"));
        assert_eq!(sent.body["timestamp"], sent.body["data"]["at"]);
        let mut events = client.subscribe(json!({ "since": 0 })).await;
        let event = loop {
            let event = events.next().await.unwrap().unwrap();
            if event.kind == "run.ended" {
                break serde_json::to_value(event).unwrap();
            }
        };
        assert_eq!(sent.body["data"], event);
        let keys: Vec<&String> = sent.body.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["type", "timestamp", "data"]);
        assert!(!sent.id.contains('.') && sent.signature.starts_with("v1,"));
        let webhook = until(&client, "progress", |one| one["delivered"] == 1).await;
        assert_eq!(webhook["state"], "active", "{webhook}");
        assert_eq!(webhook["waiting"], 0, "{webhook}");
        assert_eq!(daemon.stop().await, 0);
    });
}

/// The package that the authors of Standard Webhooks publish verifies a message.
#[test]
fn the_official_library_verifies_messages_while_a_secret_is_changed() {
    run(async {
        let python = match python() {
            Ok(python) => python,
            Err(why) => return skipped("the check of signatures", &why),
        };
        let newer = "whsec_b3RoZXItc2VjcmV0LW90aGVyLXNlY3JldA==";
        let receiver = Receiver::start();
        let mut place = place(&receiver);
        place.set("webhooks.audit.secret", &format!("{newer:?}"));
        place.set("webhooks.audit.previous_secret", &format!("{SECRET:?}"));
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = ended_run(&client).await;
        let attempts = receiver.until("the end", |all| accepted_of(all, &run) == 1);
        let sent = &attempts[0];
        assert_eq!(sent.signature.split(' ').count(), 2, "{}", sent.signature);
        let check = "import sys, json\n\
            from standardwebhooks.webhooks import Webhook\n\
            secret, body, headers = sys.argv[1:]\n\
            Webhook(secret).verify(body, json.loads(headers))\n";
        let verifies = |secret: &str, body: &str| {
            let headers = json!({
                "webhook-id": sent.id,
                "webhook-timestamp": sent.timestamp.to_string(),
                "webhook-signature": sent.signature,
            });
            let mut verify = Command::new(python.join("bin/python"));
            verify.args(["-c", check, secret, body, &headers.to_string()]);
            verify.output().unwrap().status.success()
        };
        assert!(verifies(newer, &sent.raw) && verifies(SECRET, &sent.raw));
        assert!(!verifies("whsec_c29tZXRoaW5nIGVsc2UgaGVyZQ==", &sent.raw));
        assert!(!verifies(
            newer,
            &sent.raw.replace("run.ended", "run.endet")
        ));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn only_selected_events_are_sent_and_none_from_before_the_webhook() {
    run(async {
        let receiver = Receiver::start();
        let mut place = Place::new(Script::new().on("[job]", [says("done")]));
        let daemon = place.start().await;
        let client = daemon.client().await;
        let before = ended_run(&client).await;
        place = with_webhook(place, &receiver, "[\"run.e*\", \"session.*\"]");
        place.set("webhooks.audit.sessions", "[\"client:*\"]");
        client.call("gateway.reload", json!({})).await;
        until(&client, "the webhook", |one| one["name"] == "audit").await;
        let session = client.session("client", "desk").await;
        assert!(session.starts_with("client:"), "{session}");
        let attempts = receiver.until("the new session", |all| !all.is_empty());
        let other = ended_run(&client).await;
        client.session("client", "second").await;
        let attempts = receiver.until("the second one", |all| all.len() > attempts.len());
        for one in &attempts {
            assert!(one.kind().starts_with("session."), "{one:?}");
            let key = one.body["data"]["sessionKey"].as_str().unwrap();
            assert!(key.starts_with("client:"), "{one:?}");
        }
        assert_eq!(
            accepted_of(&attempts, &before) + accepted_of(&attempts, &other),
            0
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn every_failure_is_repeated_with_the_same_id_until_2xx() {
    run(async {
        let receiver = Receiver::start();
        let elsewhere = Receiver::start();
        let target = elsewhere.url();
        receiver.decide(move |_, nth| match nth {
            0 => Verdict::Status(500),
            1 => Verdict::With(302, "location", target.clone()),
            2 => Verdict::Close,
            3 => Verdict::Hang,
            4 => Verdict::Status(404),
            5 => Verdict::With(301, "location", target.clone()),
            _ => Verdict::Status(204),
        });
        let place = place(&receiver).with("webhooks.audit.timeout", "\"1s\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = ended_run(&client).await;
        let attempts = receiver.until("the end", |all| accepted_of(all, &run) == 1);
        assert_eq!(attempts.len(), 7, "{attempts:#?}");
        let ids: BTreeSet<&String> = attempts.iter().map(|one| &one.id).collect();
        assert_eq!(ids.len(), 1, "{ids:?}");
        let bodies: BTreeSet<&String> = attempts.iter().map(|one| &one.raw).collect();
        assert_eq!(bodies.len(), 1);
        assert!(elsewhere.attempts().is_empty(), "a redirect was followed");
        let webhook = until(&client, "the delivery", |one| one["delivered"] == 1).await;
        assert_eq!(
            (&webhook["failed"], &webhook["deadLetters"]),
            (&json!(6), &json!(0))
        );
        let why = webhook["failure"].as_str().unwrap();
        assert!(
            why.contains("301") && why.contains("redirects are not followed"),
            "{why}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_run_that_fails_holds_up_its_own_events_alone() {
    run(async {
        let receiver = Receiver::start();
        let place = Place::new(Script::new().on("[job]", [says("done")]));
        let place = with_webhook(place, &receiver, "[\"run.*\"]");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let poison = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let refused = std::sync::Arc::clone(&poison);
        receiver.decide(move |attempt, _| {
            let mut poison = refused.lock().unwrap();
            if poison.is_empty() {
                *poison = attempt.run().unwrap().to_owned();
            }
            match attempt.run() == Some(poison.as_str()) {
                true => Verdict::Status(503),
                false => Verdict::Status(200),
            }
        });
        let first = ended_run(&client).await;
        for _ in 0..5 {
            let other = ended_run(&client).await;
            let is_over = |all: &[Attempt]| {
                let ends = all.iter().filter(|one| one.kind() == "run.ended");
                ends.filter(|one| one.accepted)
                    .any(|one| one.run() == Some(&other))
            };
            receiver.until("the end of another run", is_over);
        }
        assert_eq!(*poison.lock().unwrap(), first);
        let tried: BTreeSet<i64> = receiver
            .attempts()
            .iter()
            .filter(|one| one.run() == Some(&first))
            .map(Attempt::cursor)
            .collect();
        assert_eq!(
            tried.len(),
            1,
            "later events of the run were sent before its first one"
        );
        let webhook = until(&client, "its place", |one| {
            one["cursor"].as_i64() == tried.first().map(|cursor| cursor - 1)
        })
        .await;
        assert_eq!(webhook["deadLetters"], 0, "{webhook}");
        receiver.decide(|_, _| Verdict::Status(200));
        receiver.until("its end", |all| {
            let mut ends = all.iter().filter(|one| one.kind() == "run.ended");
            ends.any(|one| one.run() == Some(&first) && one.accepted)
        });
        assert_in_order(&receiver.delivered());
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn kills_lose_no_event_and_keep_attempts_and_order() {
    run(async {
        let receiver = Receiver::start();
        let place = Place::new(Script::new().on("[job]", [says("done")]));
        let place = with_webhook(place, &receiver, "[\"run.*\"]")
            .with("webhooks.audit.attempts", "50")
            .with("webhooks.audit.timeout", "\"1s\"");
        // Half of all attempts fail, each in another way.
        receiver.decide(|attempt, nth| match (attempt.cursor() as usize + nth) % 8 {
            0 => Verdict::Status(500),
            1 => Verdict::Close,
            2 => Verdict::Status(429),
            3 => Verdict::With(503, "retry-after", "0".to_owned()),
            _ => Verdict::Status(200),
        });
        let mut runs = Vec::new();
        for point in [
            "store.record_webhook.begin=kill@2",
            "store.record_webhook.committed=kill@2",
            "webhook.answered=kill@3",
            "webhook.answered=kill@9",
        ] {
            let mut daemon = place.start_with(&Faults::ordered(point)).await.unwrap();
            let client = daemon.client().await;
            for _ in 0..6 {
                let params = json!({ "task": "[job]", "agent": "explore" });
                match client.attempt("sessions.spawn", &params).await {
                    Ok(spawned) => runs.push(spawned["runId"].as_str().unwrap().to_owned()),
                    Err(_) => break,
                }
            }
            daemon.ended().await;
        }
        receiver.decide(|_, _| Verdict::Status(200));
        let daemon = place.start().await;
        let client = daemon.client().await;
        for run in &runs {
            client.ended(run).await;
        }
        // The answers to some spawns were lost.
        client.quiet().await;
        let last = ended_run(&client).await;
        receiver.until("the last end", |all| accepted_of(all, &last) > 0);
        until(&client, "all deliveries", |one| one["waiting"] == 0).await;
        assert_eq!(daemon.stop().await, 0);
        let book = place.book();
        let expected: Vec<i64> = book
            .events
            .values()
            .filter(|event| event.kind.starts_with("run."))
            .map(|event| event.cursor)
            .collect();
        let delivered = receiver.delivered();
        let mut arrived: Vec<i64> = delivered.iter().map(Attempt::cursor).collect();
        arrived.sort_unstable();
        assert_eq!(arrived, expected);
        assert_in_order(&delivered);
        for one in receiver.attempts() {
            let same = delivered
                .iter()
                .find(|other| other.cursor() == one.cursor());
            assert_eq!(same.map(|same| &same.id), Some(&one.id));
        }
    });
}

#[test]
fn a_wait_goes_on_over_a_restart_and_so_do_the_attempts() {
    run(async {
        let receiver = Receiver::start();
        receiver.decide(|_, _| Verdict::Status(500));
        let mut place = place(&receiver).with("webhooks.audit.retry_wait", "\"1h\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = ended_run(&client).await;
        receiver.until("an attempt", |all| all.len() == 1);
        until(&client, "its failure", |one| one["failed"] == 1).await;
        daemon.kill().await;
        receiver.decide(|_, _| Verdict::Status(200));
        let daemon = place.start().await;
        let client = daemon.client().await;
        let other = ended_run(&client).await;
        receiver.until("another event", |all| accepted_of(all, &other) == 1);
        assert_eq!(
            accepted_of(&receiver.attempts(), &run),
            0,
            "it was sent before its time"
        );
        assert_eq!(daemon.stop().await, 0);

        // An hour later the second of two attempts is the last one.
        receiver.decide(|_, _| Verdict::Status(500));
        place.set("webhooks.audit.attempts", "2");
        let ahead = Faults::ordered("clock.ahead=give:7200000@1+");
        let daemon = place.start_with(&ahead).await.unwrap();
        let client = daemon.client().await;
        until(&client, "the dead letter", |one| one["deadLetters"] == 1).await;
        let tries = receiver.attempts();
        let of_run = tries.iter().filter(|one| one.run() == Some(&run));
        assert_eq!(of_run.count(), 2);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_receiver_that_asks_for_a_wait_gets_it() {
    run(async {
        let receiver = Receiver::start();
        receiver.decide(|_, _| Verdict::With(429, "retry-after", "3000".to_owned()));
        let place = place(&receiver);
        let daemon = place.start().await;
        let client = daemon.client().await;
        ended_run(&client).await;
        receiver.until("an attempt", |all| all.len() == 1);
        until(&client, "its failure", |one| one["failed"] == 1).await;
        // Neither this event, whose own wait is short, nor one of another run is sent now.
        ended_run(&client).await;
        let webhook = until(&client, "both events", |one| one["waiting"] == 2).await;
        assert_eq!(
            (&webhook["failed"], &webhook["state"]),
            (&json!(1), &json!("failing"))
        );
        assert_eq!(receiver.attempts().len(), 1);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn private_addresses_are_refused_unless_the_table_allows_them() {
    run(async {
        let receiver = Receiver::start();
        let port = receiver.url();
        let port = port.rsplit(':').next().unwrap().to_owned();
        for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"] {
            let mut place = place(&receiver).with("webhooks.audit.attempts", "1");
            place.unset("webhooks.audit.allow_private");
            place.set("webhooks.audit.url", &format!("\"http://{host}:{port}\""));
            let daemon = place.start().await;
            let client = daemon.client().await;
            ended_run(&client).await;
            let webhook = until(&client, "the dead letter", |one| one["deadLetters"] == 1).await;
            let why = webhook["failure"].as_str().unwrap();
            assert!(why.contains("is not a public address"), "{host}: {why}");
            assert!(why.contains("allow_private is not set"), "{host}: {why}");
            assert_eq!(daemon.stop().await, 0);
        }
        assert_eq!(receiver.connections(), 0);
    });
}

#[test]
fn a_receiver_that_is_gone_stops_the_webhook_until_its_table_changes() {
    run(async {
        let receiver = Receiver::start();
        receiver.decide(|_, _| Verdict::Status(410));
        let mut place = place(&receiver);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let first = ended_run(&client).await;
        until(&client, "the stop", |one| one["state"] == "stopped").await;
        let second = ended_run(&client).await;
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(shown(&client).await["state"], "stopped");
        until(&client, "both events", |one| one["waiting"] == 2).await;
        assert_eq!(receiver.attempts().len(), 1);

        receiver.decide(|_, _| Verdict::Status(200));
        place.set("webhooks.audit.attempts", "3");
        client.call("gateway.reload", json!({})).await;
        receiver.until("both ends", |all| {
            accepted_of(all, &first) == 1 && accepted_of(all, &second) == 1
        });
        until(&client, "its state", |one| one["state"] == "active").await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_removed_webhook_keeps_its_place_and_one_without_a_secret_waits_for_it() {
    run(async {
        let receiver = Receiver::start();
        let mut place = place(&receiver);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let first = ended_run(&client).await;
        receiver.until("the end", |all| accepted_of(all, &first) == 1);
        until(&client, "its progress", |one| one["delivered"] == 1).await;
        without_webhook(&mut place);
        client.call("gateway.reload", json!({})).await;
        until(&client, "the removal", |one| one["state"] == "removed").await;
        let second = ended_run(&client).await;
        assert_eq!(daemon.stop().await, 0);

        let key = place.path().join("key");
        let mut place = with_webhook(place, &receiver, "[\"run.ended\"]");
        let from = format!("{{ from = {:?} }}", format!("file:{}", key.display()));
        place.set("webhooks.audit.secret", &from);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let webhook = until(&client, "the missing key", |one| one["state"] == "blocked").await;
        let why = webhook["failure"].as_str().unwrap();
        assert!(why.starts_with("secret: ") && why.contains("key"), "{why}");
        assert_eq!(accepted_of(&receiver.attempts(), &second), 0);
        std::fs::write(&key, SECRET).unwrap();
        receiver.until("the end", |all| accepted_of(all, &second) == 1);
        let settings = client.call("gateway.config", json!({})).await.to_string();
        assert!(!settings.contains(SECRET));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn events_that_retention_removes_before_they_are_read_are_counted() {
    run(async {
        let receiver = Receiver::start();
        let mut place = place(&receiver);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = ended_run(&client).await;
        receiver.until("the end", |all| accepted_of(all, &run) == 1);
        until(&client, "its progress", |one| one["delivered"] == 1).await;
        assert_eq!(daemon.stop().await, 0);

        without_webhook(&mut place);
        place.set("retention.events", "\"1ms\"");
        place.set("retention.sweep_each", "\"20ms\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        for _ in 0..3 {
            ended_run(&client).await;
        }
        let webhook = until(&client, "the missed events", |one| one["missed"] == 3).await;
        assert_eq!(webhook["state"], "removed", "{webhook}");
        assert_eq!(daemon.stop().await, 0);

        place.unset("retention.events");
        let place = with_webhook(place, &receiver, "[\"run.ended\"]");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let last = ended_run(&client).await;
        receiver.until("the last end", |all| accepted_of(all, &last) == 1);
        let webhook = until(&client, "its progress", |one| one["delivered"] == 2).await;
        assert_eq!(webhook["missed"], 3, "{webhook}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_late_answer_counts_and_a_kill_before_it_repeats_the_message() {
    run(async {
        let receiver = Receiver::start();
        receiver.decide(|_, _| Verdict::Late);
        let place = place(&receiver);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = ended_run(&client).await;
        receiver.until("an attempt", |all| all.len() == 1);
        let webhook = shown(&client).await;
        assert_eq!(
            (&webhook["delivered"], &webhook["waiting"]),
            (&json!(0), &json!(1))
        );
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let attempts = receiver.until("the second attempt", |all| all.len() == 2);
        assert_eq!(attempts[0].id, attempts[1].id);
        receiver.let_go();
        let webhook = until(&client, "the delivery", |one| one["delivered"] == 1).await;
        assert_eq!(
            (&webhook["failed"], &webhook["waiting"]),
            (&json!(0), &json!(0))
        );
        assert!(accepted_of(&receiver.attempts(), &run) > 0);
        assert_eq!(receiver.attempts().len(), 2);
        assert_eq!(daemon.stop().await, 0);
    });
}
