//! `agents.*`: which agents there are, and those that clients define.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use serde_json::{Map, Value};

use super::decode::Params;
use super::input::{self, PageSize, choice};

choice! {
    /// For whom a list of agents is.
    Audience {
        /// People choosing an agent: without hidden ones.
        People = "people",
        /// A model delegating work: those that may be spawned as subagents.
        Task = "task",
    }
}

choice! {
    /// How the text of a definition is written.
    Format {
        /// Front matter, then the system prompt.
        Markdown = "markdown",
        /// Fields.
        Toml = "toml",
        /// Fields.
        Json = "json",
    }
}

/// `agents.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListAgents {
    /// For whom; every agent if unset.
    #[serde(rename = "for")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<Audience>,
    /// How many at most.
    #[serde(default)]
    pub limit: PageSize,
    /// Where to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The folder of the work, absolute: the agents of its project count, too.
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}
impl Params for ListAgents {}

/// What `agents.list` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agents {
    /// A page of them, by name.
    pub agents: Vec<Agent>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Definitions that could not be taken.
    pub rejected: Vec<Aside>,
}

/// `agents.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetAgent {
    /// Its name.
    pub agent: String,
    /// As in [`ListAgents`].
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}
impl Params for GetAgent {}

/// `agents.create`. Either `definition` or `text`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAgent {
    /// Its name, unless the definition gives another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its fields, as a JSON file has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<Map<String, Value>>,
    /// What a file would hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// How the text is written; `markdown` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
}
impl Params for CreateAgent {
    fn object(&self) -> Option<String> {
        self.name.clone()
    }
}

/// `agents.update`. Either `definition` or `text`, and all of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateAgent {
    /// Its name.
    pub agent: String,
    /// Its fields, as a JSON file has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<Map<String, Value>>,
    /// What a file would hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// How the text is written; `markdown` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// Only if it has this revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_revision: Option<i64>,
}
impl Params for UpdateAgent {
    fn object(&self) -> Option<String> {
        Some(self.agent.clone())
    }
}

/// `agents.delete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteAgent {
    /// Its name.
    pub agent: String,
    /// Only if it has this revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_revision: Option<i64>,
}
impl Params for DeleteAgent {
    fn object(&self) -> Option<String> {
        Some(self.agent.clone())
    }
}

/// What `agents.delete` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deleted {
    /// It was there; a repeat finds it gone.
    pub deleted: bool,
}

/// A definition without effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Aside {
    /// `preset`, `stored`, `config` or `project`.
    pub source: String,
    /// Its file, if it comes from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line at fault, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Why it has none.
    pub reason: String,
}

/// Whether an agent can be used and has all that it counts on, as that was found when the agents
/// were loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// It can, and has.
    pub ok: bool,
    /// Why it cannot, and what it lacks.
    pub problems: Vec<String>,
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// A heading for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is for.
    pub description: String,
    /// `primary`, `subagent` or `all`.
    pub mode: String,
    /// May it be used at all?
    pub active: bool,
    /// Its model, `provider/name`; `command` where a program does its work.
    pub model: String,
    /// That program, with its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Vec<String>>,
    /// How much its model thinks, if it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// The names of its tools.
    pub tools: Vec<String>,
    /// Names and patterns of the skills that it may use; all if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<String>>,
    /// Left out of lists for people.
    pub hidden: bool,
    /// Where its definition comes from: `preset`, `stored`, `config` or `project`.
    pub source: String,
    /// The file of its definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// How often a stored definition was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// The most model calls of one run.
    pub max_loops: u32,
    /// How long its runs may take where the request says nothing, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// Whom it may delegate to: the names, or `["*"]`; unset = itself, agents for spawned work
    /// and linked ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_agents: Option<Vec<String>>,
    /// The agents that it is linked with.
    pub linked_agents: Vec<String>,
    /// Levels of spawning below its root sessions, if it has its own limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_spawn_depth: Option<u32>,
    /// The base of every model call; only in `agents.get` and the answers to changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// What its definition asks for and does not get.
    pub warnings: Vec<String>,
    /// Whether it can be used.
    pub health: Health,
    /// Definitions of the same name that it shadows.
    pub shadowed: Vec<Aside>,
}
