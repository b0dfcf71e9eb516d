//! Tool calls that other agents execute: whatever is killed, each is executed once, and its caller
//! gets one result.

use serde_json::{Value, json};

use super::Scenario;
use crate::harness::{Caller, Place, Script, calls, fails, says};

/// The scenarios of delegations with a waiting caller.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "task",
        place: task_place,
        play: |caller| Box::pin(task(caller)),
    },
    Scenario {
        name: "sealed",
        place: sealed_place,
        play: |caller| Box::pin(sealed(caller)),
    },
    Scenario {
        name: "called",
        place: called_place,
        play: |caller| Box::pin(called(caller)),
    },
    Scenario {
        name: "planned",
        place: planned_place,
        play: |caller| Box::pin(planned(caller)),
    },
];

fn task_place() -> Place {
    let asked = json!({
        "description": "Look", "prompt": "[kid]", "subagent_type": "explore", "session_id": "",
    });
    Place::new(
        Script::new()
            .on(
                "[kid]",
                [
                    calls("read", json!({ "path": "notes.txt" })),
                    says("kid is done").held_by("go-kid"),
                ],
            )
            .on("[boss]", [calls("task", asked), says("boss is done")]),
    )
    .with("lanes.global", "1")
    .with("budgets.tree_tokens", "100000")
}

/// The tool results in this session.
async fn tool_results(caller: &mut Caller, session: &str) -> Vec<Value> {
    let history = caller
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let entries = history["messages"].as_array().unwrap().iter();
    entries
        .filter(|entry| entry["kind"] == "tool_result")
        .map(|entry| serde_json::from_str(entry["content"][0]["text"].as_str().unwrap()).unwrap())
        .collect()
}

/// A turn delegates to another agent, with one slot for both.
async fn task(caller: &mut Caller) {
    let session = caller.session("agent", "agent:build:boss").await;
    let boss = caller.turn(&session, "[boss]").await;
    caller.in_state(&boss.id, "paused").await;
    caller.place().let_go("go-kid");
    assert_eq!(caller.ended(&boss.id).await["result"], "boss is done");
    caller.quiet().await;
    let answers = tool_results(caller, &session).await;
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0]["output"], "kid is done");
    assert_eq!(answers[0]["metadata"]["summary"][0]["status"], "completed");
    let children = caller.call("runs.list", json!({ "parent": session })).await;
    let children = children["runs"].as_array().unwrap();
    assert_eq!(children.len(), 1, "{children:?}");
    assert_eq!(answers[0]["runId"], children[0]["runId"]);
}

fn sealed_place() -> Place {
    Place::new(
        Script::new()
            .on("[kid a]", [says("a is done").held_by("go-a")])
            .on("[kid b]", [fails("no model today")])
            .on(
                "[host]",
                [
                    calls("subagent_helper", json!({ "task_summary": "[kid a]" }))
                        .and("subagent_helper", json!({ "task_summary": "[kid b]" })),
                    says("host is done"),
                ],
            ),
    )
    .with_agent(
        "host",
        "mode: primary\ntools: []\nlinked_agents: [{agent: helper, session: own}]",
    )
    .with_agent("helper", "mode: subagent\ntools: [read]")
}

/// A host delegates to two sealed agents in parallel, one of which fails.
async fn sealed(caller: &mut Caller) {
    let params = json!({ "key": "agent:host:x", "agent": "host", "ifExists": "get" });
    caller.call("sessions.create", params).await;
    let host = caller.turn("agent:host:x", "[host]").await;
    caller.in_state(&host.id, "paused").await;
    caller.place().let_go("go-a");
    assert_eq!(caller.ended(&host.id).await["result"], "host is done");
    caller.quiet().await;
    let answers = tool_results(caller, "agent:host:x").await;
    assert_eq!(answers.len(), 2, "{answers:?}");
    let well = |answer: &&Value| answer.get("unavailable").is_none();
    assert_eq!(answers.iter().filter(well).count(), 1, "{answers:?}");
    assert!(
        answers.iter().any(|answer| answer["result"] == "a is done"),
        "{answers:?}"
    );
    let history = caller
        .call("sessions.history", json!({ "sessionKey": "agent:host:x" }))
        .await;
    let packs = &history["messages"][0]["metadata"]["delegation_context"];
    assert_eq!(packs.as_object().unwrap().len(), 2, "{packs}");
}

fn called_place() -> Place {
    let message = |text: &str| json!({ "message": text });
    Place::new(
        Script::new()
            .on(
                "[kid a]",
                [
                    calls("read", json!({ "path": "notes.txt" })),
                    says("a is done").in_pieces(3, 1, "go-a"),
                ],
            )
            .on("[kid b]", [fails("no model today")])
            .on(
                "[host]",
                [
                    calls("call_helper", message("[kid a]")).and("call_second", message("[kid b]")),
                    says("host is done"),
                ],
            )
            .on("[later]", [says("later is done")]),
    )
    .with_agent(
        "host",
        "mode: primary\ntools: []\nlinked_agents: [{agent: helper, session: shared, stream: \
         direct}, {agent: second, session: shared}]",
    )
    .with_agent("helper", "mode: subagent\ntools: [read]")
    .with_agent("second", "mode: subagent\ntools: [read]")
    .with("lanes.global", "1")
}

/// A host calls two agents into its session, one of which fails, with one slot for all; a message
/// to the session meanwhile is handled after its turn.
async fn called(caller: &mut Caller) {
    let session = "agent:host:x";
    let params = json!({ "key": session, "agent": "host", "ifExists": "get" });
    caller.call("sessions.create", params).await;
    let host = caller.turn(session, "[host]").await;
    caller.in_state(&host.id, "paused").await;
    let later = caller.turn(session, "[later]").await;
    caller.place().let_go("go-a");
    assert_eq!(caller.ended(&host.id).await["result"], "host is done");
    assert_eq!(caller.ended(&later.id).await["result"], "later is done");
    caller.quiet().await;
    let history = caller
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let entries = history["messages"].as_array().unwrap();
    let own = entries
        .iter()
        .filter(|entry| entry["kind"] == "tool_result" && entry.get("childRunId").is_none());
    let answers: Vec<Value> = own
        .map(|entry| serde_json::from_str(entry["content"][0]["text"].as_str().unwrap()).unwrap())
        .collect();
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert_eq!(answers[0]["result"], "a is done");
    assert_eq!(answers[1]["unavailable"], true);
    let said: Vec<&str> = entries
        .iter()
        .filter(|entry| {
            matches!(
                entry["kind"].as_str(),
                Some("sub_agent_user" | "sub_agent_ai")
            )
        })
        .map(|entry| entry["content"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(said, ["[kid a]", "a is done", "[kid b]"]);
}

fn planned_place() -> Place {
    let plan = |steps: Value, to: Value| {
        let delegates = !to.is_null();
        let plan = json!({
            "steps": steps, "requires_delegation": delegates, "delegate_to": to, "task": "[kid]",
        });
        says(&plan.to_string())
    };
    let read = json!([{ "tool": "read", "arguments": { "path": "notes.txt" } }]);
    Place::new(
        Script::new()
            .on(
                "[kid]",
                [
                    calls("read", json!({ "path": "notes.txt" })),
                    says("kid is done").held_by("go-kid"),
                ],
            )
            .on(
                "[boss]",
                [
                    plan(read, Value::Null),
                    says("half is known\nNEXT: PLAN"),
                    plan(json!([]), json!("helper")),
                    says("all is known\nNEXT: RESPOND"),
                    says("boss is done"),
                ],
            ),
    )
    .with_agent(
        "boss",
        "mode: primary\nstrategy: plan\ntools: [read]\nallow_agents: [helper]",
    )
    .with_agent("helper", "mode: subagent\ntools: [read]")
    .with("lanes.global", "1")
}

/// A planner reads a file itself, then delegates the rest to another agent.
async fn planned(caller: &mut Caller) {
    let session = "agent:boss:x";
    let params = json!({ "key": session, "agent": "boss", "ifExists": "get" });
    caller.call("sessions.create", params).await;
    let boss = caller.turn(session, "[boss]").await;
    caller.in_state(&boss.id, "paused").await;
    caller.place().let_go("go-kid");
    assert_eq!(caller.ended(&boss.id).await["result"], "boss is done");
    caller.quiet().await;
    let answers = last_tool_result(caller, session).await;
    assert_eq!(answers["result"], "kid is done", "{answers}");
    let children = caller.call("runs.list", json!({ "parent": session })).await;
    assert_eq!(children["runs"].as_array().unwrap().len(), 1, "{children}");
    assert_eq!(children["runs"][0]["delegated"]["mode"], "plan");
}

/// The last tool result in this session.
async fn last_tool_result(caller: &mut Caller, session: &str) -> Value {
    let history = caller
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let entries = history["messages"].as_array().unwrap();
    let last = entries.iter().rfind(|entry| entry["kind"] == "tool_result");
    serde_json::from_str(last.unwrap()["content"][0]["text"].as_str().unwrap()).unwrap()
}
