//! Nodes: whatever is killed, a node is paired once by an invitation or an approval, a call runs once
//! on it, and a removed node is told so.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::Scenario;
use crate::agents::{config, write};
use crate::harness::{Caller, HonestNode, Place, Script, calls, says};

/// The scenarios of nodes.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "nodes",
        place: || Place::new(Script::new()),
        play: |caller| Box::pin(nodes(caller)),
    },
    Scenario {
        name: "node_steps",
        place: steps_place,
        play: |caller| Box::pin(steps(caller)),
    },
];

const CALL: &str = "01936f0e-0000-7000-8000-0000000000aa";

/// A node that connects again and again, ended on drop.
struct Running {
    node: Arc<Mutex<HonestNode>>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    /// Starts a node that pairs and then serves, until the gateway refuses it.
    fn start(caller: &Caller, name: &'static str, invite: Option<String>) -> Running {
        Running::start_node(caller, HonestNode::new(), name, invite)
    }

    fn start_node(
        caller: &Caller,
        node: HonestNode,
        name: &'static str,
        invite: Option<String>,
    ) -> Running {
        let node = Arc::new(Mutex::new(node));
        let (file, own) = (
            caller.place().state().join("endpoint.json"),
            Arc::clone(&node),
        );
        let task = tokio::spawn(async move {
            let mut node = own.lock().await;
            while node.refused.is_none() {
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                let endpoint: Value = serde_json::from_str(&text).unwrap_or_default();
                if let Some(url) = endpoint["url"].as_str() {
                    match node.token.is_some() {
                        true => node.serve(url).await,
                        false => drop(node.pair(url, name, invite.as_deref()).await),
                    }
                }
                // A gateway that is gone is tried again, as by a real node.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        });
        Running { node, task }
    }

    /// Waits until the gateway has refused it, and returns the reason and what it ran.
    async fn refused(mut self) -> (String, Vec<String>) {
        (&mut self.task).await.unwrap();
        let node = self.node.lock().await;
        (node.refused.clone().unwrap(), node.ran.clone())
    }
}

async fn connected(caller: &mut Caller, name: &str) {
    caller
        .until(
            &format!("{name} is connected"),
            async |caller: &mut Caller| {
                let shown = caller.call("nodes.list", json!({})).await;
                let mut nodes = shown["nodes"].as_array().unwrap().iter();
                let found = nodes.any(|node| node["name"] == name && node["state"] == "connected");
                found.then_some(())
            },
        )
        .await;
}

/// One node comes by an invitation, one is approved. A program runs on the first, which is then
/// renamed and removed.
async fn nodes(caller: &mut Caller) {
    let invited = caller.call("nodes.invite", json!({ "name": "mac" })).await;
    let code = invited["code"].as_str().unwrap().to_owned();
    let mac = Running::start(caller, "mac", Some(code));
    connected(caller, "mac").await;

    let _build = Running::start(caller, "build", None);
    caller
        .until("build is approved", async |caller: &mut Caller| {
            let shown = caller.call("nodes.list", json!({})).await;
            if let Some(code) = shown["waiting"].get(0).map(|one| one["code"].clone()) {
                // After a kill the node waits under a new code.
                let _ = caller
                    .attempt("nodes.approve", &json!({ "code": code }))
                    .await;
            }
            (shown["nodes"].as_array().unwrap().len() == 2).then_some(())
        })
        .await;
    connected(caller, "build").await;

    let call = json!({ "command": "system.run", "argv": ["true"] });
    let params = json!({ "node": "mac", "id": CALL, "call": call });
    let ended = caller.call("nodes.call", params).await;
    assert_eq!(ended["end"]["value"]["stdout"], "once", "{ended}");

    let renamed = json!({ "node": "mac", "name": "studio" });
    caller.once("nodes.rename", renamed, "not_found").await;
    let params = json!({ "node": "studio" });
    caller.once("nodes.remove", params, "not_found").await;
    let (reason, ran) = mac.refused().await;
    assert_eq!(reason, "removed");
    assert_eq!(ran, [CALL], "the program ran once");
    let shown = caller.call("nodes.list", json!({})).await;
    let names: Vec<&Value> = shown["nodes"].as_array().unwrap().iter().collect();
    assert_eq!(names.len(), 1, "{shown}");
    assert_eq!(names[0]["name"], "build");
}

fn steps_place() -> Place {
    let make = json!({ "node": "mac", "argv": ["make", "all"] });
    let script = Script::new().on("[go]", [calls("node_run", make), says("it is built")]);
    let place = Place::new(script);
    let header = "tools: [node_run]\ngate: {node_run: allow}\non_uncertain: review\n";
    write(&config(&place), "worker.md", header, "Work.");
    place
}

/// A run calls a program on a node, which loses its end. A user decides that it has not happened, and
/// it runs once more.
async fn steps(caller: &mut Caller) {
    let invited = caller.call("nodes.invite", json!({ "name": "mac" })).await;
    let code = invited["code"].as_str().unwrap().to_owned();
    let mut node = HonestNode::new();
    node.doubts = 1;
    let mac = Running::start_node(caller, node, "mac", Some(code));
    connected(caller, "mac").await;
    let task = json!({ "task": "[go]", "agent": "worker" });
    let run = caller.spawn(task).await;
    let mut reviews = 0;
    let ended = caller
        .until("the end", async |caller: &mut Caller| {
            let run = caller.run(&run.id).await;
            if run["needsReview"] == true {
                let step = &run["reviews"][0]["stepId"];
                let params =
                    json!({ "runId": run["runId"], "stepId": step, "decision": "not_done" });
                let id = step.as_str().unwrap().to_owned();
                caller.history.not_done.push(id);
                caller.once("runs.resolve", params, "conflict").await;
                reviews += 1;
            }
            run["endedAt"].is_string().then_some(run)
        })
        .await;
    assert_eq!(ended["result"], "it is built", "{ended}");
    // A kill before the node was told to forget the call leads to the same review again.
    assert!((1..=2).contains(&reviews), "{reviews}");
    // Its result is released once it is stored; then the node is removed.
    connected(caller, "mac").await;
    let params = json!({ "node": "mac" });
    caller.once("nodes.remove", params, "not_found").await;
    let (_, ran) = mac.refused().await;
    assert_eq!(
        ran.len(),
        2,
        "once before the decision and once after it: {ran:?}"
    );
}
