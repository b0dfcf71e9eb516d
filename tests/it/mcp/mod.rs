//! Servers of tools (MCP) through the real daemon: what agents get of them, what becomes of
//! calls, and what ends them.

mod server;

use serde_json::{Value, json};

use crate::harness::{Daemon, Link, Place, Script, calls, eventually, run, says};
use crate::processes::is_alive;

pub(crate) use server::{lines, with_server};

/// A place whose agent `worker` calls this tool of server `mem` when it is told `[go]`.
fn place(tool: &str, arguments: Value, start: &str) -> Place {
    let script = Script::new().on("[go]", [calls(tool, arguments), says("it is over")]);
    let place = Place::new(script).with_agent("worker", "mcp_servers: [mem]");
    with_server(place, "mem", start)
}

/// The server of that name as `mcp.list` shows it.
async fn shown(client: &Link, name: &str) -> Value {
    let listed = client.call("mcp.list", json!({})).await;
    let servers = listed["servers"].as_array().unwrap();
    let found = servers.iter().find(|server| server["name"] == name);
    found.unwrap_or_else(|| panic!("{listed}")).clone()
}

/// Waits until the server is in this state.
pub(crate) async fn until_state(client: &Link, name: &str, state: &str) -> Value {
    eventually(&format!("server {name} {state}"), async || {
        let server = shown(client, name).await;
        (server["state"] == state).then_some(server)
    })
    .await
}

/// A daemon whose server `mem` is ready, and a client.
async fn ready(place: &Place) -> (Daemon, Link) {
    let daemon = place.start().await;
    let client = daemon.client().await;
    until_state(&client, "mem", "ready").await;
    (daemon, client)
}

/// What the model was told by its calls in this session.
async fn results(client: &Link, session: &str) -> Vec<Value> {
    let history = json!({ "sessionKey": session, "tools": true });
    let history = client.call("sessions.history", history).await;
    let messages = history["messages"].as_array().unwrap().iter();
    let blocks = messages.flat_map(|message| message["content"].as_array().unwrap());
    let results = blocks.filter(|block| block["type"] == "tool_result");
    results.cloned().collect()
}

/// Lets `worker` go once; what its one call was answered.
async fn go(client: &Link) -> Value {
    let spawned = client
        .spawn(json!({ "task": "[go]", "agent": "worker" }))
        .await;
    let ended = client.ended(&spawned.id).await;
    assert_eq!(ended["result"], "it is over", "{ended}");
    results(client, &spawned.session).await.remove(0)
}

fn names(tools: &Value) -> Vec<&str> {
    let tools = tools["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn g12_8_what_is_listed_can_be_called_and_is_pinned() {
    run(async {
        let place = place("mem__add", json!({ "text": "one" }), "");
        let (daemon, client) = ready(&place).await;
        let tools = client
            .call("tools.list", json!({ "agent": "worker" }))
            .await;
        let add = tools["tools"].as_array().unwrap().iter();
        let add = add.clone().find(|tool| tool["name"] == "mem__add").unwrap();
        assert_eq!(add["description"], "adds");
        assert_eq!(add["parameters"]["properties"]["text"]["type"], "string");
        assert!(add["parameters"].get("$schema").is_none(), "{add}");
        let of = json!({ "server": "mem", "tool": "add", "effect": "once", "local": true });
        assert_eq!(add["served"], of);

        let spawn = json!({ "task": "[go]", "agent": "worker" });
        let spawned = client.spawn(spawn).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "it is over", "{ended}");
        assert_eq!(ended["pins"]["tools"], tools["hash"], "{ended}");
        assert_eq!(ended["warnings"], json!([]), "{ended}");
        let told = results(&client, &spawned.session).await;
        assert_eq!(told[0]["text"], "added one", "{told:?}");
        assert_eq!(lines(&place, "added"), 1);
        let steps = client
            .call("runs.steps", json!({ "runId": spawned.id }))
            .await;
        let step = steps["steps"].as_array().unwrap().iter();
        let step = step
            .clone()
            .find(|step| step["tool"] == "mem__add")
            .unwrap();
        assert_eq!(step["effect"], "once", "{step}");

        let server = shown(&client, "mem").await;
        let pid = u32::try_from(server["pid"].as_u64().unwrap()).unwrap();
        assert!(is_alive(pid));
        assert_eq!(daemon.stop().await, 0);
        assert!(!is_alive(pid));
    });
}
