//! Agents that use nodes: programs that run once whatever happens to the daemon or the node, and
//! skills that are usable through a node. The nodes are real.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::agents::{config, write};
use crate::harness::{Faults, Link, Place, Script, Spawned, calls, eventually, run, says};
use crate::node::fixture::{Node, NodeProcess, is_alive, pid_in};
use crate::node::paired::{at_fixed_address, in_state};
use crate::skills::put;

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

/// A skill as `skills.list` shows it; null if there is none.
async fn skill(client: &Link, place: &Place, name: &str) -> Value {
    let params = json!({ "workspace": place.work().to_str().unwrap(), "name": name });
    match client.attempt("skills.list", &params).await {
        Ok(listed) => listed["skills"][0].clone(),
        Err(_) => Value::Null,
    }
}

/// Waits until the skill is usable or not.
async fn usable(client: &Link, place: &Place, name: &str, is_usable: bool) -> Value {
    eventually(name, async || {
        let found = skill(client, place, name).await;
        (found["eligible"] == is_usable).then_some(found)
    })
    .await
}

#[test]
fn a_skill_is_usable_through_a_node_that_has_its_programs_also_after_a_restart() {
    run(async {
        let place = place("gate: {node_run: allow}\n");
        put(
            &place.work(),
            "skills/release",
            "Makes a release.",
            "Do it.",
        );
        let file = place.work().join("skills/release/SKILL.md");
        let needs = "---\nname: release\ndescription: Makes a release.\nmetadata: {requires: {bins: [xcodebuild9]}}\n---\nDo it.\n";
        fs::write(file, needs).unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(skill(&client, &place, "release").await["eligible"], false);
        let node = Node::invited(&daemon, &client).await;
        let bin = node.path().join("bin");
        let program = bin.join("xcodebuild9");
        fs::create_dir(&bin).unwrap();
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = node.command(&["node", "run"]);
        command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        let _process = node.started(command);
        let found = usable(&client, &place, "release", true).await;
        assert_eq!(found["node"], "mac");
        let workspace = json!({ "workspace": place.work().to_str().unwrap() });
        let snapshot = client.call("skills.snapshot", workspace).await;
        let prompt = snapshot["prompt"].as_str().unwrap();
        assert!(prompt.contains("<where>on node mac</where>"), "{prompt}");
        daemon.kill().await;

        // What was found is stored: the node is not asked again, and would have nothing to show.
        fs::remove_file(&program).unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        in_state(&client, "mac", "connected").await;
        usable(&client, &place, "release", true).await;
        client.call("nodes.call", node.traced("true")).await;
        usable(&client, &place, "release", true).await;
        // A removed node makes nothing usable.
        client.call("nodes.remove", json!({ "node": "mac" })).await;
        usable(&client, &place, "release", false).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_node_publishes_skills_beside_those_of_the_gateway() {
    run(async {
        let place = place("");
        put(
            &place.work(),
            "skills/release",
            "The gateway's.",
            "Do it here.",
        );
        let daemon = place.start().await;
        let client = daemon.client().await;
        let node = Node::invited(&daemon, &client).await;
        for name in ["release", "sign"] {
            put(
                &node.path(),
                &format!("shared/{name}"),
                "The node's.",
                "Do it there.",
            );
        }
        let shared = node.path().join("shared");
        node.offers(&format!("skills = {shared:?}\n"));
        let _process = node.connected(&client, "").await;
        // They are published once an operator has approved it.
        eventually("the wider offer", async || {
            let shown = client.call("nodes.get", json!({ "node": "mac" })).await;
            shown["pending"]
                .to_string()
                .contains("skills")
                .then_some(())
        })
        .await;
        assert_eq!(skill(&client, &place, "sign").await, Value::Null);
        client.call("nodes.approve", json!({ "node": "mac" })).await;
        for (name, about) in [
            ("mac-release", "The node's."),
            ("sign", "The node's."),
            ("release", "The gateway's."),
        ] {
            let found = usable(&client, &place, name, true).await;
            assert_eq!(found["description"], about, "{found}");
            let is_there = about == "The node's.";
            assert_eq!(found["node"] == "mac", is_there, "{found}");
            assert_eq!(found["source"] == "node", is_there, "{found}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}
