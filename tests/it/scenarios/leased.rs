//! A delegated run of a plan has its own server, which ignores a request to stop: its processes are
//! gone after every kill, and failures are warnings.

use serde_json::{Value, json};

use super::Scenario;
use crate::harness::{Caller, Place, Script, calls, says};
use crate::mcp::with_stubborn_server;

/// The scenarios of servers that belong to one run.
pub(crate) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "leased",
    place: leased_place,
    play: |caller| Box::pin(leased(caller)),
}];

const BOSS: &str = "agent:boss:a";

fn leased_place() -> Place {
    let plan = json!({
        "steps": [], "requires_delegation": true, "delegate_to": "worker", "task": "[kid]",
    });
    let script = Script::new()
        .on(
            "[kid]",
            [calls("mem__look", json!({})), says("kid is done")],
        )
        .on(
            "[boss]",
            [says(&plan.to_string()), says("known"), says("boss is done")],
        );
    let place = Place::new(script)
        .with_agent(
            "boss",
            "mode: primary\nstrategy: plan\ntools: [read]\nmcp_servers: []",
        )
        .with_agent("worker", "mode: subagent\ntools: []\nmcp_servers: [mem]");
    with_stubborn_server(place, "mem")
}

async fn leased(caller: &mut Caller) {
    // A planner's pool of candidates is pinned with its run.
    caller
        .until("the server's tools", async |caller: &mut Caller| {
            let listed = caller.call("mcp.list", json!({})).await;
            (listed["servers"][0]["state"] == "ready").then_some(())
        })
        .await;
    let params = json!({ "key": BOSS, "agent": "boss", "ifExists": "get" });
    caller.call("sessions.create", params).await;
    let boss = caller.turn(BOSS, "[boss]").await;
    assert_eq!(caller.ended(&boss.id).await["result"], "boss is done");
    caller
        .until("the warning", async |caller: &mut Caller| {
            let kids = caller.call("runs.list", json!({ "parent": BOSS })).await;
            let kid = kids["runs"][0].clone();
            assert_eq!(kid["state"], "ok", "{kid}");
            let warned = kid["warnings"] != Value::Array(Vec::new());
            // Servers that the previous process left are stopped by the next one, which only logs
            // it.
            (warned || !caller.history.kills.is_empty()).then_some(())
        })
        .await;
}
