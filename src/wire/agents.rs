//! `agents.*`: list, read and define agents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use serde_json::{Map, Value};

use super::input::{self, PageSize};
use super::method::no_params;
use crate::contract::catalog::{InactiveDefinition, OffPreset};
use crate::kernel::text::text_enum::text_enum;

text_enum! {
    /// Audience of an agent list; selects which agents it contains.
    Audience {
        /// A user choosing an agent: hidden agents are left out.
        People = "people",
        /// A model delegating work: only active agents whose mode is not `primary`.
        Task = "task",
    }
}

text_enum! {
    /// Text format of an agent definition.
    Format {
        /// Front matter, then the system prompt.
        Markdown = "markdown",
        /// The fields as TOML.
        Toml = "toml",
        /// The fields as JSON.
        Json = "json",
    }
}

/// Parameters of `agents.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListAgents {
    /// Audience that filters the list; all agents if unset.
    #[serde(rename = "for")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<Audience>,
    /// Page size: 1 to 500; 50 if unset.
    #[serde(default)]
    pub limit: PageSize,
    /// `nextCursor` of the previous page; the first page if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Absolute working directory; agents of the project around it are included.
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

no_params! {
    /// Parameters of `agents.reload`.
    ReloadAgents
}

/// Result of `agents.list` and `agents.reload`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agents {
    /// One page of agents, sorted by name.
    pub agents: Vec<Agent>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Definitions that could not be loaded.
    pub rejected: Vec<InactiveDefinition>,
    /// Built-in outside agents whose programs are not installed.
    #[serde(default)]
    pub off: Vec<OffPreset>,
}

/// Parameters of `agents.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetAgent {
    /// Name of the agent.
    pub agent: String,
    /// Absolute working directory; agents of the project around it are included.
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// Parameters of `agents.create`. Exactly one of `definition` and `text` is required.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAgent {
    /// Name of the agent; the name in the definition takes precedence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The definition as a JSON object, with the fields of a JSON agent file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<Map<String, Value>>,
    /// The definition as file content, in `format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Format of `text`; `markdown` if unset. Not allowed with `definition`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
}

/// Parameters of `agents.update`. Exactly one of `definition` and `text` is required; it replaces
/// the whole stored definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateAgent {
    /// Name of the agent.
    pub agent: String,
    /// The definition as a JSON object, with the fields of a JSON agent file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<Map<String, Value>>,
    /// The definition as file content, in `format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Format of `text`; `markdown` if unset. Not allowed with `definition`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// Update only if the stored revision equals this one; otherwise `conflict`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_revision: Option<i64>,
}

/// Parameters of `agents.delete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteAgent {
    /// Name of the agent.
    pub agent: String,
    /// Delete only if the stored revision equals this one; otherwise `conflict`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_revision: Option<i64>,
}

/// Result of `agents.delete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DeletedAgent")]
pub struct Deleted {
    /// True if this call removed the agent; false if it did not exist, as on a repeat.
    pub deleted: bool,
}

/// Whether an agent is usable, as found when the agents were loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AgentHealth")]
pub struct Health {
    /// True if `problems` is empty.
    pub ok: bool,
    /// Why the agent cannot be used, and which of its dependencies are missing.
    pub problems: Vec<String>,
}

/// An agent as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Unique name of the agent.
    pub name: String,
    /// Display title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the agent is for.
    pub description: String,
    /// `primary`, `subagent` or `all`.
    pub mode: String,
    /// Whether the agent may be used.
    pub active: bool,
    /// Model as `provider/name`; `command` if the agent runs a program instead of a model.
    pub model: String,
    /// Program and arguments of a `command` agent; absent for agents with a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Vec<String>>,
    /// Thinking level of its model; absent if the definition sets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// Names of its tools.
    pub tools: Vec<String>,
    /// Names and patterns of the skills it may use; all skills if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<String>>,
    /// True if lists for users leave the agent out.
    pub hidden: bool,
    /// Origin of the definition: `preset`, `stored`, `config` or `project`.
    pub source: String,
    /// Path of the definition's file; absent if it does not come from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Revision of a stored definition, raised by each write; absent for other sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Maximum number of model calls in one run.
    pub max_loops: u32,
    /// Run timeout if the request sets none, in milliseconds; absent if the agent sets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// Agents it may delegate to: names, or `["*"]` for any. If absent: itself, agents for spawned
    /// work and its linked agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_agents: Option<Vec<String>>,
    /// Names of its linked agents, each callable through a tool of its own.
    pub linked_agents: Vec<String>,
    /// Maximum spawn depth below its root sessions; absent if the agent sets no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_spawn_depth: Option<u32>,
    /// System prompt, the base of every model call; only in `agents.get` and in results of changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// What the definition requests but does not get.
    pub warnings: Vec<String>,
    /// Whether the agent is usable, and why not.
    pub health: Health,
    /// Definitions of the same name that this one shadows.
    pub shadowed: Vec<InactiveDefinition>,
}
