//! What two orgs see of each other beside the methods: events, live and from the log, over both
//! transports; metrics; idempotency keys; and the org and user of a run's programs and descendants.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use abide::wire::events::Event;
use serde_json::{Value, json};

use super::{ALL, http, token, user_of};
use crate::harness::{Daemon, Link, Place, Script, calls, kind_of, run, says};

fn place() -> Place {
    Place::new(
        Script::new()
            .on(
                "[say]",
                [says("a longer text of zanzibar in pieces").in_pieces(4, 100, "never")],
            )
            .on(
                "[nest]",
                [
                    calls("task", json!({"description": "Say", "prompt": "[say] below", "subagent_type": "explore"})),
                    says("nested"),
                ],
            )
            .on_announce("[", [says("NO_REPLY")]),
    )
}

/// Works in the first org, then creates a session in the other org.
async fn work(owner: &Link, other: &Link, signal: &str) {
    let spawned = owner.spawn(json!({"task": "[say]"})).await;
    owner.ended(&spawned.id).await;
    other
        .call(
            "sessions.create",
            json!({"agent": "build", "key": format!("agent:build:{signal}")}),
        )
        .await;
}

/// Reads a server-sent stream up to the line with `signal`.
async fn streamed(daemon: &Daemon, token: &str, signal: &str) -> Vec<Value> {
    let address = daemon.url().strip_prefix("http://").unwrap().to_owned();
    let request = format!(
        "GET /events?since=0&deltas=true HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer \
         {token}\r\n\r\n"
    );
    let signal = signal.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut events = Vec::new();
        for line in BufReader::new(stream).lines() {
            let line = line.unwrap();
            if let Some(data) = line.strip_prefix("data: ") {
                events.push(serde_json::from_str(data).unwrap());
                if data.contains(&signal) {
                    break;
                }
            }
        }
        events
    });
    reading.await.unwrap()
}

#[test]
fn events_live_and_from_the_log_are_those_of_the_own_org() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let owner = daemon.client().await;
        let params = json!({"user": "eve", "org": "other", "scopes": ALL});
        let text = token(&owner, params).await;
        let other = daemon.client_with(&text).await;
        let mut live = other.subscribe(json!({"deltas": true})).await;
        work(&owner, &other, "first").await;
        let mut from_log = other.subscribe(json!({"since": 0, "deltas": true})).await;
        let hidden = |event: &Event| {
            let shown = serde_json::to_string(event).unwrap();
            assert!(
                !shown.contains("zanzibar") && !shown.contains("explore"),
                "{shown}"
            );
            let org = event.org_id.as_deref();
            let own = event.kind == "snapshot" || event.kind.starts_with("gateway.");
            assert!(org == Some("other") || own, "{shown}");
            event
                .session_key
                .as_ref()
                .is_some_and(|key| key.as_str() == "agent:build:first")
        };
        for subscription in [&mut live, &mut from_log] {
            while !hidden(&subscription.next().await.unwrap().unwrap()) {}
        }
        let shown = streamed(&daemon, &text, "agent:build:first").await;
        assert!(!shown.is_empty());
        for event in shown {
            let event: Event = serde_json::from_value(event).unwrap();
            hidden(&event);
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn metrics_are_for_the_org_of_the_owner_and_the_scope_read() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let owner = daemon.client().await;
        for (org, scopes, status) in [
            ("other", ALL, "403"),
            ("default", &["run", "admin"][..], "403"),
            ("default", &["read"][..], "200"),
        ] {
            let params = json!({"user": "eve", "org": org, "scopes": scopes});
            let text = token(&owner, params).await;
            let answer = http(&daemon, &text, "GET /metrics", "").await.unwrap().text;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{answer}"
            );
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn the_same_idempotency_key_in_two_orgs_stands_for_two_requests() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let owner = daemon.client().await;
        let other = user_of(&daemon, "other", ALL).await;
        let params = json!({"task": "[say]", "agent": "explore", "idempotencyKey": "one"});
        let mine = owner.call("sessions.spawn", params.clone()).await;
        // Other parameters with the key of another org are no conflict.
        let mut theirs = params.clone();
        theirs["task"] = json!("[say] again");
        let theirs_first = other.call("sessions.spawn", theirs.clone()).await;
        assert_ne!(mine["runId"], theirs_first["runId"]);
        assert_eq!(
            owner.call("sessions.spawn", params).await["runId"],
            mine["runId"]
        );
        let again = other.call("sessions.spawn", theirs).await;
        assert_eq!(again["runId"], theirs_first["runId"]);
        owner.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn every_descendant_has_the_org_and_the_user_of_its_root_run() {
    run(async {
        let place = place().with_agent("lead", "tools: [task]\nallow_agents: [explore]");
        let daemon = place.start().await;
        let other = user_of(&daemon, "other", &["read", "run"]).await;
        let spawned = other
            .spawn(json!({"task": "[nest]", "agent": "lead"}))
            .await;
        let root = other.ended(&spawned.id).await;
        assert_eq!(root["state"], "ok", "{root}");
        let tree = other.call("runs.list", json!({"tree": spawned.id})).await;
        assert_eq!(tree["runs"].as_array().unwrap().len(), 2, "{tree}");
        let usage = other.call("usage.summary", json!({"by": "user"})).await;
        assert_eq!(usage["rows"][0]["name"], "eve", "{usage}");
        assert_eq!(usage["rows"][0]["calls"], 2, "{usage}");
        let owner = daemon.client().await;
        let usage = owner.call("usage.summary", json!({"by": "user"})).await;
        assert_eq!(usage["rows"], json!([]), "{usage}");
        let missing = owner
            .refused("runs.get", json!({"runId": spawned.id}))
            .await;
        assert_eq!(kind_of(&missing), "not_found");
        assert_eq!(daemon.stop().await, 0);
        let db = rusqlite::Connection::open(place.database()).unwrap();
        let sql = "SELECT count(*) FROM runs WHERE org = 'other' AND user = 'eve'";
        let count: i64 = db.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(count, 2);
    });
}
