//! A provider that accepts no requests: all runs with its key wait for it, users can see that, and
//! one run alone tries it again first.

use serde_json::{Value, json};

use super::place;
use crate::harness::{Daemon, Link, ModelServer, Place, Reply, chat, eventually, messages, run};

fn busy(seconds: &str) -> Reply {
    Reply::status(429, "slow down").with_header("retry-after", seconds)
}

async fn health(client: &Link, name: &str) -> Value {
    let status = client.call("gateway.status", json!({})).await;
    let providers = status["providers"].as_array().unwrap();
    let own = providers.iter().find(|one| one["name"] == name).unwrap();
    own["health"].clone()
}

fn printed(place: &Place, arguments: &[&str]) -> String {
    let output = place.command(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

async fn started(place: &Place) -> (Daemon, Link) {
    let daemon = place.start().await;
    let client = daemon.client().await;
    (daemon, client)
}

#[test]
fn what_one_run_is_told_binds_all_runs_with_the_same_key_and_is_seen() {
    let server = ModelServer::start();
    server.on("[a]", [busy("4"), chat::says(&["a is done"])]);
    server.on("[b]", [chat::says(&["b is done"])]);
    let place = place(&server, "chat/small");
    run(async {
        let (_daemon, client) = started(&place).await;
        let mut events = client.subscribe(json!({})).await;
        let first = client.spawn(json!({ "task": "[a]" })).await;
        client.in_state(&first.id, "paused").await;
        let second = client
            .spawn(json!({ "task": "[b]", "model": "chat/other" }))
            .await;
        client.in_state(&second.id, "paused").await;
        assert_eq!(server.requests().len(), 1, "the second asks nothing");

        for id in [&first.id, &second.id] {
            let shown = client.run(id).await;
            assert_eq!(shown["pauseReason"], "provider", "{shown}");
            let wait = &shown["providerWait"];
            assert!(
                wait["reason"].as_str().unwrap().contains("slow down"),
                "{shown}"
            );
            assert!(
                wait["until"].as_str().unwrap() > wait["since"].as_str().unwrap(),
                "{shown}"
            );
        }
        let seen = health(&client, "chat").await;
        assert_eq!(seen["state"], "paused", "{seen}");
        assert!(
            seen["reason"].as_str().unwrap().contains("slow down"),
            "{seen}"
        );
        let listed = printed(&place, &["ps"]);
        assert!(listed.contains("paused: provider"), "{listed}");
        let status = printed(&place, &["status"]);
        assert!(
            status.contains("provider chat takes no requests"),
            "{status}"
        );

        assert_eq!(client.ended(&first.id).await["result"], "a is done");
        assert_eq!(client.ended(&second.id).await["result"], "b is done");
        assert_eq!(server.requests().len(), 3);
        let mut told = Vec::new();
        while told.len() < 3 {
            let event = events.next().await.unwrap().unwrap();
            match event.kind.as_str() {
                "run.paused" => {
                    assert_eq!(event.data["pause"], "provider");
                    assert!(event.data["until"].is_string() && event.data["reason"].is_string());
                    told.push("run.paused".to_owned());
                }
                "provider.health" => {
                    assert_eq!(event.data["provider"], "chat");
                    told.push(event.data["state"].as_str().unwrap().to_owned());
                }
                _ => {}
            }
        }
        told.sort();
        assert_eq!(told, ["paused", "run.paused", "run.paused"]);
        let mut state = Value::Null;
        while state != "recovering" {
            let event = events.next().await.unwrap().unwrap();
            if event.kind == "provider.health" {
                state = event.data["state"].clone();
            }
        }
    });
}

#[test]
fn one_run_looks_whether_a_provider_is_back_and_not_all_of_them() {
    let server = ModelServer::start();
    server.on("", vec![busy("2"); 3]);
    server.on("", vec![chat::says(&["done"]); 12]);
    let place = place(&server, "chat/small").with("lanes.subagent", "12");
    run(async {
        let (_daemon, client) = started(&place).await;
        let first = client.spawn(json!({ "task": "[job]" })).await;
        client.in_state(&first.id, "paused").await;
        let mut runs = vec![first.id];
        for _ in 0..11 {
            runs.push(client.spawn(json!({ "task": "[job]" })).await.id);
        }
        eventually("three refusals", async || {
            (health(&client, "chat").await["failures"] == 3).then_some(())
        })
        .await;
        assert_eq!(server.requests().len(), 3, "one at a time");
        for id in &runs {
            assert_eq!(client.ended(id).await["result"], "done");
        }
        assert_eq!(server.requests().len(), 15);
    });
}

#[test]
fn a_cancel_ends_the_wait_at_once() {
    let server = ModelServer::start();
    server.on("", [busy("600")]);
    let place = place(&server, "chat/small");
    run(async {
        let (_daemon, client) = started(&place).await;
        let spawned = client.spawn(json!({ "task": "[job]" })).await;
        client.in_state(&spawned.id, "paused").await;
        client
            .call("runs.cancel", json!({ "runId": spawned.id }))
            .await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["state"], "cancelled", "{ended}");
        assert!(ended.get("providerWait").is_none(), "{ended}");
    });
}

/// Takes some 5 s: the run's limit has a resolution of seconds and is waited for in full.
#[test]
fn a_run_waits_up_to_its_own_limit_and_the_wait_counts() {
    let server = ModelServer::start();
    server.on("", vec![Reply::status(529, "Overloaded"); 40]);
    let place = place(&server, "chat/small").with("providers.chat.retry_wait", "\"200ms\"");
    run(async {
        let (_daemon, client) = started(&place).await;
        let params = json!({ "task": "[job]", "runTimeout": 5 });
        let spawned = client.spawn(params).await;
        client.in_state(&spawned.id, "paused").await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["state"], "timeout", "{ended}");
        let message = ended["error"]["message"].as_str().unwrap();
        assert!(message.contains("provider"), "{message}");
        let steps = client
            .call("runs.steps", json!({ "runId": spawned.id }))
            .await;
        assert!(
            steps["steps"][0]["error"]
                .as_str()
                .unwrap()
                .contains("Overloaded"),
            "{steps}"
        );
        assert!(
            server.requests().len() < 8,
            "{} requests",
            server.requests().len()
        );
    });
}

#[test]
fn a_provider_is_waited_for_as_long_as_its_setting_says() {
    let server = ModelServer::start();
    server.on("", vec![Reply::status(503, "busy"); 40]);
    let place = place(&server, "chat/small")
        .with("providers.chat.retry_wait", "\"200ms\"")
        .with("providers.chat.max_wait", "\"3s\"");
    run(async {
        let (_daemon, client) = started(&place).await;
        let spawned = client.spawn(json!({ "task": "[job]" })).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["error"]["kind"], "provider", "{ended}");
        let message = ended["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("max_wait") && message.contains("busy"),
            "{message}"
        );
    });
}

#[test]
fn a_kill_in_the_wait_loses_nothing() {
    let server = ModelServer::start();
    let call = chat::calls(&[("a", "read", r#"{"path": "notes.txt"}"#)]);
    server.on("[job]", [call, busy("2"), chat::says(&["done"])]);
    let place = place(&server, "chat/small");
    run(async {
        let (daemon, client) = started(&place).await;
        let spawned = client.spawn(json!({ "task": "[job]" })).await;
        client.in_state(&spawned.id, "paused").await;
        let before = client.run(&spawned.id).await;
        daemon.kill().await;
        let (_daemon, client) = started(&place).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "done", "{ended}");
        assert_eq!(
            (&ended["loops"], &ended["toolCalls"]),
            (&json!(2), &json!(1))
        );
        assert!(
            ended["endedAt"].as_str() > before["providerWait"]["until"].as_str(),
            "{ended}"
        );
        assert_eq!(server.requests().len(), 3);
    });
}

#[test]
fn another_model_is_asked_rather_than_waiting_also_one_of_the_same_provider() {
    for others in ["[\"claude/big\"]", "[\"chat/large\"]"] {
        let server = ModelServer::start();
        server.on("\"model\":\"small\"", [busy("600")]);
        let answer =
            messages::answers(&[json!({ "type": "text", "text": "stood in" })], "end_turn");
        server.on("\"model\":\"big\"", vec![answer; 2]);
        server.on("\"model\":\"large\"", vec![chat::says(&["stood in"]); 2]);
        let place = place(&server, "chat/small").with("defaults.fallback_models", others);
        run(async {
            let (_daemon, client) = started(&place).await;
            for _ in 0..2 {
                let spawned = client.spawn(json!({ "task": "[job]" })).await;
                let ended = client.ended(&spawned.id).await;
                assert_eq!(ended["result"], "stood in", "{others}: {ended}");
                let warnings = ended["warnings"].to_string();
                assert!(warnings.contains("slow down"), "{warnings}");
            }
            assert_eq!(
                server.requests().len(),
                3,
                "{others}: the first is asked once"
            );
        });
    }
}

/// The new settings may contain the missing key.
#[test]
fn runs_that_wait_ask_at_once_when_the_provider_has_other_settings() {
    let server = ModelServer::start();
    server.on("", [busy("600"), chat::says(&["done"])]);
    let mut place = place(&server, "chat/small");
    let key = place.path().join("key");
    std::fs::write(&key, "another-key").unwrap();
    run(async {
        let (_daemon, client) = started(&place).await;
        let spawned = client.spawn(json!({ "task": "[job]" })).await;
        client.in_state(&spawned.id, "paused").await;
        place.set("providers.chat.api_key_file", &format!("{key:?}"));
        client.call("gateway.reload", json!({})).await;
        assert_eq!(client.ended(&spawned.id).await["result"], "done");
    });
}
