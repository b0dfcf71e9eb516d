//! Usage, duration and cost: sums that survive a restart, and alerts.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::{
    Link, ModelServer, Place, Reply, Script, Spawned, chat, fails, kind_of, run, says,
};
use crate::providers;

/// An answer with a provider count of `tokens` input and 10 output tokens.
fn counted(text: &str, tokens: u64) -> Reply {
    let piece = json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    let usage = json!({ "choices": [],
        "usage": { "prompt_tokens": tokens, "completion_tokens": 10 } });
    let events = [piece, end, usage].map(|event| event.to_string());
    chat::events(&[&events[0], &events[1], &events[2], "[DONE]"])
}

fn priced(server: &ModelServer) -> Place {
    providers::place(server, "chat/small")
        .with("prices.\"chat/small\".input", "1.0")
        .with("prices.\"chat/small\".output", "10.0")
}

async fn ended(client: &Link, session: &str, message: &str) -> Value {
    let turn = client.turn(session, message).await;
    client.ended(&turn.id).await
}

/// Rows by name, without their durations.
async fn rows(client: &Link, params: Value) -> BTreeMap<String, Value> {
    let summary = client.call("usage.summary", params).await;
    let rows = summary["rows"].as_array().unwrap().iter().cloned();
    rows.map(|mut row| {
        for name in ["p50Ms", "p95Ms"] {
            row.as_object_mut().unwrap().remove(name);
        }
        let name = row.as_object_mut().unwrap().remove("name").unwrap();
        (name.as_str().unwrap().to_owned(), row)
    })
    .collect()
}

fn row(runs: [u64; 3], models: [u64; 4]) -> Value {
    let [ok, failed, cancelled] = runs;
    let [calls, input, output, cost] = models;
    json!({
        "calls": ok + failed + cancelled, "ok": ok, "failed": failed, "cancelled": cancelled,
        "modelCalls": calls, "inputTokens": input, "outputTokens": output, "costMicros": cost,
    })
}

#[test]
fn b3_use_is_summed_by_what_is_asked_for_and_the_same_after_a_restart() {
    let server = ModelServer::start();
    server.on("[one]", [counted("first", 100)]);
    server.on("[two]", [counted("second", 300)]);
    server.on("[kid]", [counted("third", 1000)]);
    server.on("[bad]", [Reply::status(401, "no key")]);
    let place = priced(&server);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        ended(&client, "agent:build:a", "[one]").await;
        ended(&client, "agent:build:a", "[two]").await;
        ended(&client, "agent:build:b", "[bad]").await;
        let kid = client
            .spawn(
                json!({ "task": "[kid]", "agent": "explore", "parent": "agent:build:a",
                           "announce": "inbox" }),
            )
            .await;
        client.ended(&kid.id).await;

        looks_the_same(&client, &kid).await;
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        looks_the_same(&client, &kid).await;

        // One tree, independent of other runs.
        let params = json!({ "by": "agent", "tree": kid.id });
        assert_eq!(rows(&client, params).await.len(), 1);
        let params = json!({ "by": "agent", "sessionKey": "agent:build:a", "agent": "build" });
        assert_eq!(rows(&client, params).await["build"]["ok"], 2);
        let params = json!({ "by": "model", "agent": "explore" });
        assert_eq!(rows(&client, params).await["chat/small"]["calls"], 1);
        let old = json!({ "until": "2020-01-01T00:00:00.000Z" });
        assert!(rows(&client, old).await.is_empty());

        let summary = client.call("usage.summary", json!({ "limit": 1 })).await;
        assert_eq!(summary["omitted"], 1, "{summary}");
        assert_eq!(summary["rows"][0]["name"], "explore", "{summary}");
        assert_eq!(summary["total"]["calls"], 4, "{summary}");
        let (half, most) = (&summary["total"]["p50Ms"], &summary["total"]["p95Ms"]);
        assert!(
            half.as_u64().unwrap() <= most.as_u64().unwrap(),
            "{summary}"
        );
        for (params, path) in [
            (json!({ "by": "weather" }), "by"),
            (json!({ "sessionKey": "agent:no:one" }), "sessionKey"),
            (
                json!({ "since": "2030-01-01T00:00:00.000Z", "until": "2020-01-01T00:00:00.000Z" }),
                "since",
            ),
        ] {
            let refused = client.refused("usage.summary", params).await;
            assert_eq!(kind_of(&refused), "invalid_params", "{refused}");
            assert!(refused.to_string().contains(path), "{refused}");
        }
    });
}

async fn looks_the_same(client: &Link, kid: &Spawned) {
    let by = async |by: &str| rows(client, json!({ "by": by })).await;
    let build = row([2, 1, 0], [2, 400, 20, 600]);
    let explore = row([1, 0, 0], [1, 1000, 10, 1100]);
    let all = row([3, 1, 0], [3, 1400, 30, 1700]);
    let agents = by("agent").await;
    assert_eq!(agents["build"], build);
    assert_eq!(agents["explore"], explore);
    assert_eq!(agents.len(), 2);
    assert_eq!(by("org").await["default"], all);
    assert_eq!(by("model").await["chat/small"], all);
    assert_eq!(by("user").await.len(), 1);
    let sessions = by("session").await;
    assert_eq!(sessions["agent:build:a"], row([2, 0, 0], [2, 400, 20, 600]));
    assert_eq!(sessions["agent:build:b"], row([0, 1, 0], [0, 0, 0, 0]));
    assert_eq!(sessions[&kid.session], explore);
    assert_eq!(by("tree").await[&kid.id], explore);
}

/// The threshold alerts: threshold and hour of each.
fn alerts(place: &Place) -> Vec<(String, String)> {
    let events = place.book().events.into_values();
    events
        .filter(|event| event.kind == "usage.alert")
        .map(|event| {
            let text = |name: &str| event.data[name].as_str().unwrap().to_owned();
            (text("threshold"), text("since"))
        })
        .collect()
}

#[test]
fn b3_a_threshold_that_is_passed_is_told_once_an_hour() {
    let server = ModelServer::start();
    server.on(
        "[dear]",
        [counted("a", 900), counted("b", 900), counted("c", 900)],
    );
    server.on("[bad]", (0..12).map(|_| Reply::status(401, "no key")));
    let place = priced(&server)
        .with("alerts.cost_per_hour", "0.0015")
        .with("alerts.failure_rate", "50");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        // The total cost is 0.001, then 0.002, then 0.003.
        for _ in 0..3 {
            ended(&client, "agent:build:a", "[dear]").await;
        }
        for _ in 0..12 {
            ended(&client, "agent:build:b", "[bad]").await;
        }
        daemon.stop().await;
    });
    let mut told = alerts(&place);
    let count = told.len();
    told.sort_unstable();
    told.dedup();
    // At most one alert per hour, even if the hour changed meanwhile.
    assert_eq!(told.len(), count, "{told:?}");
    let of = |what: &str| told.iter().any(|(threshold, _)| threshold == what);
    assert!(of("cost_per_hour") && of("failure_rate"), "{told:?}");
}

#[test]
fn a_person_sees_the_use_on_a_screen() {
    let place = Place::new(
        Script::new()
            .on("[say]", [says("said")])
            .on("[bad]", [fails("no model today")]),
    );
    let typed = |words: &[&str]| {
        let done = place.command(words).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (done.status.code(), text(done.stdout), text(done.stderr))
    };
    run(async {
        let (code, _, note) = typed(&["usage"]);
        assert_eq!(code, Some(10), "{note}");
        let daemon = place.start().await;
        let (_, _, note) = typed(&["usage"]);
        assert!(note.contains("no run has ended"), "{note}");
        let client = daemon.client().await;
        ended(&client, "agent:build:a", "[say]").await;
        ended(&client, "agent:build:a", "[bad]").await;
        let kid = client
            .spawn(json!({ "task": "[say]", "agent": "explore" }))
            .await;
        client.ended(&kid.id).await;
        let (_, table, _) = typed(&["usage", "--since", "7d"]);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].starts_with("RUNS"), "{table}");
        assert_eq!(lines.len(), 4, "{table}");
        assert!(lines.iter().any(|line| line.ends_with("build")), "{table}");
        assert!(
            lines[3].starts_with('3') && lines[3].ends_with("total"),
            "{table}"
        );
        assert!(
            lines.iter().all(|line| line.chars().count() <= 80),
            "{table}"
        );
        let (_, one, _) = typed(&["usage", "--tree", &kid.id, "--json"]);
        let one: Value = serde_json::from_str(&one).unwrap();
        assert_eq!(one["rows"][0]["name"], "explore", "{one}");
    });
}
