//! The circuit breaker across all delegation tools: their calls are counted together, their results
//! have the same form, and a kill changes nothing. Tests are named after their requirements.

use serde_json::{Value, json};

use crate::delegations::tool_results;
use crate::harness::{Answer, Link, Place, Script, calls, fails, run, says};

/// The agents that delegate to `helper`, each by a different tool.
const HOSTS: [&str; 4] = ["tasker", "sealer", "caller", "planner"];

fn task() -> Answer {
    let arguments = json!({
        "description": "Look", "prompt": "[kid]", "subagent_type": "helper", "session_id": "",
    });
    calls("task", arguments)
}

/// One host for each tool, and the scripts of their models.
fn place(kid: Answer) -> Place {
    let plan = json!({
        "steps": [], "requires_delegation": true, "delegate_to": "helper", "task": "[kid]",
    });
    let sealed = calls("subagent_helper", json!({ "task_summary": "[kid]" }));
    let called = calls("call_helper", json!({ "message": "[kid]" }));
    let script = Script::new()
        .on("[kid]", [kid])
        .on("[tasker]", [task(), says("tasker is done")])
        .on("[sealer]", [sealed, says("sealer is done")])
        .on("[caller]", [called, says("caller is done")])
        .on(
            "[planner]",
            [
                says(&plan.to_string()),
                says("known"),
                says("planner is done"),
            ],
        );
    let link = |session: &str| {
        format!("mode: primary\ntools: []\nlinked_agents: [{{agent: helper, session: {session}}}]")
    };
    Place::new(script)
        .with_agent("helper", "mode: subagent\ntools: []")
        .with_agent("tasker", "mode: primary\ntools: [task]")
        .with_agent("sealer", &link("own"))
        .with_agent("caller", &link("shared"))
        .with_agent(
            "planner",
            "mode: primary\nstrategy: plan\ntools: []\nallow_agents: [helper]",
        )
        .with("delegation.breaker.failures", "3")
        .with("delegation.breaker.cool_off", "\"1h\"")
}

/// Runs a turn of this host; returns the latest tool result of its session.
async fn turn(client: &Link, host: &str) -> Value {
    let key = format!("agent:{host}:a");
    let params = json!({ "key": key, "agent": host, "ifExists": "get" });
    client.call("sessions.create", params).await;
    let turn = client.turn(&key, &format!("[{host}]")).await;
    let ended = client.ended(&turn.id).await;
    assert_eq!(ended["result"], format!("{host} is done"), "{ended}");
    let params = json!({ "runId": turn.id });
    let steps = client.call("runs.steps", params).await;
    let made = steps["steps"].as_array().unwrap().iter();
    assert_eq!(
        made.filter(|step| step["kind"] == "tool").count(),
        1,
        "{steps}"
    );
    tool_results(client, &key).await.pop().unwrap()
}

async fn runs_of_helper(client: &Link) -> usize {
    let all = client.call("runs.list", json!({ "agent": "helper" })).await;
    all["runs"].as_array().unwrap().len()
}

/// The breaker events: the run's session and the new state.
fn breaker_events(place: &Place) -> Vec<(Option<String>, Value)> {
    let book = place.book();
    let events = book.events.values();
    events
        .filter(|event| event.kind == "delegation.breaker")
        .map(|event| (event.key.clone(), event.data["state"].clone()))
        .collect()
}

#[test]
fn b4_failures_by_any_tool_open_it_for_all_of_them_over_a_kill_and_a_success_closes_it() {
    let mut place = place(fails("no model today"));
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        for host in ["tasker", "sealer", "caller"] {
            let told = turn(&client, host).await;
            assert_eq!(told["kind"], "provider", "{host}: {told}");
        }
        let told = turn(&client, "planner").await;
        assert_eq!(told["kind"], "breaker", "{told}");
        assert_eq!(runs_of_helper(&client).await, 3);
        daemon.kill().await;

        let daemon = place.start().await;
        let client = daemon.client().await;
        for host in HOSTS {
            let told = turn(&client, host).await;
            assert_eq!(told["unavailable"], true, "{host}: {told}");
            assert_eq!(told["kind"], "breaker", "{host}: {told}");
            assert_eq!(told["subagent"], "helper", "{host}");
            assert_eq!(told["supervisor"], host);
            assert_eq!(told["last"], true, "{host}");
            assert!(told.get("runId").is_none(), "{host}: nobody was asked");
            let why = told["error"].as_str().unwrap();
            assert!(why.contains("3 times in a row"), "{host}: {why}");
            if host == "tasker" {
                assert_eq!(told["success"], false, "{told}");
                assert_eq!(told["output"], told["error"], "{told}");
            }
        }
        assert_eq!(runs_of_helper(&client).await, 3);
        let asked: usize = place
            .model_calls()
            .iter()
            .filter(|((rule, _), _)| rule == "[kid]")
            .map(|(_, times)| times)
            .sum();
        assert_eq!(asked, 3, "no model was asked while it is open");
        assert_eq!(daemon.stop().await, 0);
        let open = (Some("agent:caller:a".to_owned()), json!("open"));
        assert_eq!(
            breaker_events(&place),
            std::slice::from_ref(&open),
            "told once, to who has opened it"
        );

        // The agent is called again after the cool-off, and a success closes the breaker.
        place.set("delegation.breaker.cool_off", "\"1ms\"");
        let script = place.path().join("script.json");
        let text = std::fs::read_to_string(&script).unwrap();
        let mended = text.replace(
            "{\"fail\":\"no model today\"}",
            "{\"text\":\"kid is done\"}",
        );
        assert_ne!(mended, text);
        std::fs::write(&script, mended).unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let told = turn(&client, "planner").await;
        assert_eq!(told["result"], "kid is done", "{told}");
        for host in HOSTS {
            let told = turn(&client, host).await;
            assert!(told.get("unavailable").is_none(), "{host}: {told}");
        }
        assert_eq!(daemon.stop().await, 0);
        let closed = (Some("agent:planner:a".to_owned()), json!("closed"));
        assert_eq!(breaker_events(&place), [open, closed]);
    });
}

#[test]
fn b4_what_was_cancelled_or_refused_counts_for_nothing() {
    let place =
        place(fails("no model today").held_by("go")).with("delegation.breaker.failures", "1");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "key": "agent:sealer:b", "agent": "sealer" });
        client.call("sessions.create", params).await;
        let sealer = client.turn("agent:sealer:b", "[sealer]").await;
        client.in_state(&sealer.id, "paused").await;
        let kids = client.call("runs.list", json!({ "agent": "helper" })).await;
        let kid = &kids["runs"][0]["runId"];
        client.call("runs.cancel", json!({ "runId": kid })).await;
        assert_eq!(client.ended(&sealer.id).await["result"], "sealer is done");
        assert_eq!(
            tool_results(&client, "agent:sealer:b").await[0]["kind"],
            "cancelled"
        );
        place.let_go("go");
        // The next call runs and fails, which opens the breaker for all further calls.
        assert_eq!(turn(&client, "tasker").await["kind"], "provider");
        assert_eq!(turn(&client, "sealer").await["kind"], "breaker");
        assert_eq!(runs_of_helper(&client).await, 2);
        // A spawn without a wait is not subject to the breaker.
        let spawn = json!({ "task": "[kid]", "agent": "helper" });
        let spawned = client.spawn(spawn).await;
        assert_eq!(client.ended(&spawned.id).await["error"]["kind"], "provider");
        assert_eq!(daemon.stop().await, 0);
    });
}
