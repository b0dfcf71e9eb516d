//! Tool calls to MCP servers: a call that was started is never started again, and no server process
//! outlives its daemon.

use serde_json::json;

use super::Scenario;
use crate::environment::servers_of;
use crate::harness::{Caller, Place, Script, calls, says};
use crate::mcp::{lines, with_server};

/// The scenarios of MCP servers.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "mcp",
        place: mcp_place,
        play: |caller| Box::pin(mcp(caller)),
    },
    Scenario {
        name: "mcp of a run",
        place: own_place,
        play: |caller| Box::pin(own(caller)),
    },
];

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

fn own_place() -> Place {
    let script = Script::new().on(
        "[a]",
        [calls("mem__environment", json!({})), says("a is done")],
    );
    let worker = "mcp_servers: [mem]\nenv: {A_TOKEN: null}";
    let place = Place::new(script).with_agent("worker", worker);
    with_server(place, "mem", "").with("mcp.mem.scope", "\"run\"")
}

/// The server process of a run has the run's environment after every restart, and is gone with the
/// run.
async fn own(caller: &mut Caller) {
    until_ready(caller).await;
    let spawn = json!({
        "task": "[a]", "agent": "worker", "env": { "A_TOKEN": "canary-token" },
    });
    let a = caller.spawn(spawn).await;
    assert_eq!(caller.ended(&a.id).await["result"], "a is done");
    let history = json!({ "sessionKey": a.session, "tools": true });
    let told = caller.call("sessions.history", history).await.to_string();
    assert!(
        told.contains("ABIDE_RUN_ID") && told.contains(" A_TOKEN "),
        "{told}"
    );
    let id = a.id.as_str();
    caller
        .until("the end of its server", async |_: &mut Caller| {
            servers_of(id).is_empty().then_some(())
        })
        .await;
}

async fn until_ready(caller: &mut Caller) {
    caller
        .until("the server's tools", async |caller: &mut Caller| {
            let listed = caller.call("mcp.list", json!({})).await;
            let server = &listed["servers"][0];
            (server["state"] == "ready").then_some(())
        })
        .await;
}

/// A call that must not be repeated, in parallel with one that may and one that only reads.
async fn mcp(caller: &mut Caller) {
    until_ready(caller).await;
    let a = caller
        .spawn(json!({ "task": "[a]", "agent": "worker" }))
        .await;
    let run = caller.ended(&a.id).await;
    assert_eq!(run["result"], "a is done", "{run}");
    assert_eq!(run["toolCalls"], 3, "{run}");
    let was_killed = !caller.history.kills.is_empty();
    let added = lines(caller.place(), "added");
    // The kill may come after the step was marked and before its effect.
    assert!(added == 1 || added == 0 && was_killed, "{added}");
    let set = lines(caller.place(), "set");
    assert!(set == 1 || set > 1 && was_killed, "{set}");
    let history = json!({ "sessionKey": a.session, "tools": true });
    let told = caller.call("sessions.history", history).await.to_string();
    let knows = told.contains("added one");
    assert!(knows || was_killed && told.contains("uncertain"), "{told}");
    assert!(told.contains("it is set"), "{told}");
}
