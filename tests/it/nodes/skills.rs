//! Skills that are usable through nodes: the programs of a node make skills usable, a node that is away
//! (after 20 s without contact) makes them unusable again, and nodes publish skills of their own. The
//! nodes are real.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::agents::{config, write};
use crate::harness::{Event, Link, Place, Script, eventually, run, says};
use crate::node::fixture::{Node, NodeProcess};
use crate::node::paired::{at_fixed_address, in_state};
use crate::skills::put;

/// The program that the skill `release` requires.
const PROGRAM: &str = "xcodebuild9";

/// A workspace with the skill `release`, which requires a program that only nodes have, and an
/// agent that may run programs on nodes.
fn place() -> Place {
    let place = Place::new(Script::new().on("[go]", [says("done")]));
    let header = "tools: [read, node_run, node_read]\ngate: {node_run: allow}\n";
    write(&config(&place), "worker.md", header, "Work.");
    put(
        &place.work(),
        "skills/release",
        "Makes a release.",
        "Do it.",
    );
    let needs = format!(
        "---\nname: release\ndescription: Makes a release.\nmetadata: {{requires: {{bins: [{PROGRAM}]}}}}\n---\nDo it.\n"
    );
    fs::write(place.work().join("skills/release/SKILL.md"), needs).unwrap();
    at_fixed_address(place)
}

/// Starts a node whose `PATH` has the program.
fn equipped(node: &Node) -> NodeProcess {
    let bin = node.path().join("bin");
    let program = bin.join(PROGRAM);
    fs::create_dir_all(&bin).unwrap();
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = node.command(&["node", "run"]);
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    node.started(command)
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

/// The `skills.changed` events of the workspace.
fn changes(place: &Place) -> Vec<Event> {
    let workspace = place.work().canonicalize().unwrap();
    let events = place.book().events.into_values();
    events
        .filter(|event| event.kind == "skills.changed")
        .filter(|event| event.data["workspace"] == workspace.to_str().unwrap())
        .collect()
}

/// The reason of each change of the workspace's skills, with the number of usable ones.
fn reasons(place: &Place) -> Vec<(String, u64)> {
    let reason = |event: Event| {
        let reason = event.data["reason"].as_str().unwrap().to_owned();
        (reason, event.data["skills"].as_u64().unwrap())
    };
    changes(place).into_iter().map(reason).collect()
}

#[test]
fn a_skill_is_usable_through_a_node_that_has_its_programs_also_after_a_restart() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(skill(&client, &place, "release").await["eligible"], false);
        let node = Node::invited(&daemon, &client).await;
        let _process = equipped(&node);
        let found = usable(&client, &place, "release", true).await;
        assert_eq!(found["node"], "mac");
        let workspace = json!({ "workspace": place.work().to_str().unwrap() });
        let snapshot = client.call("skills.snapshot", workspace).await;
        let prompt = snapshot["prompt"].as_str().unwrap();
        assert!(prompt.contains("<where>on node mac</where>"), "{prompt}");
        daemon.kill().await;

        // What was found is stored: the node is not asked again, and would have nothing to show.
        fs::remove_file(node.path().join("bin").join(PROGRAM)).unwrap();
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
        let place = Place::new(Script::new());
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

/// The number of usable skills of the workspace.
async fn usable_count(client: &Link, place: &Place) -> u64 {
    let params = json!({ "workspace": place.work().to_str().unwrap() });
    let listed = client.call("skills.list", params).await;
    let skills = listed["skills"].as_array().unwrap().iter();
    skills.filter(|skill| skill["eligible"] == true).count() as u64
}

/// The prompt that lists the skills of the workspace, as the next turn gets it.
async fn prompt(client: &Link, place: &Place) -> String {
    let workspace = json!({ "workspace": place.work().to_str().unwrap() });
    let snapshot = client.call("skills.snapshot", workspace).await;
    snapshot["prompt"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn each_change_of_a_node_changes_the_skills_once_and_a_skill_whose_node_is_away_is_not_offered() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        // The first look records what there is without the node. From then on the test reads only the event
        // log until it has a change: a client that lists skills records changes as well.
        let snapshot = json!({ "workspace": place.work().to_str().unwrap() });
        let first = client.call("skills.snapshot", snapshot).await;
        assert!(!first["prompt"].to_string().contains("release"), "{first}");
        assert_eq!(reasons(&place), []);
        let without = usable_count(&client, &place).await;
        let with = without + 1;
        let change = |usable: u64| ("remote-node".to_owned(), usable);
        let until = async |changes: &[u64]| {
            eventually(&format!("{changes:?}"), async || {
                (reasons(&place).len() >= changes.len()).then_some(())
            })
            .await;
            let expected: Vec<_> = changes.iter().copied().map(change).collect();
            assert_eq!(reasons(&place), expected);
        };

        let node = Node::invited(&daemon, &client).await;
        let process = equipped(&node);
        until(&[with]).await;
        assert!(prompt(&client, &place).await.contains("on node mac"));

        // A link that is lost and made again changes nothing.
        process.kill().await;
        let process = equipped(&node);
        in_state(&client, "mac", "connected").await;
        client.call("nodes.call", node.traced("true")).await;
        assert!(prompt(&client, &place).await.contains("on node mac"));
        until(&[with]).await;

        process.kill().await;
        until(&[with, without]).await;
        assert!(!prompt(&client, &place).await.contains("release"));

        let _process = equipped(&node);
        until(&[with, without, with]).await;
        assert!(prompt(&client, &place).await.contains("on node mac"));
        assert_eq!(daemon.stop().await, 0);
    });
}
