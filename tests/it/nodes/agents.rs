//! Agents that use nodes: programs that run once whatever happens to the daemon or the node. The
//! nodes are real.

use std::fs;

use serde_json::{Value, json};

use crate::agents::{config, write};
use crate::harness::{Faults, Link, Place, Script, Spawned, calls, eventually, run, says};
use crate::node::fixture::{Node, NodeProcess, is_alive, pid_in};
use crate::node::paired::{at_fixed_address, in_state};

/// What the agent runs: it leaves a trace in the node's home folder and ends once there is `go`.
const BUILD: &str = "echo ran >> trace; until test -e go; do sleep 0.01; done; echo built";

/// An agent `worker` that may run programs on nodes and runs this line on the node `mac`.
fn place_with(fields: &str, line: &str) -> Place {
    let build = json!({ "node": "mac", "argv": ["sh", "-c", line] });
    let script = Script::new().on("[go]", [calls("node_run", build), says("it is built")]);
    let place = Place::new(script);
    let header = format!("tools: [read, node_run, node_read]\n{fields}");
    write(&config(&place), "worker.md", &header, "Work.");
    at_fixed_address(place)
}

fn place(fields: &str) -> Place {
    place_with(fields, BUILD)
}

async fn go(client: &Link) -> Spawned {
    let params = json!({ "task": "[go]", "agent": "worker" });
    client.spawn(params).await
}

/// Spawns the run and waits until its program runs on the node.
async fn begun(client: &Link, node: &Node) -> Spawned {
    let run = go(client).await;
    eventually("the program", async || {
        (!node.traces().is_empty()).then_some(())
    })
    .await;
    run
}

fn let_go(node: &Node) {
    fs::write(node.path().join("go"), "").unwrap();
}

/// Kills the node and starts it again.
async fn killed(node: &Node, client: &Link, process: NodeProcess) -> NodeProcess {
    process.kill().await;
    node.connected(client, "").await
}

async fn told(client: &Link, run: &Spawned) -> String {
    let params = json!({ "sessionKey": run.session });
    let history = client.call("sessions.history", params).await;
    let messages = history["messages"].as_array().unwrap().iter();
    let results: Vec<&Value> = messages
        .filter(|message| message["kind"] == "tool_result")
        .collect();
    assert_eq!(results.len(), 1, "{history}");
    results[0]["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

async fn step(client: &Link, run: &Spawned) -> Value {
    let steps = client.call("runs.steps", json!({ "runId": run.id })).await;
    let mut steps = steps["steps"].as_array().unwrap().iter();
    steps
        .find(|step| step["tool"] == "node_run")
        .unwrap()
        .clone()
}

async fn in_review(client: &Link, run: &Spawned) -> Value {
    eventually("the review", async || {
        let run = client.run(&run.id).await;
        (run["needsReview"] == true).then_some(run)
    })
    .await
}

#[test]
fn an_agent_is_offered_the_nodes_that_are_there_and_a_call_is_released_once_it_is_stored() {
    run(async {
        let place = place("gate: {node_run: allow}\n");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let tools = async || {
            let tools = client
                .call("tools.list", json!({ "agent": "worker" }))
                .await;
            let list = tools["tools"].as_array().unwrap().clone();
            let run = list.into_iter().find(|tool| tool["name"] == "node_run");
            run.map(|tool| tool["parameters"]["properties"]["node"]["enum"].clone())
        };
        assert_eq!(tools().await, None);
        let node = Node::invited(&daemon, &client).await;
        let _process = node.connected(&client, "").await;
        assert_eq!(tools().await, Some(json!(["mac"])));

        let run = begun(&client, &node).await;
        assert_eq!(step(&client, &run).await["effect"], "once");
        assert_eq!(node.journaled(), 1);
        let_go(&node);
        let ended = client.ended(&run.id).await;
        assert_eq!(ended["result"], "it is built", "{ended}");
        assert_eq!(told(&client, &run).await, "exit status 0\nstdout:\nbuilt");
        node.has_released_all().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_program_continues_while_the_daemon_is_killed_and_its_result_arrives_once() {
    run(async {
        for on_uncertain in ["report", "review"] {
            let place = place(&format!(
                "gate: {{node_run: allow}}\non_uncertain: {on_uncertain}\n"
            ));
            let daemon = place.start().await;
            let client = daemon.client().await;
            let node = Node::invited(&daemon, &client).await;
            let _process = node.connected(&client, "").await;
            let run = begun(&client, &node).await;
            daemon.kill().await;
            // It ends while there is no daemon, or later.
            if on_uncertain == "report" {
                let_go(&node);
            }
            let daemon = place.start().await;
            let client = daemon.client().await;
            in_state(&client, "mac", "connected").await;
            let_go(&node);
            let ended = client.ended(&run.id).await;
            assert_eq!(ended["result"], "it is built", "{ended}");
            assert_eq!(told(&client, &run).await, "exit status 0\nstdout:\nbuilt");
            let shown = step(&client, &run).await;
            assert_eq!(
                (&shown["state"], &shown["attempts"]),
                (&json!("done"), &json!(2))
            );
            assert_eq!(node.traces(), ["ran"]);
            node.has_released_all().await;
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn a_call_whose_node_was_killed_is_reported_as_uncertain() {
    run(async {
        let place = place("gate: {node_run: allow}\n");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let node = Node::invited(&daemon, &client).await;
        let process = node.connected(&client, "").await;
        let run = begun(&client, &node).await;
        let _process = killed(&node, &client, process).await;
        client.ended(&run.id).await;
        let told = told(&client, &run).await;
        let says = "uncertain: the node ended while the program ran";
        assert!(told.starts_with(says), "{told}");
        assert_eq!(step(&client, &run).await["state"], "uncertain");
        node.has_released_all().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_call_whose_node_was_killed_is_reviewed_also_over_a_restart_and_run_again_only_then() {
    run(async {
        let place = place("gate: {node_run: allow}\non_uncertain: review\n");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let node = Node::invited(&daemon, &client).await;
        let process = node.connected(&client, "").await;
        let run = begun(&client, &node).await;
        let _process = killed(&node, &client, process).await;
        let reviewed = in_review(&client, &run).await;
        assert_eq!(reviewed["pauseReason"], "review");
        // The node knows no more about it: what runs again begins anew.
        node.has_released_all().await;
        let shown = place.command(&["review"]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        for says in ["has ended without a known outcome", "the node ended while"] {
            assert!(shown.contains(says), "{says}: {shown}");
        }
        assert!(!shown.contains("daemon was killed"), "{shown}");
        daemon.kill().await;

        let daemon = place.start().await;
        let client = daemon.client().await;
        in_state(&client, "mac", "connected").await;
        let reviewed = in_review(&client, &run).await;
        assert_eq!(node.traces(), ["ran"]);
        let params = json!({
            "runId": run.id, "stepId": reviewed["reviews"][0]["stepId"], "decision": "not_done",
        });
        client.call("runs.resolve", params).await;
        let_go(&node);
        let ended = client.ended(&run.id).await;
        assert_eq!(ended["result"], "it is built", "{ended}");
        assert_eq!(told(&client, &run).await, "exit status 0\nstdout:\nbuilt");
        assert_eq!(node.traces(), ["ran", "ran"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn the_cancel_of_a_run_reaches_its_node() {
    run(async {
        let place = place_with(
            "gate: {node_run: allow}\n",
            "echo $$ > pid; exec sleep 4000",
        );
        let daemon = place.start().await;
        let client = daemon.client().await;
        let node = Node::invited(&daemon, &client).await;
        let _process = node.connected(&client, "").await;
        let run = go(&client).await;
        let pid = pid_in(&node.path().join("pid")).await;
        client.call("runs.cancel", json!({ "runId": run.id })).await;
        let ended = client.ended(&run.id).await;
        assert_eq!(ended["state"], "cancelled", "{ended}");
        node.has_released_all().await;
        assert!(!is_alive(pid));
        assert_eq!(daemon.stop().await, 0);
    });
}

/// A cancel that was stored and not carried out, and a run that was recovered too often.
#[test]
fn a_call_of_a_run_that_recovery_ends_is_cancelled_on_its_node() {
    run(async {
        for case in ["cancelled", "attempts"] {
            let line = "echo $$ > pid; exec sleep 4000";
            let place =
                place_with("gate: {node_run: allow}\n", line).with("recovery.max_attempts", "1");
            let faults = Faults::ordered("store.cancel.committed=kill@1");
            let daemon = place.start_with(&faults).await.unwrap();
            let client = daemon.client().await;
            let node = Node::invited(&daemon, &client).await;
            let _process = node.connected(&client, "").await;
            let run = go(&client).await;
            let pid = pid_in(&node.path().join("pid")).await;
            if case == "cancelled" {
                let params = json!({ "runId": run.id });
                let answer = client.attempt("runs.cancel", &params).await;
                assert!(matches!(answer, Err(None)), "{answer:?}");
            } else {
                daemon.kill().await;
                let again = place.start().await;
                again.client().await.in_state(&run.id, "running").await;
                again.kill().await;
            }
            assert!(is_alive(pid), "the node knows nothing of it yet");
            let daemon = place.start().await;
            let client = daemon.client().await;
            let ended = client.ended(&run.id).await;
            assert_ne!(ended["state"], "ok", "{ended}");
            node.has_released_all().await;
            assert!(!is_alive(pid), "{case}");
            in_state(&client, "mac", "connected").await;
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn without_a_rule_a_person_is_asked_before_anything_is_sent() {
    run(async {
        let place = place("");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let node = Node::invited(&daemon, &client).await;
        let _process = node.connected(&client, "").await;
        let run = go(&client).await;
        let asked = eventually("the approval", async || {
            let open = client.call("approvals.list", json!({})).await;
            open["approvals"].get(0).cloned()
        })
        .await;
        assert_eq!(asked["tool"], "node_run", "{asked}");
        let params = json!({ "id": asked["id"], "decision": "deny" });
        client.call("approvals.resolve", params).await;
        let ended = client.ended(&run.id).await;
        assert_eq!(ended["result"], "it is built", "{ended}");
        assert!(told(&client, &run).await.starts_with("denied"));
        assert!(node.traces().is_empty());
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_agent_may_run_programs_on_one_node_and_on_no_other() {
    run(async {
        let on = |node: &str| {
            let argv = ["sh", "-c", "echo ran >> trace"];
            calls("node_run", json!({ "node": node, "argv": argv }))
        };
        let script = Script::new().on("[go]", [on("mac"), on("build"), says("done")]);
        let place = Place::new(script);
        let rules = "[{decision: deny}, {node: mac, decision: allow}]";
        let header = format!("tools: [node_run]\ngate: {{node_run: {rules}}}\n");
        write(&config(&place), "worker.md", &header, "Work.");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let (mac, build) = (Node::named("mac"), Node::named("build"));
        let mut processes = Vec::new();
        for node in [&mac, &build] {
            node.join(&daemon, &client).await;
            processes.push(node.connected(&client, "").await);
        }
        let run = go(&client).await;
        let ended = client.ended(&run.id).await;
        assert_eq!(ended["result"], "done", "{ended}");
        assert_eq!((mac.traces().len(), build.traces().len()), (1, 0));
        let params = json!({ "sessionKey": run.session });
        let history = client.call("sessions.history", params).await.to_string();
        assert!(
            history.contains("denied: the gate of agent worker"),
            "{history}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}
