//! The registry that `task` selects from, the resulting tools of agents, and the run of a task.

use serde_json::{Value, json};

use super::{children, tool_results};
use crate::harness::{Link, Place, Script, calls, run, says};

/// The names of the agents in a list.
async fn listed(client: &Link, params: Value) -> Vec<String> {
    let agents = client.call("agents.list", params).await;
    let agents = agents["agents"].as_array().unwrap().iter();
    agents
        .map(|agent| agent["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn tools(client: &Link, agent: &str) -> Vec<String> {
    let tools = client.call("tools.list", json!({ "agent": agent })).await;
    let tools = tools["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn e1_agent_registry() {
    let place = Place::new(Script::new()).with_agent("shy", "mode: subagent\nhidden: true");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        // Registered: built-in agents, files, and agents created over RPC.
        for (name, mode) in [("lead", "primary"), ("both", "all")] {
            let definition = json!({ "description": format!("{name}."), "mode": mode });
            let params = json!({ "name": name, "definition": definition });
            client.call("agents.create", params).await;
        }
        let all = listed(&client, json!({})).await;
        assert_eq!(all, ["both", "build", "explore", "lead", "shy"]);
        // Queried by name.
        let lead = client.call("agents.get", json!({ "agent": "lead" })).await;
        assert_eq!(
            (&lead["mode"], &lead["source"]),
            (&json!("primary"), &json!("stored"))
        );
        let unknown = client
            .refused("agents.get", json!({ "agent": "nobody" }))
            .await;
        assert!(unknown.message.contains("the agents are both"), "{unknown}");
        // Filtered: those for users to choose from, and those for tasks.
        let people = listed(&client, json!({ "for": "people" })).await;
        assert_eq!(people, ["both", "build", "explore", "lead"]);
        let task = listed(&client, json!({ "for": "task" })).await;
        assert_eq!(task, ["both", "explore", "shy"]);
        // The same in the schema text that a model reads.
        let schema = client.call("tools.list", json!({ "agent": "both" })).await;
        let schemas = schema["tools"].as_array().unwrap().iter();
        let schema = schemas.clone().find(|tool| tool["name"] == "task").unwrap();
        let chosen = &schema["parameters"]["properties"]["subagent_type"]["enum"];
        assert_eq!(chosen, &json!(["both", "explore", "shy"]));
        let about = schema["description"].as_str().unwrap();
        assert!(about.contains("- both: both."), "{about}");
        assert!(!about.contains("- lead"), "{about}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn e2_get_filtered_tools() {
    let nested = json!({
        "description": "Nest", "prompt": "[kid]", "subagent_type": "explore", "session_id": "",
    });
    let place = Place::new(
        Script::new()
            .on(
                "[kid]",
                [calls("task", nested.clone()), says("kid is done")],
            )
            .on(
                "[boss]",
                [
                    calls("task", {
                        let mut task = nested.clone();
                        task["subagent_type"] = "careful".into();
                        task
                    }),
                    says("boss is done"),
                ],
            ),
    )
    .with_agent("build", "mode: primary\ntools: [task]")
    .with_agent("whole", "mode: all")
    .with_agent(
        "careful",
        "mode: subagent\ntools: {write: false, edit: false, memory_save: false}",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        // Disabled tools are missing, and no others.
        let whole = tools(&client, "whole").await;
        let careful = tools(&client, "careful").await;
        let off = ["write", "edit", "memory_save"];
        let expected: Vec<&String> = whole
            .iter()
            .filter(|name| !off.contains(&name.as_str()))
            .collect();
        assert_eq!(careful.iter().collect::<Vec<_>>(), expected);
        assert!(whole.iter().any(|name| name == "task"), "{whole:?}");
        // A subagent is never offered `task` at its level, and a call of it is refused.
        let boss = client.turn("agent:build:a", "[boss]").await;
        assert_eq!(client.ended(&boss.id).await["result"], "boss is done");
        let kids = children(&client, "agent:build:a").await;
        assert_eq!(kids.len(), 1, "{kids:?}");
        let by_kid = tool_results(&client, kids[0]["sessionKey"].as_str().unwrap()).await;
        let refused = by_kid[0].to_string();
        assert!(refused.contains("depth"), "{refused}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn e3_agent_runner() {
    let read = |path: &str| calls("read", json!({ "path": path }));
    let task = |agent: &str| {
        json!({
            "description": "Look", "prompt": "[kid] look", "subagent_type": agent,
            "session_id": "",
        })
    };
    let place = Place::new(
        Script::new()
            .on(
                "[kid]",
                [read("notes.txt"), read("src/one.rs"), says("kid has read")],
            )
            .on(
                "[boss]",
                [
                    calls("task", task("reader")),
                    calls("task", task("hasty")),
                    says("boss is done"),
                ],
            ),
    )
    .with_agent("build", "mode: primary\ntools: [task]")
    .with_agent("reader", "mode: subagent\ntools: [read]")
    .with_agent(
        "hasty",
        "mode: subagent\ntools: [read]\nexecution: {max_loops: 2}",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let boss = client
            .turn("agent:build:a", "[boss] the word is basalt")
            .await;
        assert_eq!(client.ended(&boss.id).await["result"], "boss is done");
        let kids = children(&client, "agent:build:a").await;
        let (hasty, reader) = (&kids[0], &kids[1]);
        // The steps of a run: call, tool, call, tool, answer, within its own limit.
        let steps = json!({ "runId": reader["runId"] });
        let steps = client.call("runs.steps", steps).await;
        let kinds: Vec<&str> = steps["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| step["kind"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["model", "tool", "model", "tool", "model"]);
        assert_eq!(reader["result"], "kid has read");
        assert_eq!(hasty["state"], "error", "{hasty}");
        assert_eq!(hasty["error"]["kind"], "max_loops", "{hasty}");
        // Separate contexts: the child has only the prompt, its caller only the result.
        let session = reader["sessionKey"].as_str().unwrap();
        let history = client
            .call("sessions.history", json!({ "sessionKey": session }))
            .await;
        assert!(!history.to_string().contains("basalt"), "{history}");
        assert_eq!(history["messages"][0]["content"][0]["text"], "[kid] look");
        let params = json!({ "sessionKey": "agent:build:a" });
        let above = client.call("sessions.history", params).await;
        let entries = above["messages"].as_array().unwrap();
        let own: Vec<&str> = entries
            .iter()
            .map(|entry| entry["kind"].as_str().unwrap())
            .collect();
        assert_eq!(
            own,
            [
                "text",
                "tool_call",
                "tool_result",
                "tool_call",
                "tool_result",
                "text"
            ]
        );
        assert!(!above.to_string().contains("fn one()"), "{above}");
        assert_eq!(daemon.stop().await, 0);
    });
}
