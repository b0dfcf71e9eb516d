//! What an agent is. A run pins this as JSON at its spawn, and its runner reads it back from
//! there.

use serde::{Deserialize, Serialize};

use crate::contract::catalog::AgentMode;

/// An agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentDefinition {
    /// Its name.
    pub name: String,
    /// What it is for, in one sentence.
    pub description: String,
    /// What it may be used for.
    pub mode: AgentMode,
    /// The base of every model call.
    pub system_prompt: String,
    /// Its model, `provider/name`; the default one if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The names of its tools.
    pub tools: Vec<String>,
    /// The agents that its runs may spawn; none if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_agents: Option<Vec<String>>,
    /// The most model calls of one run.
    pub max_loops: u32,
    /// Left out of lists for people.
    #[serde(default)]
    pub hidden: bool,
}
