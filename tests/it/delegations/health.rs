//! Linked agents are checked when agents are loaded: one that could not work is not offered as a
//! tool, and every view gives the reason.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::{host_turn, tool_results};
use crate::harness::{Link, Place, Script, calls, run, says};

async fn tools(client: &Link) -> Value {
    client.call("tools.list", json!({ "agent": "host" })).await
}

fn offered(tools: &Value) -> Vec<&str> {
    let tools = tools["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// The reason why the tool is not offered.
fn skipped<'a>(tools: &'a Value, name: &str) -> &'a str {
    let mut skipped = tools["skipped"].as_array().unwrap().iter();
    let found = skipped.find(|one| one["name"] == name);
    found.unwrap_or_else(|| panic!("{name}: {tools}"))["reason"]
        .as_str()
        .unwrap()
}

#[test]
fn c1_subagent_lifecycle_healthcheck() {
    let ailing = [
        (
            "modelless",
            "model: nowhere/none",
            "nowhere/none is not offered",
        ),
        ("keyless", "model: paid/big", "ABIDE_TEST_NO_SUCH_KEY"),
        ("toolless", "tools: [read, teleport]", "no tool teleport"),
        (
            "skilless",
            "tools: [skill]\nskills: [nowhere]",
            "skill nowhere is missing",
        ),
        ("serverless", "mcp_servers: [nowhere]", "MCP server nowhere"),
        (
            "programless",
            "runner: command\ncommand: {argv: [no-such-program]}",
            "program cannot be started",
        ),
        ("idle", "active: false", "it is not active"),
    ];
    let names = ailing.iter().map(|(name, _, _)| *name);
    let links: Vec<String> = names
        .chain(["good", "tool"])
        .map(|name| format!("{{agent: {name}, session: own}}"))
        .collect();
    let links = links.join(", ");
    let mut place = Place::new(Script::new().on(
        "[host]",
        [
            calls("subagent_tool", json!({ "task_summary": "go" })),
            says("host is done"),
        ],
    ))
    .with("providers.paid.kind", "\"openai\"")
    .with("providers.paid.api_key_env", "\"ABIDE_TEST_NO_SUCH_KEY\"")
    .with("providers.paid.models", "[\"big\"]");
    for (name, fields, _) in ailing {
        place = place.with_agent(name, &format!("mode: subagent\n{fields}"));
    }
    let program = place.path().join("program.sh");
    fs::write(&program, "#!/bin/sh\necho done\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let argv = format!("runner: command\ncommand: {{argv: [{program:?}]}}");
    let place = place
        .with_agent("good", "mode: subagent\ntools: [read]")
        .with_agent("tool", &format!("mode: subagent\n{argv}"))
        .with_agent(
            "host",
            &format!("mode: primary\ntools: []\nlinked_agents: [{links}]"),
        );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        // Reported at the start, once the agents that were read are in force.
        let mut events = client.subscribe(json!({ "since": 0 })).await;
        while crate::events::next(&mut events).await.kind != "agents.changed" {}
        let listed = tools(&client).await;
        assert_eq!(offered(&listed), ["subagent_good", "subagent_tool"]);
        let host = client.call("agents.get", json!({ "agent": "host" })).await;
        for (name, _, why) in ailing {
            let reason = skipped(&listed, &format!("subagent_{name}"));
            assert!(reason.contains(why), "{name}: {reason}");
            let about = client.call("agents.get", json!({ "agent": name })).await;
            assert_eq!(about["health"]["ok"], false, "{about}");
            let problems = about["health"]["problems"].to_string();
            assert!(problems.contains(why), "{name}: {problems}");
            assert!(
                host["warnings"]
                    .to_string()
                    .contains(&format!("tool subagent_{name} is left out")),
                "{host}"
            );
        }
        let good = client.call("agents.get", json!({ "agent": "good" })).await;
        assert_eq!(good["health"], json!({ "ok": true, "problems": [] }));

        // Not checked again by any call or turn: the recorded result counts, and a call that can no
        // longer succeed returns a failure as its result.
        fs::remove_file(&program).unwrap();
        assert_eq!(offered(&tools(&client).await).len(), 2);
        let turn = host_turn(&client, "[host]").await;
        assert_eq!(client.ended(&turn.id).await["result"], "host is done");
        let answers = tool_results(&client, "agent:host:a").await;
        assert_eq!(answers[0]["unavailable"], true, "{answers:?}");
        assert_eq!(answers[0]["kind"], "command", "{answers:?}");
        assert_eq!(offered(&tools(&client).await).len(), 2);

        // An edit triggers a new check.
        let place = place.with_agent("toolless", "mode: subagent\ntools: [read]");
        client.call("agents.reload", json!({})).await;
        let listed = tools(&client).await;
        assert_eq!(offered(&listed), ["subagent_toolless", "subagent_good"]);
        let reason = skipped(&listed, "subagent_tool");
        assert!(reason.contains("program cannot be started"), "{reason}");
        // A new skill triggers one too.
        crate::skills::put(&place.work(), "skills/nowhere", "It is here.", "x");
        client.call("skills.refresh", json!({})).await;
        client.call("agents.reload", json!({})).await;
        let listed = tools(&client).await;
        assert!(offered(&listed).contains(&"subagent_skilless"), "{listed}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn c1_a_called_agent_need_not_have_all_that_it_names() {
    let place = Place::new(Script::new())
        .with_agent(
            "host",
            "mode: primary\ntools: []\nlinked_agents:\n  - {agent: loose, session: shared}\n  - \
             {agent: idle, session: shared}",
        )
        .with_agent("loose", "mode: subagent\ntools: [read, teleport]")
        .with_agent("idle", "mode: subagent\nactive: false");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let listed = tools(&client).await;
        assert_eq!(offered(&listed), ["call_loose"], "whoever calls it sees it");
        assert_eq!(skipped(&listed, "call_idle"), "it is not active");
        assert_eq!(daemon.stop().await, 0);
    });
}
