//! Agents that use nodes: programs that run once whatever happens to the daemon or the node, and
//! skills that are usable through a node.

use serde_json::{Value, json};

use super::{connected, invited};
use crate::agents::{config, write};
use crate::harness::{
    FakeLink, Link, Place, Script, Spawned, calls, eventually, result, run, says,
};
use crate::skills::put;

/// An agent `worker` that may run programs on nodes and calls `make` on the node `mac`.
fn place(fields: &str) -> Place {
    let make = json!({ "node": "mac", "argv": ["make", "all"] });
    let script = Script::new().on("[go]", [calls("node_run", make), says("it is built")]);
    let place = Place::new(script);
    let header = format!("tools: [read, node_run, node_read]\n{fields}");
    write(&config(&place), "worker.md", &header, "Work.");
    place
}

async fn go(client: &Link) -> Spawned {
    let params = json!({ "task": "[go]", "agent": "worker" });
    client.spawn(params).await
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

/// Answers that it is unknown how the call ended.
async fn uncertain(link: &mut FakeLink, id: &Value) {
    let end = json!({ "type": "uncertain", "message": "the node was killed during the call" });
    link.send(&json!({ "type": "result", "id": id, "end": end }))
        .await;
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
        let (key, token) = invited(&daemon, &client, "mac").await;
        let mut link = connected(&daemon, &key, &token, json!({})).await;
        assert_eq!(tools().await, Some(json!(["mac"])));

        let run = go(&client).await;
        let call = link.next_of("call").await;
        assert_eq!(call["call"]["argv"], json!(["make", "all"]));
        let shown = step(&client, &run).await;
        assert_eq!(
            (&shown["stepId"], &shown["effect"]),
            (&call["id"], &json!("once"))
        );
        link.done(&call, "built\n").await;
        assert_eq!(link.next_of("release").await["id"], call["id"]);
        let ended = client.ended(&run.id).await;
        assert_eq!(ended["result"], "it is built", "{ended}");
        assert_eq!(told(&client, &run).await, "exit status 0\nstdout:\nbuilt");
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
            let (key, token) = invited(&daemon, &client, "mac").await;
            let mut link = connected(&daemon, &key, &token, json!({})).await;
            let run = go(&client).await;
            let call = link.next_of("call").await;
            let id = call["id"].clone();
            daemon.kill().await;

            let daemon = place.start().await;
            let client = daemon.client().await;
            let mut link = connected(&daemon, &key, &token, json!({ "calls": [id] })).await;
            let again = link.next_of("call").await;
            assert_eq!((&again["id"], &again["call"]), (&id, &call["call"]));
            link.send(&result(id.as_str().unwrap(), "built")).await;
            assert_eq!(link.next_of("release").await["id"], id);
            let ended = client.ended(&run.id).await;
            assert_eq!(ended["result"], "it is built", "{ended}");
            assert_eq!(told(&client, &run).await, "exit status 0\nstdout:\nbuilt");
            let shown = step(&client, &run).await;
            assert_eq!(
                (&shown["state"], &shown["attempts"]),
                (&json!("done"), &json!(2))
            );
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
        let (key, token) = invited(&daemon, &client, "mac").await;
        let mut link = connected(&daemon, &key, &token, json!({})).await;
        let run = go(&client).await;
        let call = link.next_of("call").await;
        uncertain(&mut link, &call["id"]).await;
        assert_eq!(link.next_of("release").await["id"], call["id"]);
        client.ended(&run.id).await;
        let told = told(&client, &run).await;
        assert!(
            told.starts_with("uncertain: the node was killed during the call."),
            "{told}"
        );
        assert_eq!(step(&client, &run).await["state"], "uncertain");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_call_whose_node_was_killed_is_reviewed_also_over_a_restart_and_run_again_only_then() {
    run(async {
        let place = place("gate: {node_run: allow}\non_uncertain: review\n");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let (key, token) = invited(&daemon, &client, "mac").await;
        let mut link = connected(&daemon, &key, &token, json!({})).await;
        let run = go(&client).await;
        let call = link.next_of("call").await;
        uncertain(&mut link, &call["id"]).await;
        let reviewed = in_review(&client, &run).await;
        assert_eq!(reviewed["pauseReason"], "review");
        // The node knows no more about it: what runs again begins anew.
        assert_eq!(link.next_of("release").await["id"], call["id"]);
        daemon.kill().await;

        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut link = connected(&daemon, &key, &token, json!({})).await;
        let reviewed = in_review(&client, &run).await;
        let params = json!({
            "runId": run.id, "stepId": reviewed["reviews"][0]["stepId"], "decision": "not_done",
        });
        client.call("runs.resolve", params).await;
        let again = link.next_of("call").await;
        assert_eq!(again["id"], call["id"]);
        link.done(&again, "built").await;
        let ended = client.ended(&run.id).await;
        assert_eq!(ended["result"], "it is built", "{ended}");
        assert_eq!(told(&client, &run).await, "exit status 0\nstdout:\nbuilt");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn the_cancel_of_a_run_reaches_its_node() {
    run(async {
        let place = place("gate: {node_run: allow}\n");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let (key, token) = invited(&daemon, &client, "mac").await;
        let mut link = connected(&daemon, &key, &token, json!({})).await;
        let run = go(&client).await;
        let call = link.next_of("call").await;
        client.call("runs.cancel", json!({ "runId": run.id })).await;
        assert_eq!(link.next_of("cancel").await["id"], call["id"]);
        let end = json!({ "type": "failed", "reason": "cancelled", "message": "cancelled" });
        link.send(&json!({ "type": "result", "id": call["id"], "end": end }))
            .await;
        assert_eq!(link.next_of("release").await["id"], call["id"]);
        let ended = client.ended(&run.id).await;
        assert_eq!(ended["state"], "cancelled", "{ended}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn without_a_rule_a_person_is_asked_before_anything_is_sent() {
    run(async {
        let place = place("");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let (key, token) = invited(&daemon, &client, "mac").await;
        let mut link = connected(&daemon, &key, &token, json!({})).await;
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
        // The first frame after the welcome is that of another call.
        let other = super::run_true("mac");
        let (_, ()) = tokio::join!(client.call("nodes.call", other), async {
            let call = link.next_of("call").await;
            assert_eq!(call["call"]["argv"], json!(["true"]));
            link.done(&call, "").await;
        });
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
        std::fs::write(file, needs).unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(skill(&client, &place, "release").await["eligible"], false);
        let (key, token) = invited(&daemon, &client, "mac").await;
        let mut link = connected(&daemon, &key, &token, json!({})).await;
        let call = link.next_of("call").await;
        assert_eq!(call["call"]["command"], "system.which", "{call}");
        assert_eq!(call["call"]["programs"], json!(["xcodebuild9"]));
        let value = json!({ "programs": { "xcodebuild9": "/usr/bin/xcodebuild9" } });
        let end = json!({ "type": "done", "value": value });
        link.send(&json!({ "type": "result", "id": call["id"], "end": end }))
            .await;
        assert_eq!(link.next_of("release").await["id"], call["id"]);
        let usable = async |client: &Link| {
            eventually("the skill", async || {
                let found = skill(client, &place, "release").await;
                (found["eligible"] == true).then_some(found)
            })
            .await
        };
        assert_eq!(usable(&client).await["node"], "mac");
        let workspace = json!({ "workspace": place.work().to_str().unwrap() });
        let snapshot = client.call("skills.snapshot", workspace).await;
        let prompt = snapshot["prompt"].as_str().unwrap();
        assert!(prompt.contains("<where>on node mac</where>"), "{prompt}");
        daemon.kill().await;

        // What was found is stored: the node is not asked again.
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut link = connected(&daemon, &key, &token, json!({})).await;
        usable(&client).await;
        let (_, ()) = tokio::join!(client.call("nodes.call", super::run_true("mac")), async {
            let call = link.next_of("call").await;
            assert_eq!(call["call"]["command"], "system.run", "{call}");
            link.done(&call, "").await;
        });
        // A removed node makes nothing usable.
        client.call("nodes.remove", json!({ "node": "mac" })).await;
        eventually("the skill is gone", async || {
            let found = skill(&client, &place, "release").await;
            (found["eligible"] == false).then_some(())
        })
        .await;
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
        let mut offer = crate::harness::offer();
        offer["skills"] = json!(true);
        let invited = client.call("nodes.invite", json!({ "name": "mac" })).await;
        let key = crate::harness::NodeKey::new();
        let mut link = FakeLink::open(daemon.url(), "/pair", None).await.unwrap();
        link.ask(&key, json!({ "invite": invited["code"], "offer": offer }))
            .await;
        link.proof("/pair").await.unwrap();
        let token = link.next_of("paired").await["token"].clone();
        let with = json!({ "offer": offer });
        let mut link = connected(&daemon, &key, token.as_str().unwrap(), with).await;
        let text = |name: &str| {
            format!("---\nname: {name}\ndescription: The node's.\n---\nDo it there.\n")
        };
        link.send(&json!({ "type": "skills", "skills": [
            { "folder": "release", "text": text("release") },
            { "folder": "sign", "text": text("sign") },
        ]}))
        .await;
        for (name, about) in [
            ("mac-release", "The node's."),
            ("sign", "The node's."),
            ("release", "The gateway's."),
        ] {
            let found = eventually(name, async || {
                let found = skill(&client, &place, name).await;
                (found["eligible"] == true).then_some(found)
            })
            .await;
            assert_eq!(found["description"], about, "{found}");
            let is_there = about == "The node's.";
            assert_eq!(found["node"] == "mac", is_there, "{found}");
            assert_eq!(found["source"] == "node", is_there, "{found}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}
