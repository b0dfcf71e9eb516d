//! Errors in a planner's pool of candidates, planners that are children, and planners that never
//! finish. Tests are named after their requirements.

use serde_json::{Value, json};

use crate::agents::config;
use crate::delegations::{children, tool_results};
use crate::harness::{
    Answer, Link, ModelServer, Place, Reply, Script, calls, chat, kind_of, run, says,
};
use crate::providers;

const BOSS: &str = "agent:boss:a";

async fn turn(client: &Link, text: &str) -> Value {
    let params = json!({ "key": BOSS, "agent": "boss", "ifExists": "get" });
    client.call("sessions.create", params).await;
    let turn = client.turn(BOSS, text).await;
    client.ended(&turn.id).await
}

fn delegation(to: &str) -> String {
    let plan = json!({
        "steps": [], "requires_delegation": true, "delegate_to": to, "task": "[kid]",
    });
    plan.to_string()
}

fn at_once() -> Reply {
    chat::says(&["{\"steps\": [], \"requires_delegation\": false}"])
}

#[test]
fn a2_names_that_are_nobodys_and_files_that_cannot_be_read_are_told_of() {
    let server = ModelServer::start();
    server.on_agent(
        "boss",
        [
            chat::says(&[&delegation("ghost")]),
            chat::says(&[&delegation("away")]),
            at_once(),
            chat::says(&["alone"]),
        ],
    );
    let place = providers::place(&server, "chat/big")
        .with_agent(
            "boss",
            "mode: primary\nstrategy: plan\ntools: [read]\nlinked_agents: [hepler]\nallow_agents: \
             [helper, ghost, away, hepler]",
        )
        .with_agent("helper", "mode: subagent\ntools: []")
        .with_agent("ghost", "mode: [");
    std::os::unix::fs::symlink("/nowhere/away.md", config(&place).join("away.md")).unwrap();
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let listed = client.call("agents.list", json!({})).await;
        let rejected = listed["rejected"].as_array().unwrap();
        for (file, why) in [("ghost.md", ""), ("away.md", "the link is broken")] {
            let one = rejected
                .iter()
                .find(|one| one["file"].as_str().unwrap().ends_with(file));
            let one = one.unwrap_or_else(|| panic!("{file}: {listed}"));
            assert!(one["reason"].as_str().unwrap().contains(why), "{one}");
        }
        let agents = listed["agents"].as_array().unwrap();
        let boss = agents.iter().find(|one| one["name"] == "boss").unwrap();
        let warnings: Vec<&str> = boss["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one.as_str().unwrap())
            .collect();
        for said in [
            "allow_agents: there is no agent ghost",
            "allow_agents: there is no agent away",
            "allow_agents: there is no agent hepler; did you mean helper?",
            "linked_agents: there is no agent hepler; did you mean helper?",
        ] {
            assert!(warnings.contains(&said), "{said}: {warnings:?}");
        }

        assert_eq!(turn(&client, "begin").await["result"], "alone");
        assert_eq!(children(&client, BOSS).await.len(), 0);
        let spawn = json!({ "task": "[kid]", "agent": "ghost" });
        let refused = client.refused("sessions.spawn", spawn).await;
        assert_eq!(kind_of(&refused), "not_found");
        let hint = refused.data["hint"].as_str().unwrap();
        assert!(hint.contains("ghost.md"), "{hint}");
        assert_eq!(daemon.stop().await, 0);
    });
    let prompts = server.prompts_of("boss");
    assert_eq!(prompts.len(), 4);
    assert!(prompts[0].contains("- helper (id: helper): helper."));
    for (name, request) in [("ghost", 1), ("away", 2)] {
        assert!(!prompts[0].contains(&format!("(id: {name})")));
        let said = &server.requests()[request].body;
        let fault =
            format!("there is no agent \\\"{name}\\\" to delegate to; available agents: helper");
        assert!(said.contains(&fault), "{said}");
    }
}

/// A boss that delegates to a planner; `more` adds fields to the planner's file.
fn with_planner(server: &ModelServer, more: &str) -> Place {
    let arguments = json!({
        "description": "Look", "prompt": "[plan]", "subagent_type": "planner", "session_id": "",
    });
    let call = chat::calls(&[("c1", "task", &arguments.to_string())]);
    server.on_agent("boss", [call, chat::says(&["boss is done"])]);
    server.on_agent("helper", [chat::says(&["helper was asked"])]);
    providers::place(server, "chat/big")
        .with_agent("boss", "mode: primary\ntools: [task]")
        .with_agent(
            "planner",
            &format!("mode: subagent\nstrategy: plan\ntools: [read]\n{more}"),
        )
        .with_agent("helper", "mode: subagent\ntools: []")
}

#[test]
fn a4_a_planner_that_is_a_child_has_nobody_to_delegate_to() {
    let server = ModelServer::start();
    server.on_agent(
        "planner",
        [
            chat::says(&[&delegation("helper")]),
            at_once(),
            chat::says(&["planner is done"]),
        ],
    );
    let place = with_planner(&server, "allow_agents: [helper]");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(turn(&client, "begin").await["result"], "boss is done");
        let answers = tool_results(&client, BOSS).await;
        assert_eq!(answers[0]["output"], "planner is done", "{answers:?}");
        let all = client.call("runs.list", json!({})).await;
        assert_eq!(all["runs"].as_array().unwrap().len(), 2, "{all}");
        assert_eq!(daemon.stop().await, 0);
    });
    let prompts = server.prompts_of("planner");
    assert_eq!(prompts.len(), 3);
    for prompt in &prompts {
        assert!(
            !prompt.contains("Agents that you may delegate to"),
            "{prompt}"
        );
        assert!(!prompt.contains("(id: helper)"), "{prompt}");
    }
    let requests = server.requests();
    let faulty = requests
        .iter()
        .find(|one| one.body.contains("could not be carried out"));
    let faulty = &faulty.unwrap().body;
    assert!(
        faulty.contains("to delegate to; available agents: none"),
        "{faulty}"
    );
}

#[test]
fn a4_a_planner_that_is_a_child_delegates_where_its_file_gives_it_a_level_more() {
    let server = ModelServer::start();
    server.on_agent(
        "planner",
        [
            chat::says(&[&delegation("helper")]),
            chat::says(&["known"]),
            chat::says(&["planner is done"]),
        ],
    );
    let place = with_planner(&server, "allow_agents: [helper]\nmax_spawn_depth: 2");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let ended = turn(&client, "begin").await;
        assert_eq!(ended["result"], "boss is done");
        let tree = json!({ "tree": ended["runId"] });
        let runs = client.call("runs.list", tree).await;
        let depths: Vec<(&str, u64)> = runs["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| {
                (
                    run["agent"].as_str().unwrap(),
                    run["depth"].as_u64().unwrap(),
                )
            })
            .collect();
        assert_eq!(depths, [("helper", 2), ("planner", 1), ("boss", 0)]);
        assert_eq!(daemon.stop().await, 0);
    });
    assert!(server.prompts_of("planner")[0].contains("(id: helper)"));
}

/// A plan that reads one file.
fn looks() -> Answer {
    let step = json!({ "tool": "read", "arguments": { "path": "notes.txt" } });
    says(&json!({ "steps": [step], "requires_delegation": false }).to_string())
}

#[test]
fn a3_the_last_call_within_max_loops_is_an_answer_that_is_marked_as_cut() {
    let again = || says("not enough\nNEXT: PLAN");
    let done = [looks(), says("enough\nNEXT: RESPOND"), says("boss is done")];
    for (most, plans) in [(1, 0), (2, 1), (5, 2), (6, 3)] {
        let rounds = (0..20).flat_map(|_| [looks(), again()]).take(most - 1);
        let rounds = rounds.chain([says("as far as I came")]);
        let script = Script::new()
            .on("[ever]", rounds)
            .on("[once]", done.clone());
        let fields = format!(
            "mode: primary\nstrategy: plan\ntools: [read]\nexecution: {{max_loops: {most}}}"
        );
        let place = Place::new(script.clone()).with_agent("boss", &fields);
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let ended = turn(&client, "[ever]").await;
            assert_eq!(ended["state"], "ok", "{ended}");
            assert_eq!(ended["result"], "as far as I came", "{ended}");
            let warning = ended["warnings"][0].as_str().unwrap();
            let count = format!("{most} model calls (max_loops)");
            assert!(
                warning.contains("cut") && warning.contains(&count),
                "{ended}"
            );
            assert_eq!(ended["usage"]["modelCalls"], most);
            let params = json!({ "runId": ended["runId"] });
            let steps = client.call("runs.steps", params).await;
            let steps = steps["steps"].as_array().unwrap();
            assert!(
                steps.iter().all(|step| step["state"] == "done"),
                "{steps:?}"
            );
            let acts = steps.iter().filter(|step| step["tool"] == "read");
            assert_eq!(acts.count(), plans, "{steps:?}");
            let end = steps.last().unwrap()["paramsSummary"].as_str().unwrap();
            assert!(end.starts_with("respond"), "{steps:?}");
            // The session continues.
            if most > 2 {
                let once = turn(&client, "[once]").await;
                assert_eq!(once["result"], "boss is done");
                assert_eq!(once["warnings"], json!([]), "{once}");
            }
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn a4_what_delegates_have_found_is_the_result_where_no_last_answer_is_to_be_had() {
    // The script has no fourth answer: the last call fails.
    let plans = (0..2).flat_map(|number| {
        let plan = json!({
            "steps": [], "requires_delegation": true, "delegate_to": "helper",
            "task": format!("[kid] {number}"),
        });
        [says(&plan.to_string()), says("not enough\nNEXT: PLAN")]
    });
    let plans = plans.take(3);
    let script = Script::new()
        .on(
            "[kid]",
            [
                calls("read", json!({ "path": "notes.txt" })),
                says("kid is done"),
            ],
        )
        .on("[ever]", plans);
    let place = Place::new(script)
        .with_agent(
            "boss",
            "mode: primary\nstrategy: plan\ntools: []\nexecution: {max_loops: 4}",
        )
        .with_agent("helper", "mode: subagent\ntools: [read]");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let ended = turn(&client, "[ever]").await;
        assert_eq!(ended["state"], "ok", "{ended}");
        let result = ended["result"].as_str().unwrap();
        assert!(result.starts_with("[cut: "), "{result}");
        assert_eq!(result.matches("kid is done").count(), 2, "{result}");
        let warnings = ended["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), 2, "{ended}");
        assert_eq!(
            ended["usage"]["modelCalls"], 3,
            "the children's are their own"
        );
        let kids = children(&client, BOSS).await;
        assert_eq!(kids.len(), 2, "{kids:?}");
        assert!(kids.iter().all(|kid| kid["state"] == "ok"), "{kids:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}
