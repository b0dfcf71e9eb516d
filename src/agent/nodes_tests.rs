//! Tests which tools agents have at which state of the nodes.

use std::collections::BTreeSet;

use super::*;
use crate::agent::served::{Equipped, Reachable};
use crate::agent::tools::ToolChoice;
use crate::contract::servers::ServerViews;
use crate::kernel::node::Offer;

fn schema(name: &str) -> Value {
    let mut properties = json!({ "path": { "type": "string" } });
    if is_for_any_node(name) {
        properties["node"] = json!({ "type": "string", "format": NODE_FORMAT });
    }
    if name == "shell" {
        properties["cwd"] = json!({ "type": "string" });
    }
    json!({
        "name": name,
        "description": "Does it on a node.",
        "parameters": { "type": "object", "properties": properties, "required": ["node", "path"] },
    })
}

fn schemas(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| schema(name)).collect()
}

fn node(name: &str, commands: &[NodeCommand]) -> NodeView {
    NodeView {
        name: name.to_owned(),
        platform: "macos".to_owned(),
        connected: !commands.is_empty(),
        callable: Offer {
            commands: commands.iter().copied().collect(),
            roots: BTreeSet::from(["/srv".to_owned()]),
            skills: false,
        },
        programs: [("swift".to_owned(), "/usr/bin/swift".to_owned())].into(),
        asked: BTreeSet::new(),
        pairing: 1,
    }
}

/// The tools of an agent, and those that are left out.
fn equipped(definition: &AgentDefinition, own: &[Value], nodes: &[NodeView]) -> Equipment {
    let servers = ServerViews::default();
    let reachable = Reachable {
        servers: &servers,
        nodes,
    };
    let equipped = Equipped::default();
    let first = equipped.over(definition, &ToolChoice::default(), own, reachable);
    let again = equipped.over(definition, &ToolChoice::default(), own, reachable);
    // Nothing has changed, so the prompt does not change.
    assert_eq!(first.tools, again.tools);
    Equipment::clone(&first)
}

fn pinned(equipment: &Equipment) -> Vec<Value> {
    serde_json::from_str(&equipment.tools.body).unwrap()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect()
}

#[test]
fn a_tool_is_offered_with_the_nodes_on_which_it_may_be_called() {
    let definition = AgentDefinition::named("a", "A.", "");
    let own = schemas(&["read", NODE_RUN, NODE_READ]);
    let run = [NodeCommand::Run];
    let nodes = [node("away", &[]), node("mac", &run), node("pi", &run)];
    let equipment = equipped(&definition, &own, &nodes);
    let tools = pinned(&equipment);
    assert_eq!(names(&tools), ["read", NODE_RUN]);
    let argument = &tools[1]["parameters"]["properties"]["node"];
    assert_eq!(
        *argument,
        json!({ "type": "string", "enum": ["mac", "pi"] })
    );
    assert_eq!(
        tools[1][NODES_KEY],
        json!([
            "mac (macos): node_run; programs that skills need: swift",
            "pi (macos): node_run; programs that skills need: swift",
        ])
    );
    assert_eq!(equipment.left_out[0].name, NODE_READ);
    let own = ["read", NODE_RUN, NODE_READ].map(str::to_owned);
    assert_eq!(equipment.offered(&own), ["read", NODE_RUN]);
    // Without any node there is none of them.
    let tools = pinned(&equipped(&definition, &schemas(&[NODE_RUN]), &[]));
    assert_eq!(names(&tools), [""; 0]);
}

#[test]
fn a_node_that_reads_shows_its_folders() {
    let definition = AgentDefinition::named("a", "A.", "");
    let nodes = [node("mac", &[NodeCommand::Read, NodeCommand::List])];
    let tools = pinned(&equipped(&definition, &schemas(&[NODE_LIST]), &nodes));
    let line = tools[0][NODES_KEY][0].as_str().unwrap();
    let expected =
        "mac (macos): node_read, node_list; folders: /srv; programs that skills need: swift";
    assert_eq!(line, expected);
}

#[test]
fn the_tools_of_an_agent_on_a_node_work_there_or_nowhere() {
    let mut definition = AgentDefinition::named("a", "A.", "");
    definition.node = Some("mac".to_owned());
    let own = schemas(&["shell", "read", "list", "glob", "write", "todo"]);
    let templates = schemas(&[NODE_RUN, NODE_READ, NODE_LIST]);
    let (own, left_out) = on_node(own, &templates, "mac");
    assert_eq!(names(&own), ["shell", "read", "list", "todo"]);
    let left_out: Vec<&str> = left_out.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(left_out, ["glob", "write"]);
    for tool in &own[..3] {
        assert_eq!(tool[ON_NODE_KEY], "mac");
        assert_eq!(tool["parameters"]["properties"]["node"], Value::Null);
        assert!(
            tool["description"]
                .as_str()
                .unwrap()
                .contains("on node mac"),
            "{tool}"
        );
    }
    assert_eq!(own[1]["parameters"]["required"], json!(["path"]));

    let nodes = [node("mac", &[NodeCommand::Run, NodeCommand::Read])];
    let equipment = equipped(&definition, &own, &nodes);
    assert_eq!(names(&pinned(&equipment)), ["shell", "read", "todo"]);
    // Never on this machine instead.
    for nodes in [
        &[][..],
        &[node("mac", &[]), node("pi", &[NodeCommand::Run])],
    ] {
        let equipment = equipped(&definition, &own, nodes);
        assert_eq!(names(&pinned(&equipment)), ["todo"]);
        let note = equipment.notes.join(" ");
        assert!(note.starts_with("without shell, read, list: "), "{note}");
    }
}
