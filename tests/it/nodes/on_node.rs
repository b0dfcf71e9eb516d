//! An agent whose file says `node: NAME`: its `shell`, `read` and `list` work on that node, and it
//! has no tool that would work on the gateway's files. The node is real.

use std::fs;

use serde_json::{Value, json};

use crate::agents::{config, write};
use crate::harness::{Link, Place, Script, calls, eventually, run, says};
use crate::node::fixture::Node;
use crate::node::paired::{at_fixed_address, in_state};

const FIELDS: &str = "node: mac\ntools: [shell, read, list, edit, grep]\ngate: {shell: allow}\n";

/// An agent on the node `mac` that looks around below `root`, a folder of the node.
fn place(root: &std::path::Path) -> Place {
    let file = root.join("notes.txt");
    let script = Script::new()
        .on(
            "[go]",
            [
                calls(
                    "shell",
                    json!({ "command": "echo ran >> trace; echo here" }),
                ),
                calls("read", json!({ "path": file })),
                calls("list", json!({ "path": root })),
                says("looked around"),
            ],
        )
        .on("[again]", [says("nothing to work with")]);
    let place = at_fixed_address(Place::new(script));
    write(&config(&place), "worker.md", FIELDS, "Work.");
    place
}

/// The names of the agent's tools, and of those that it does not have, with the reason.
async fn tools(client: &Link) -> (Vec<String>, Vec<(String, String)>) {
    let listed = client
        .call("tools.list", json!({ "agent": "worker" }))
        .await;
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let all = |key: &str| listed[key].as_array().cloned().unwrap_or_default();
    let own = all("tools").iter().map(|tool| text(tool, "name")).collect();
    let left_out = all("skipped");
    let left_out = left_out
        .iter()
        .map(|tool| (text(tool, "name"), text(tool, "reason")));
    (own, left_out.collect())
}

#[test]
fn the_tools_of_an_agent_on_a_node_work_there_and_are_gone_while_it_is_away() {
    run(async {
        let node = Node::new();
        let root = node.path().join("shared");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("notes.txt"), "written on the node\n").unwrap();
        let place = place(&root);
        let daemon = place.start().await;
        let client = daemon.client().await;
        node.join(&daemon, &client).await;
        node.offers(&format!("roots = [{root:?}]\n"));
        let process = node.connected(&client, "").await;
        eventually("the wider offer", async || {
            let shown = client.call("nodes.get", json!({ "node": "mac" })).await;
            (!shown["pending"].is_null()).then_some(())
        })
        .await;
        client.call("nodes.approve", json!({ "node": "mac" })).await;

        let (own, left_out) = tools(&client).await;
        assert_eq!(own, ["shell", "read", "list"]);
        let names: Vec<&str> = left_out.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["edit", "grep"], "{left_out:?}");
        for (_, reason) in &left_out {
            assert!(reason.contains("works on node mac"), "{reason}");
        }

        let params = json!({ "task": "[go]", "agent": "worker" });
        let run = client.spawn(params).await;
        let ended = client.ended(&run.id).await;
        assert_eq!(ended["result"], "looked around", "{ended}");
        let params = json!({ "sessionKey": run.session });
        let history = client.call("sessions.history", params).await;
        let messages = history["messages"].as_array().unwrap().iter();
        let results: Vec<&str> = messages
            .filter(|message| message["kind"] == "tool_result")
            .map(|message| message["content"][0]["text"].as_str().unwrap())
            .collect();
        assert_eq!(results.len(), 3, "{results:?}");
        assert_eq!(results[0], "exit status 0\nstdout:\nhere");
        assert!(results[1].contains("written on the node"), "{}", results[1]);
        assert!(results[2].contains("notes.txt"), "{}", results[2]);
        assert_eq!(node.traces(), ["ran"]);
        node.has_released_all().await;

        // It counts as away after 20 s; the next turn has none of them and says why.
        process.kill().await;
        let left_out = eventually("the node is away", async || {
            let (own, left_out) = tools(&client).await;
            own.is_empty().then_some(left_out)
        })
        .await;
        let why = "the agent works on node mac, which is away";
        for tool in ["shell", "read", "list"] {
            let found = left_out.iter().find(|(name, _)| name == tool);
            assert_eq!(
                found.map(|(_, reason)| reason.as_str()),
                Some(why),
                "{tool}"
            );
        }
        let again = client
            .spawn(json!({ "task": "[again]", "agent": "worker" }))
            .await;
        let ended = client.ended(&again.id).await;
        assert_eq!(ended["result"], "nothing to work with", "{ended}");

        let _process = node.connected(&client, "").await;
        in_state(&client, "mac", "connected").await;
        assert_eq!(tools(&client).await.0, ["shell", "read", "list"]);
        assert_eq!(daemon.stop().await, 0);
    });
}
