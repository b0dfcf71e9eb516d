//! Budgets of tokens and of money, for a run and all its descendants.

use serde_json::{Value, json};

use super::place;
use crate::harness::{Link, ModelServer, Place, Script, calls, chat, run, says};

#[test]
fn a_run_ends_when_its_budget_is_used_up_and_says_what_was_used() {
    let server = ModelServer::start();
    let call = chat::calls(&[("a", "list", "{}")]);
    server.on("", vec![call; 40]);
    let place = place(&server, "chat/small")
        .with("prices.\"chat/small\"", "{ input = 2.0, output = 10.0 }");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        // Each call uses 11 and 3 tokens, which cost 0.000052.
        for (budget, calls, says) in [
            (json!({ "tokens": 30 }), 3, "42 tokens of 30"),
            (json!({ "tokens": 28 }), 2, "28 tokens of 28"),
            (json!({ "cost": 0.000_06 }), 2, "0.000104 of 0.000060"),
        ] {
            let params = json!({ "task": "[job]", "budget": budget });
            let spawned = client.spawn(params).await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["error"]["kind"], "budget", "{ended}");
            let message = ended["error"]["message"].as_str().unwrap();
            assert!(message.contains(says), "{message}");
            assert_eq!(ended["usage"]["modelCalls"], calls);
            assert_eq!(ended["usage"]["costMicros"], 52 * calls);
        }
        let params = json!({ "task": "[job]", "budget": { "cost": 1 }, "model": "chat/other" });
        let spawned = client.spawn(params).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["error"]["kind"], "budget", "{ended}");
        assert!(
            ended["error"]["message"].to_string().contains("prices"),
            "{ended}"
        );
    });
}

/// The tool results in this session.
async fn tool_result_text(client: &Link, session: &str) -> String {
    let history = json!({ "sessionKey": session, "tools": true });
    let history = client.call("sessions.history", history).await;
    let entries = history["messages"].as_array().unwrap().iter();
    entries
        .filter(|entry| entry["kind"] == "tool_result")
        .map(|entry| entry["content"].to_string())
        .collect()
}

/// Each call of the script's model uses 5 tokens.
#[test]
fn what_a_run_asks_others_for_counts_for_its_budget() {
    let task = |what: &str| {
        json!({
            "description": what, "prompt": what, "subagent_type": "explore", "session_id": "",
        })
    };
    let looks = || vec![calls("list", json!({})); 9];
    let script = Script::new()
        .on("[kid a]", looks())
        .on("[kid b]", looks())
        .on(
            "[boss]",
            [
                calls("task", task("[kid a]")).and("task", task("[kid b]")),
                says("never said"),
            ],
        );
    run(async {
        let place = Place::new(script);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "[boss]", "agent": "build", "budget": { "tokens": 30 } }))
            .await;
        let boss = client.ended(&spawned.id).await;
        assert_eq!(boss["error"]["kind"], "budget", "{boss}");
        let list = json!({ "tree": spawned.id });
        let tree = client.call("runs.list", list).await;
        let runs = tree["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 3, "{tree}");
        let used: u64 = runs
            .iter()
            .map(|run| {
                run["usage"]["inputTokens"].as_u64().unwrap()
                    + run["usage"]["outputTokens"].as_u64().unwrap()
            })
            .sum();
        // The two run concurrently: each may have one call in flight when the budget is exhausted.
        assert!((30..=35).contains(&used), "{used}: {tree}");
        assert_eq!(
            boss["budget"],
            json!({ "tokens": 30, "usedTokens": used, "usedCostMicros": 0 })
        );
        let kids: Vec<&Value> = runs
            .iter()
            .filter(|run| run["runId"] != boss["runId"])
            .collect();
        for kid in &kids {
            assert_eq!(kid["budget"]["tokens"], 25, "{kid}");
            assert_eq!(kid["error"]["kind"], "budget", "{kid}");
        }
        let above = format!("the budget of its ancestor run {} is used up", spawned.id);
        assert!(
            kids.iter()
                .any(|kid| kid["error"]["message"].to_string().contains(&above)),
            "{tree}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_run_without_anything_left_asks_nobody() {
    let script = Script::new().on(
        "[boss]",
        [
            calls("sessions_spawn", json!({ "task": "more" })).and(
                "sessions_send",
                json!({ "sessionKey": "agent:build:other", "message": "more" }),
            ),
            says("never said"),
        ],
    );
    run(async {
        let place = Place::new(script)
            .with("sessions.visibility", "\"all\"")
            .with("sessions.agent_to_agent.allow", "[\"*\"]");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let other = json!({ "key": "agent:build:other", "agent": "build" });
        client.call("sessions.create", other).await;
        let spawned = client
            .spawn(json!({ "task": "[boss]", "agent": "build", "budget": { "tokens": 5 } }))
            .await;
        let boss = client.ended(&spawned.id).await;
        assert_eq!(boss["error"]["kind"], "budget", "{boss}");
        let said = tool_result_text(&client, &spawned.session).await;
        assert_eq!(
            said.matches("is used up: 5 tokens of 5 are used").count(),
            2,
            "{said}"
        );
        assert_eq!(said.matches("Nothing was created").count(), 2, "{said}");
        let runs = client.call("runs.list", json!({})).await;
        assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn every_tree_has_the_budget_of_the_settings() {
    let script = Script::new().on("[job]", vec![calls("list", json!({})); 9]);
    run(async {
        let place = Place::new(script)
            .with("budgets.tree_tokens", "12")
            .with("budgets.tree_cost", "0.5");
        let daemon = place.start().await;
        let client = daemon.client().await;
        for (own, tokens, cost, calls) in [
            (None, 12, 500_000, 3),
            (Some(json!({ "tokens": 100, "cost": 0.25 })), 12, 250_000, 3),
            (Some(json!({ "tokens": 7 })), 7, 500_000, 2),
        ] {
            let mut params = json!({ "task": "[job]" });
            if let Some(own) = own {
                params["budget"] = own;
            }
            let spawned = client.spawn(params).await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["budget"]["tokens"], tokens, "{ended}");
            assert_eq!(ended["budget"]["costMicros"], cost, "{ended}");
            assert_eq!(ended["usage"]["modelCalls"], calls, "{ended}");
            assert_eq!(ended["budget"]["usedTokens"], 5 * calls, "{ended}");
            assert_eq!(ended["error"]["kind"], "budget", "{ended}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_turn_that_news_have_begun_is_paid_for_by_the_root_of_them() {
    let looks = || calls("list", json!({}));
    let script = Script::new()
        .on("[kid]", [says("kid is done")])
        .on_announce("*", [looks(), looks(), says("never said")]);
    run(async {
        let place = Place::new(script);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let key = "agent:build:boss";
        let session = json!({ "key": key, "agent": "build", "owner": "agent" });
        client.call("sessions.create", session).await;
        let params = json!({ "task": "[kid]", "parent": key, "budget": { "tokens": 12 } });
        let kid = client.spawn(params).await;
        client.ended(&kid.id).await;
        client.quiet().await;
        let woken = client.call("runs.list", json!({ "sessionKey": key })).await;
        let [wake] = &woken["runs"].as_array().unwrap()[..] else {
            panic!("{woken}");
        };
        assert_eq!(wake["rootRunId"], kid.id.as_str(), "{wake}");
        // The child has used 5, so two more calls exceed the budget.
        assert_eq!(wake["budget"]["tokens"], 7, "{wake}");
        assert_eq!(wake["usage"]["modelCalls"], 2, "{wake}");
        assert_eq!(wake["error"]["kind"], "budget", "{wake}");
        assert_eq!(client.run(&kid.id).await["budget"]["usedTokens"], 15);
        assert_eq!(daemon.stop().await, 0);
    });
}
