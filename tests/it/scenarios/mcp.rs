//! Calls of tools that servers have (MCP): what was begun is never begun again, and nothing of a
//! server outlives its daemon.

use serde_json::json;

use super::Scenario;
use crate::harness::{Caller, Place, Script, calls, says};
use crate::mcp::{lines, with_server};

/// The scenarios of servers.
pub(crate) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "mcp",
    place: mcp_place,
    play: |caller| Box::pin(mcp(caller)),
}];

fn mcp_place() -> Place {
    let script = Script::new().on(
        "[a]",
        [
            calls("mem__add", json!({ "text": "one" }))
                .and("mem__set", json!({ "text": "same" }))
                .and("mem__look", json!({})),
            says("a is done"),
        ],
    );
    let place = Place::new(script).with_agent("worker", "mcp_servers: [mem]");
    with_server(place, "mem", "")
}

/// A call that must not be repeated beside one that may and one that only looks.
async fn mcp(caller: &mut Caller) {
    caller
        .until("the server's tools", async |caller: &mut Caller| {
            let listed = caller.call("mcp.list", json!({})).await;
            let server = &listed["servers"][0];
            (server["state"] == "ready").then_some(())
        })
        .await;
    let a = caller
        .spawn(json!({ "task": "[a]", "agent": "worker" }))
        .await;
    let run = caller.ended(&a.id).await;
    assert_eq!(run["result"], "a is done", "{run}");
    assert_eq!(run["toolCalls"], 3, "{run}");
    let was_killed = !caller.history.kills.is_empty();
    let added = lines(caller.place(), "added");
    // A kill may come after the step was marked and before its effect.
    assert!(added == 1 || added == 0 && was_killed, "{added}");
    let set = lines(caller.place(), "set");
    assert!(set == 1 || set > 1 && was_killed, "{set}");
    let history = json!({ "sessionKey": a.session, "tools": true });
    let told = caller.call("sessions.history", history).await.to_string();
    let knows = told.contains("added one");
    assert!(knows || was_killed && told.contains("uncertain"), "{told}");
    assert!(told.contains("it is set"), "{told}");
}
