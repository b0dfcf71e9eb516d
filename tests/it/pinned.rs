//! The delegates of a run are pinned when it starts, whatever changes in agent files and however
//! often the daemon is killed. Tests are named after their requirements.

use serde_json::{Value, json};

use crate::agents::config;
use crate::delegations::{children, tool_results};
use crate::harness::{Link, ModelServer, Place, Reply, chat, eventually, kind_of, run};
use crate::providers;

const BOSS: &str = "agent:boss:a";

/// Rewrites an agent's file, as [`Place::with_agent`] does, while a daemon may read it.
fn edit(place: &Place, name: &str, fields: &str) {
    let text = format!("---\ndescription: {name}.\n{fields}\n---\nDo it.\n");
    std::fs::write(config(place).join(format!("{name}.md")), text).unwrap();
}

/// Waits until the daemon shows this agent as `wanted`.
async fn until(client: &Link, name: &str, wanted: impl Fn(&Value) -> bool) {
    eventually(&format!("agent {name}"), async || {
        let found = client
            .attempt("agents.get", &json!({ "agent": name }))
            .await;
        found.ok().filter(&wanted).map(|_| ())
    })
    .await;
}

async fn turn(client: &Link, text: &str) -> String {
    let params = json!({ "key": BOSS, "agent": "boss", "ifExists": "get" });
    client.call("sessions.create", params).await;
    client.turn(BOSS, text).await.id
}

/// The names that the schema of `tool` allows for this argument in a request.
fn names(request: &Value, tool: &str, argument: &str) -> Value {
    let mut tools = request["tools"].as_array().unwrap().iter();
    let found = tools.find(|one| one["function"]["name"] == tool).unwrap();
    found["function"]["parameters"]["properties"][argument]["enum"].clone()
}

fn task(id: &str, agent: &str) -> Reply {
    let arguments = json!({
        "description": "Look", "prompt": "[kid]", "subagent_type": agent, "session_id": "",
    });
    chat::calls(&[(id, "task", &arguments.to_string())])
}

#[test]
fn e1_the_agents_of_task_are_those_of_the_runs_beginning_over_edits_and_a_kill() {
    let server = ModelServer::start();
    server.on_agent(
        "boss",
        [
            task("c1", "newcomer").held_by("never"),
            task("c1", "newcomer").held_by("edited"),
            task("c2", "helper"),
            chat::calls(&[
                ("c3", "agents_list", "{}"),
                (
                    "c4",
                    "sessions_spawn",
                    "{\"task\":\"[kid]\",\"agent\":\"newcomer\"}",
                ),
            ]),
            chat::says(&["boss is done"]),
            task("c5", "helper"),
            task("c6", "newcomer"),
            chat::says(&["boss is done again"]),
        ],
    );
    server.on_agent("helper", [chat::says(&["helper was asked"])]);
    server.on_agent("newcomer", [chat::says(&["newcomer was asked"])]);
    let boss =
        |more: &str| format!("mode: primary\ntools: [task, agents_list, sessions_spawn]{more}");
    let place = providers::place(&server, "chat/big")
        .with_agent("boss", &boss("\nallow_agents: [helper, newcomer]"))
        .with_agent("helper", "mode: subagent\ntools: []");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let first = turn(&client, "begin").await;
        server.until_model_called(1);
        // In the middle of the run, an agent is added and the caller gets new limits.
        edit(&place, "newcomer", "mode: subagent\ntools: []");
        edit(
            &place,
            "boss",
            &boss("\nallow_agents: [newcomer]\nmax_spawn_depth: 0"),
        );
        until(&client, "newcomer", |_| true).await;
        until(&client, "boss", |boss| boss["maxSpawnDepth"] == 0).await;
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        until(&client, "newcomer", |_| true).await;
        server.let_go("edited");
        let ended = client.ended(&first).await;
        assert_eq!(ended["result"], "boss is done", "{ended}");

        let answers = tool_results(&client, BOSS).await;
        let words = |answer: &Value| answer.as_str().unwrap_or_default().to_owned();
        let refused = words(&answers[0]);
        assert!(
            refused.contains("may not delegate to newcomer")
                && refused.contains("allowed: helper, pinned"),
            "{answers:?}"
        );
        assert_eq!(answers[1]["output"], "helper was asked", "{answers:?}");
        let listed = answers[2..4]
            .iter()
            .find(|answer| answer["agents"].is_array());
        let listed = listed.unwrap()["agents"].as_array().unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(listed[0]["agent"], "helper");
        let spawn = answers[2..4].iter().find(|answer| answer.is_string());
        let spawn = words(spawn.unwrap());
        assert!(spawn.contains("may not delegate to newcomer"), "{spawn}");

        // A new run uses the current files.
        edit(&place, "boss", &boss("\nallow_agents: [newcomer]"));
        until(&client, "boss", |boss| boss["maxSpawnDepth"].is_null()).await;
        let second = turn(&client, "again").await;
        let ended = client.ended(&second).await;
        assert_eq!(ended["result"], "boss is done again", "{ended}");
        let answers = tool_results(&client, BOSS).await;
        assert!(
            words(&answers[4]).contains("allowed: newcomer, pinned"),
            "{answers:?}"
        );
        assert_eq!(answers[5]["output"], "newcomer was asked", "{answers:?}");
        let kids = children(&client, BOSS).await;
        assert_eq!(kids.len(), 2, "nobody else was asked: {kids:?}");
        assert_eq!(daemon.stop().await, 0);
    });
    let requests = server.requests_of("boss");
    assert_eq!(requests.len(), 8);
    for (number, request) in requests.iter().enumerate() {
        let expected = match number {
            ..5 => json!(["helper"]),
            _ => json!(["newcomer"]),
        };
        assert_eq!(
            names(request, "task", "subagent_type"),
            expected,
            "{number}"
        );
        assert_eq!(
            names(request, "sessions_spawn", "agent"),
            expected,
            "{number}"
        );
        let same = &requests[if number < 5 { 0 } else { 5 }];
        assert_eq!(request["tools"], same["tools"], "{number}");
    }
}

#[test]
fn e1_a_run_whose_own_agent_is_deleted_goes_on_to_delegate() {
    let server = ModelServer::start();
    server.on_agent(
        "boss",
        [
            task("c1", "helper").held_by("gone"),
            chat::says(&["boss is done"]),
        ],
    );
    server.on_agent("helper", [chat::says(&["helper was asked"])]);
    let place = providers::place(&server, "chat/big")
        .with_agent("boss", "mode: primary\ntools: [task]")
        .with_agent("helper", "mode: subagent\ntools: []");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let id = turn(&client, "begin").await;
        server.until_model_called(1);
        std::fs::remove_file(config(&place).join("boss.md")).unwrap();
        eventually("no boss", async || {
            let found = client
                .attempt("agents.get", &json!({ "agent": "boss" }))
                .await;
            found.is_err().then_some(())
        })
        .await;
        server.let_go("gone");
        assert_eq!(client.ended(&id).await["result"], "boss is done");
        let answers = tool_results(&client, BOSS).await;
        assert_eq!(answers[0]["output"], "helper was asked", "{answers:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn e1_task_takes_nobody_who_is_no_subagent_whatever_other_tools_may() {
    let server = ModelServer::start();
    server.on_agent("boss", [task("c1", "lead"), chat::says(&["boss is done"])]);
    let place = providers::place(&server, "chat/big")
        .with_agent(
            "boss",
            "mode: primary\ntools: [task, sessions_spawn]\nallow_agents: [helper, lead]",
        )
        .with_agent("lead", "mode: primary\ntools: []")
        .with_agent("helper", "mode: subagent\ntools: []");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let id = turn(&client, "begin").await;
        assert_eq!(client.ended(&id).await["result"], "boss is done");
        let answers = tool_results(&client, BOSS).await;
        let refused = answers[0].as_str().unwrap_or_default();
        assert!(refused.contains("may not delegate to lead"), "{answers:?}");
        assert_eq!(children(&client, BOSS).await.len(), 0);
        assert_eq!(daemon.stop().await, 0);
    });
    let requests = server.requests_of("boss");
    assert_eq!(
        names(&requests[0], "task", "subagent_type"),
        json!(["helper"])
    );
    assert_eq!(
        names(&requests[0], "sessions_spawn", "agent"),
        json!(["helper", "lead"])
    );
}

/// A plan that delegates to this agent.
fn delegates(to: &str) -> Reply {
    let plan = json!({
        "steps": [], "requires_delegation": true, "delegate_to": to, "task": "[kid]",
    });
    chat::says(&[&plan.to_string()])
}

#[test]
fn a2_the_pool_of_a_plan_is_that_of_the_runs_beginning_over_edits_and_a_kill() {
    let server = ModelServer::start();
    server.on_agent(
        "boss",
        [
            delegates("newcomer").held_by("never"),
            delegates("newcomer").held_by("edited"),
            delegates("helper"),
            chat::says(&["known\nNEXT: RESPOND"]),
            chat::says(&["boss is done"]),
            delegates("newcomer"),
            chat::says(&["known\nNEXT: RESPOND"]),
            chat::says(&["boss is done again"]),
        ],
    );
    server.on_agent("helper", [chat::says(&["helper was asked"])]);
    server.on_agent("newcomer", [chat::says(&["newcomer was asked"])]);
    let boss = |allowed: &str| {
        format!("mode: primary\nstrategy: plan\ntools: []\nallow_agents: [{allowed}]")
    };
    let place = providers::place(&server, "chat/big")
        .with_agent("boss", &boss("helper"))
        .with_agent("helper", "mode: subagent\ntools: []");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let first = turn(&client, "begin").await;
        server.until_model_called(1);
        edit(&place, "newcomer", "mode: subagent\ntools: []");
        edit(&place, "boss", &boss("newcomer"));
        until(&client, "boss", |boss| {
            boss["allowAgents"] == json!(["newcomer"])
        })
        .await;
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        until(&client, "newcomer", |_| true).await;
        server.let_go("edited");
        let ended = client.ended(&first).await;
        assert_eq!(ended["result"], "boss is done", "{ended}");
        assert_eq!(
            tool_results(&client, BOSS).await[0]["result"],
            "helper was asked"
        );
        let second = turn(&client, "again").await;
        let ended = client.ended(&second).await;
        assert_eq!(ended["result"], "boss is done again", "{ended}");
        assert_eq!(
            tool_results(&client, BOSS).await[1]["result"],
            "newcomer was asked"
        );
        assert_eq!(daemon.stop().await, 0);
    });
    let plans: Vec<String> = server
        .requests_of("boss")
        .iter()
        .map(|request| {
            request["messages"][0]["content"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .filter(|system| system.contains("one JSON object"))
        .collect();
    assert_eq!(plans.len(), 4);
    for (number, plan) in plans.iter().enumerate() {
        let (shown, other) = match number {
            ..3 => ("helper", "newcomer"),
            _ => ("newcomer", "helper"),
        };
        assert!(plan.contains(&format!("(id: {shown})")), "{number}: {plan}");
        assert!(
            !plan.contains(&format!("(id: {other})")),
            "{number}: {plan}"
        );
    }
    let faulty = &server.requests_of("boss")[2];
    assert!(
        faulty
            .to_string()
            .contains("there is no agent \\\"newcomer\\\" to delegate to"),
        "{faulty}"
    );
}

#[test]
fn a_candidate_that_is_put_away_meanwhile_is_not_asked_and_said_by_name() {
    let server = ModelServer::start();
    server.on_agent(
        "boss",
        [
            task("c1", "helper").held_by("away"),
            chat::says(&["boss is done"]),
        ],
    );
    let place = providers::place(&server, "chat/big")
        .with_agent("boss", "mode: primary\ntools: [task]")
        .with_agent("helper", "mode: subagent\ntools: []");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let id = turn(&client, "begin").await;
        server.until_model_called(1);
        edit(&place, "helper", "mode: subagent\ntools: []\nactive: false");
        until(&client, "helper", |helper| helper["active"] == false).await;
        server.let_go("away");
        assert_eq!(client.ended(&id).await["result"], "boss is done");
        let answers = tool_results(&client, BOSS).await;
        let refused = answers[0].as_str().unwrap_or_default();
        assert!(
            refused.contains("agent helper cannot be used"),
            "{answers:?}"
        );
        assert_eq!(children(&client, BOSS).await.len(), 0);
        let spawn = json!({ "task": "[kid]", "agent": "helper" });
        let error = client.refused("sessions.spawn", spawn).await;
        assert_eq!(kind_of(&error), "forbidden");
        assert_eq!(daemon.stop().await, 0);
    });
}
