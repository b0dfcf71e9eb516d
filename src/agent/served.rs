//! The server tools (MCP) of an agent: those of the servers that its definition names, or of all
//! servers if it names none. Computed at each spawn and for lists, from the current state of the
//! servers.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::AgentDefinition;
use super::tools::ToolChoice;
use super::view::pin;
use crate::contract::catalog::{Omitted, Pinned};
use crate::contract::nodes::NodeView;
use crate::contract::servers::{ServedTool, ServerState, ServerView, ServerViews};
use crate::kernel::text::preview;

/// The maximum number of characters of a server error in a spawn warning.
const ERROR: usize = 200;

/// What changes without a change of an agent's definition.
#[derive(Clone, Copy)]
pub(super) struct Reachable<'a> {
    /// The tool servers.
    pub servers: &'a ServerViews,
    /// The nodes of the tenant.
    pub nodes: &'a [NodeView],
}

/// All tools of an agent at a point in time.
#[derive(Clone, Debug)]
pub(super) struct Equipment {
    /// The version of the server state that this was built from.
    version: u64,
    /// The nodes that this was built from.
    nodes: Vec<NodeView>,
    /// The schemas, as a run pins them.
    pub tools: Pinned,
    /// The names of the server tools.
    pub names: Vec<String>,
    /// Warnings for callers that use the agent.
    pub notes: Vec<String>,
    /// Tools and servers that are not offered, with reasons.
    pub left_out: Vec<Omitted>,
}

impl Equipment {
    /// The names of all tools that are offered; `own` are those of the agent itself.
    pub(super) fn offered(&self, own: &[String]) -> Vec<String> {
        let is_offered = |name: &&String| self.left_out.iter().all(|one| one.name != **name);
        let own = own.iter().filter(is_offered);
        own.chain(&self.names).cloned().collect()
    }

    /// The schemas, with those of the servers of a session. They count as servers that the definition
    /// names: a user has given them for this session. A tool of the same name that the agent already
    /// has stays.
    pub(super) fn with_session(
        &self,
        definition: &AgentDefinition,
        choice: &ToolChoice,
        served: &[ServedTool],
    ) -> Pinned {
        if served.is_empty() || definition.command.is_some() {
            return self.tools.clone();
        }
        // It was written by this program.
        let mut schemas: Vec<Value> = serde_json::from_str(&self.tools.body).unwrap_or_default();
        for tool in served {
            let is_taken = schemas
                .iter()
                .any(|known| known["name"] == tool.name.as_str());
            let takes = choice.takes_served(&tool.name, true);
            if !is_taken && takes && !definition.closes(&tool.name) {
                // Plain data with text keys, so this cannot fail.
                schemas.push(serde_json::to_value(tool).unwrap_or_default());
            }
        }
        pin(&schemas)
    }
}

/// The cached equipment of one agent; rebuilt when the servers or nodes have changed.
#[derive(Default)]
pub(super) struct Equipped(Mutex<Option<Arc<Equipment>>>);

impl Equipped {
    /// Returns the agent's own tools that can be used now, plus those of servers.
    pub(super) fn over(
        &self,
        definition: &AgentDefinition,
        choice: &ToolChoice,
        own: &[Value],
        reachable: Reachable<'_>,
    ) -> Arc<Equipment> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |made: &&Arc<Equipment>| {
            made.version == reachable.servers.version && made.nodes == reachable.nodes
        };
        if let Some(made) = made.as_ref().filter(is_same) {
            return Arc::clone(made);
        }
        let equipment = Arc::new(equip(definition, choice, own, reachable));
        *made = Some(Arc::clone(&equipment));
        equipment
    }
}

fn equip(
    definition: &AgentDefinition,
    choice: &ToolChoice,
    own: &[Value],
    Reachable { servers, nodes }: Reachable<'_>,
) -> Equipment {
    let mut equipment = Equipment {
        version: servers.version,
        nodes: nodes.to_vec(),
        tools: pin(&[(); 0]),
        names: Vec::new(),
        notes: Vec::new(),
        left_out: Vec::new(),
    };
    let mut schemas = super::nodes::available(definition, own, nodes, &mut equipment);
    let all: Vec<&ServerView> = servers.servers.iter().collect();
    let named = match &definition.mcp_servers {
        _ if definition.command.is_some() => Vec::new(),
        None => all,
        Some(names) => {
            let find = |name: &String| all.iter().find(|view| view.name == *name).copied();
            for name in names {
                let Some(note) = no_server(name, &servers.servers) else {
                    continue;
                };
                equipment.notes.push(note.clone());
                equipment.left_out.push(Omitted {
                    name: name.clone(),
                    reason: note,
                });
            }
            names.iter().filter_map(find).collect()
        }
    };
    let is_named = definition.mcp_servers.is_some();
    for view in named {
        if let Some(note) = state(view) {
            if !view.state.is_connected() && view.tools.is_empty() {
                equipment.left_out.push(Omitted {
                    name: view.name.clone(),
                    reason: note.clone(),
                });
            }
            equipment.notes.push(note);
        }
        for skipped in view.skipped.iter() {
            equipment.left_out.push(Omitted {
                name: format!("{}: {}", view.name, preview(&skipped.tool, 64)),
                reason: skipped.reason.clone(),
            });
        }
        for tool in view.tools.iter() {
            let takes = choice.takes_served(&tool.name, is_named);
            if takes && !definition.closes(&tool.name) {
                equipment.names.push(tool.name.clone());
                // Plain data with text keys, so this cannot fail.
                schemas.push(serde_json::to_value(tool).unwrap_or_default());
            }
        }
    }
    equipment.tools = pin(&schemas);
    equipment
}

/// The message about a named server that is not configured; `None` if it is.
pub(super) fn no_server(name: &str, servers: &[ServerView]) -> Option<String> {
    let there: Vec<&str> = servers.iter().map(|view| view.name.as_str()).collect();
    if there.contains(&name) {
        return None;
    }
    let there = match there.is_empty() {
        true => "none".to_owned(),
        false => there.join(", "),
    };
    Some(format!(
        "MCP server {name} is not configured under [mcp]; configured are: {there}"
    ))
}

/// The message about a server that does not answer; `None` if it is usable.
fn state(view: &ServerView) -> Option<String> {
    let name = &view.name;
    match view.state {
        ServerState::Stopped | ServerState::Ready | ServerState::Noisy => None,
        // Its earlier tools are known; the first call waits for it.
        ServerState::Starting if !view.tools.is_empty() => None,
        ServerState::Starting => Some(format!(
            "MCP server {name} is still starting: its tools are available from the next turn on"
        )),
        ServerState::Failed => {
            let why = view.last_error.as_deref().unwrap_or("it ended");
            let why = preview(why, ERROR);
            Some(match view.tools.is_empty() {
                true => format!("MCP server {name} has failed, and its tools are missing: {why}"),
                false => format!("MCP server {name} has failed; the next call restarts it: {why}"),
            })
        }
    }
}
