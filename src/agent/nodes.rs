//! The tools of agents that use nodes: which nodes a tool may name at the start of a turn, and the
//! tools of an agent that works on a node. Called by `view` and `served`.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::AgentDefinition;
use super::served::Equipment;
use crate::contract::catalog::Omitted;
use crate::contract::nodes::{
    NODE_FORMAT, NODE_LIST, NODE_READ, NODE_RUN, NODES_KEY, NodeView, ON_NODE_KEY,
};
use crate::kernel::node::NodeCommand;
use crate::kernel::text::preview;

/// Maximum number of folders and of programs of a node that models are shown.
const SHOWN: usize = 40;
/// Maximum number of characters of a folder or program that models are shown.
const SHOWN_NAME: usize = 128;

/// The command by which a tool works on a node; `None` for a tool that works here.
fn command_of(tool: &str) -> Option<NodeCommand> {
    match tool {
        NODE_RUN | "shell" => Some(NodeCommand::Run),
        NODE_READ | "read" => Some(NodeCommand::Read),
        NODE_LIST | "list" => Some(NodeCommand::List),
        _ => None,
    }
}

/// Tools that work on files and cannot do so on a node.
const ONLY_HERE: &[&str] = &["glob", "grep", "write", "edit"];

/// The tools of an agent that works on a node: `shell`, `read` and `list` work there. The other
/// tools for files are left out, since they would work on this machine's files.
pub(super) fn on_node(
    schemas: Vec<Value>,
    tools: &[Value],
    node: &str,
) -> (Vec<Value>, Vec<Omitted>) {
    let mut left_out = Vec::new();
    let schemas = schemas.into_iter().filter_map(|schema| {
        let name = schema["name"].as_str().unwrap_or_default().to_owned();
        if ONLY_HERE.contains(&name.as_str()) {
            left_out.push(Omitted {
                reason: format!("the agent works on node {node}, where this tool cannot work"),
                name,
            });
            return None;
        }
        let template = |name: &str| tools.iter().find(|schema| schema["name"] == name).cloned();
        Some(match name.as_str() {
            "shell" => shell_there(schema, node),
            "read" => there(template(NODE_READ)?, &name, node),
            "list" => there(template(NODE_LIST)?, &name, node),
            _ => schema,
        })
    });
    let schemas = schemas.collect();
    (schemas, left_out)
}

/// The tool `name` that does on `node` what the tool with the schema `template` does on any.
fn there(mut template: Value, name: &str, node: &str) -> Value {
    template["name"] = name.into();
    if let Some(properties) = template["parameters"]["properties"].as_object_mut() {
        properties.shift_remove("node");
    }
    if let Some(required) = template["parameters"]["required"].as_array_mut() {
        required.retain(|name| name != "node");
    }
    let about = template["description"].as_str().unwrap_or_default();
    template["description"] = about
        .replace("on a node", &format!("on node {node}"))
        .into();
    template[ON_NODE_KEY] = node.into();
    template
}

fn shell_there(mut schema: Value, node: &str) -> Value {
    schema["description"] = format!(
        "Runs a command line with /bin/sh on node {node}, another machine, and returns its exit \
         status and output. Processes that it leaves running are ended with it."
    )
    .into();
    schema["parameters"]["properties"]["cwd"]["description"] =
        "The folder on the node to run it in, an absolute path. Default: the node's own.".into();
    schema[ON_NODE_KEY] = node.into();
    schema
}

/// The tools of `own` that can be used at the present state of the nodes, with the names of the
/// nodes filled in; what cannot is noted in `equipment`.
pub(super) fn available(
    definition: &AgentDefinition,
    own: &[Value],
    nodes: &[NodeView],
    equipment: &mut Equipment,
) -> Vec<Value> {
    let mut missing: Vec<&str> = Vec::new();
    let schemas = own.iter().filter_map(|schema| {
        let name = schema["name"].as_str().unwrap_or_default();
        let is_there = schema.get(ON_NODE_KEY).is_some();
        let Some(command) = command_of(name).filter(|_| is_there || is_for_any_node(name)) else {
            return Some(schema.clone());
        };
        let usable = |view: &&NodeView| view.callable.commands.contains(&command);
        if is_there {
            let node = schema[ON_NODE_KEY].as_str().unwrap_or_default();
            let found = nodes.iter().filter(usable).any(|view| view.name == node);
            if !found {
                missing.push(name);
            }
            return found.then(|| schema.clone());
        }
        let found: Vec<&NodeView> = nodes.iter().filter(usable).collect();
        if found.is_empty() {
            equipment.left_out.push(Omitted {
                name: name.to_owned(),
                reason: format!("no node is connected on which {command} may be called"),
            });
            return None;
        }
        Some(named(schema, &found))
    });
    let schemas = schemas.collect();
    if let (false, Some(node)) = (missing.is_empty(), &definition.node) {
        let why = why_not(node, nodes);
        for name in &missing {
            equipment.left_out.push(Omitted {
                name: (*name).to_owned(),
                reason: why.clone(),
            });
        }
        equipment
            .notes
            .push(format!("without {}: {why}", missing.join(", ")));
    }
    schemas
}

fn is_for_any_node(tool: &str) -> bool {
    [NODE_RUN, NODE_READ, NODE_LIST].contains(&tool)
}

fn why_not(node: &str, nodes: &[NodeView]) -> String {
    match nodes.iter().find(|view| view.name == node) {
        None => format!("the agent works on node {node}, and there is no such node"),
        Some(view) if !view.connected => {
            format!("the agent works on node {node}, which is away")
        }
        Some(_) => {
            format!("the agent works on node {node}, where the commands for them may not be called")
        }
    }
}

/// The tool whose argument may name these nodes, with what models should know of them.
fn named(schema: &Value, nodes: &[&NodeView]) -> Value {
    let mut schema = schema.clone();
    let names: Vec<&str> = nodes.iter().map(|view| view.name.as_str()).collect();
    let properties = schema["parameters"]["properties"].as_object_mut();
    for (_, argument) in properties.into_iter().flatten() {
        if argument["format"] == NODE_FORMAT
            && let Some(argument) = argument.as_object_mut()
        {
            argument.shift_remove("format");
            argument.insert("enum".to_owned(), json!(names));
        }
    }
    let lines: Vec<String> = nodes.iter().map(|view| line(view)).collect();
    schema[NODES_KEY] = json!(lines);
    schema
}

/// What models should know of a node.
fn line(view: &NodeView) -> String {
    let commands = &view.callable.commands;
    let tools = [
        (NodeCommand::Run, NODE_RUN),
        (NodeCommand::Read, NODE_READ),
        (NodeCommand::List, NODE_LIST),
    ];
    let tools: Vec<&str> = tools
        .into_iter()
        .filter(|(command, _)| commands.contains(command))
        .map(|(_, tool)| tool)
        .collect();
    let mut text = format!("{} ({}): {}", view.name, view.platform, tools.join(", "));
    let reads = commands.contains(&NodeCommand::Read) || commands.contains(&NodeCommand::List);
    let roots = view.callable.roots.iter().filter(|_| reads);
    let programs = view.programs.keys();
    let lists = [
        ("folders", some(roots)),
        ("programs that skills need", some(programs)),
    ];
    for (what, list) in lists.iter().filter(|(_, list)| !list.is_empty()) {
        // Writing to a String cannot fail.
        let _ = write!(text, "; {what}: {list}");
    }
    text
}

fn some<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let mut shown: Vec<String> = names
        .take(SHOWN + 1)
        .map(|name| preview(name, SHOWN_NAME))
        .collect();
    if shown.len() > SHOWN {
        shown[SHOWN] = "…".to_owned();
    }
    shown.join(", ")
}

#[cfg(test)]
#[path = "nodes_tests.rs"]
mod tests;
