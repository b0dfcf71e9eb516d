//! `agents.*`: which agents there are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decode::Params;
use super::input::{PageSize, choice};

choice! {
    /// For whom a list of agents is.
    Audience {
        /// People choosing an agent: without hidden ones.
        People = "people",
        /// A model delegating work: those that may be spawned as subagents.
        Task = "task",
    }
}

/// `agents.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListAgents {
    /// For whom; every agent if unset.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub audience: Option<Audience>,
    /// How many at most.
    #[serde(default)]
    pub limit: PageSize,
    /// Where to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
impl Params for ListAgents {}

/// What `agents.list` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agents {
    /// A page of them, by name.
    pub agents: Vec<Agent>,
    /// Where the next page begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `agents.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetAgent {
    /// Its name.
    pub agent: String,
}
impl Params for GetAgent {}

/// An agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// `primary`, `subagent` or `all`.
    pub mode: String,
    /// Its model, `provider/name`.
    pub model: String,
    /// The names of its tools.
    pub tools: Vec<String>,
    /// Left out of lists for people.
    pub hidden: bool,
    /// Where its definition comes from.
    pub source: String,
    /// The most model calls of one run.
    pub max_loops: u32,
}
