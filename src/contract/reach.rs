//! The agents that a run may delegate to, read from what it has pinned. They are the ones named in
//! its tool schemas, so refusals and listings agree for the life of the run, even when agent files
//! change. The registry checks each call against it.

use serde::Deserialize;
use serde_json::Value;

use super::linked::{DELEGATE, Link, TASK};
use crate::kernel::delegation::DelegationMode;
use crate::kernel::ids::AgentId;

/// The tool that lists the agents a run may delegate to.
pub const AGENTS_LIST: &str = "agents_list";
/// The field of that tool's pinned schema that holds the list.
pub const LISTED: &str = "agents";
/// The tool that spawns a run without waiting for it.
const SPAWN: &str = "sessions_spawn";

/// The agents that a run may delegate to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Agents allowed by `sessions_spawn`.
    spawned: Vec<AgentId>,
    /// Agents allowed by `task`.
    tasked: Vec<AgentId>,
    /// Agents allowed in its plans.
    planned: Vec<AgentId>,
    /// Agents that are tools of their own.
    linked: Vec<AgentId>,
    /// The list of `agents_list`, if the run has that tool.
    listed: Option<Vec<AgentId>>,
    /// Maximum depth of spawned sessions below its root session, if its agent sets its own limit.
    pub max_depth: Option<u32>,
}

/// The fields of an agent's definition that matter here.
#[derive(Deserialize)]
struct AgentFields {
    #[serde(default)]
    linked_agents: Vec<Link>,
    #[serde(default)]
    max_spawn_depth: Option<u32>,
}

/// The fields of a tool's schema that matter here.
#[derive(Deserialize)]
struct ToolFields {
    name: String,
    #[serde(default)]
    parameters: Value,
    #[serde(default, rename = "agents")]
    listed: Option<Vec<AgentId>>,
}

impl ToolFields {
    /// The agents that this argument may name. None if the schema has no `enum`.
    fn named_by(&self, argument: &str) -> Vec<AgentId> {
        let names = self.parameters["properties"][argument]["enum"].as_array();
        names
            .into_iter()
            .flatten()
            .filter_map(|name| AgentId::parse(name.as_str()?).ok())
            .collect()
    }
}

impl Reach {
    /// Builds the reach from the definition and the tools that a run has pinned, both JSON.
    pub fn of(definition: &str, tools: &str) -> Result<Reach, serde_json::Error> {
        let definition: AgentFields = serde_json::from_str(definition)?;
        let tools: Vec<ToolFields> = serde_json::from_str(tools)?;
        let has = |name: &str| tools.iter().any(|tool| tool.name == name);
        let mut reach = Reach {
            max_depth: definition.max_spawn_depth,
            ..Reach::default()
        };
        let links = definition.linked_agents.into_iter();
        let as_tools = links.filter(|link| link.tool().is_some_and(|tool| has(&tool)));
        reach.linked = as_tools.map(|link| link.agent).collect();
        for tool in tools {
            match tool.name.as_str() {
                SPAWN => reach.spawned = tool.named_by("agent"),
                TASK => reach.tasked = tool.named_by("subagent_type"),
                DELEGATE => reach.planned = tool.named_by("agent"),
                AGENTS_LIST => reach.listed = tool.listed,
                _ => {}
            }
        }
        Ok(reach)
    }

    /// The agents allowed by a delegation tool of this mode; `None` = by a spawn that is not waited
    /// for.
    pub fn by(&self, mode: Option<DelegationMode>) -> &[AgentId] {
        match mode {
            None => &self.spawned,
            Some(DelegationMode::Task) => &self.tasked,
            Some(DelegationMode::Planned) => &self.planned,
            Some(DelegationMode::Sealed | DelegationMode::Called) => &self.linked,
        }
    }

    /// True if `agents_list` shows the agent or, in a run without that tool, any tool allows it.
    pub fn lists(&self, agent: &AgentId) -> bool {
        match &self.listed {
            Some(listed) => listed.contains(agent),
            None => [&self.spawned, &self.tasked, &self.planned, &self.linked]
                .iter()
                .any(|some| some.contains(agent)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ids(names: &[&str]) -> Vec<AgentId> {
        names
            .iter()
            .map(|name| AgentId::parse(name).unwrap())
            .collect()
    }

    fn naming(tool: &str, argument: &str, names: &[&str]) -> Value {
        json!({ "name": tool, "description": "x", "parameters": { "properties": {
            argument: { "type": "string", "enum": names },
        } } })
    }

    #[test]
    fn each_tool_reaches_those_that_its_schema_names() {
        let definition = json!({
            "name": "host", "max_spawn_depth": 3,
            "linked_agents": [
                { "agent": "one", "session": "own" }, { "agent": "gone", "session": "own" }, "bare",
            ],
        });
        let tools = json!([
            naming("sessions_spawn", "agent", &["a", "b"]),
            naming("task", "subagent_type", &["b"]),
            naming("delegate", "agent", &["c"]),
            naming("served__x", "agent", &["d"]),
            { "name": "subagent_one", "description": "x", "parameters": {} },
        ]);
        let reach = Reach::of(&definition.to_string(), &tools.to_string()).unwrap();
        assert_eq!(reach.max_depth, Some(3));
        for (mode, names) in [
            (None, &["a", "b"][..]),
            (Some(DelegationMode::Task), &["b"]),
            (Some(DelegationMode::Planned), &["c"]),
            (Some(DelegationMode::Sealed), &["one"]),
            (Some(DelegationMode::Called), &["one"]),
        ] {
            assert_eq!(reach.by(mode), ids(names), "{mode:?}");
        }
        let listed = |names: &[&str]| {
            let ids = ids(names);
            ids.iter().map(|id| reach.lists(id)).collect::<Vec<_>>()
        };
        assert_eq!(listed(&["a", "c", "one"]), [true; 3]);
        assert_eq!(listed(&["d", "gone", "bare"]), [false; 3]);
    }

    #[test]
    fn a_list_shows_what_it_was_made_with_and_an_open_argument_names_nobody() {
        let tools = json!([
            { "name": "agents_list", "description": "x", "parameters": {}, "agents": ["z"] },
            { "name": "sessions_spawn", "description": "x",
              "parameters": { "properties": { "agent": { "type": "string" } } } },
        ]);
        let reach = Reach::of(r#"{"name":"host"}"#, &tools.to_string()).unwrap();
        assert!(reach.lists(&ids(&["z"])[0]));
        assert_eq!(reach.by(None), []);
        assert_eq!(reach.max_depth, None);
        assert!(Reach::of("x", "[]").is_err());
    }
}
