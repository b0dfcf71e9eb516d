//! Which agents there are, and what a run pins of them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::kernel::fault::Fault;
use crate::kernel::ids::AgentId;

/// What an agent may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentMode {
    /// Turns of root sessions.
    Primary,
    /// Spawned work.
    Subagent,
    /// Both.
    All,
}

impl AgentMode {
    /// The text in files and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            AgentMode::Primary => "primary",
            AgentMode::Subagent => "subagent",
            AgentMode::All => "all",
        }
    }

    /// May it hold a root session's turn?
    pub fn is_primary(self) -> bool {
        matches!(self, AgentMode::Primary | AgentMode::All)
    }
}

/// An agent as lists show it.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentSummary {
    /// Its name.
    pub id: AgentId,
    /// What it is for.
    pub description: String,
    /// What it may be used for.
    pub mode: AgentMode,
    /// Its model, `provider/name`.
    pub model: String,
    /// The names of its tools.
    pub tools: Vec<String>,
    /// Left out of lists for people.
    pub hidden: bool,
    /// Where its definition comes from (`preset`).
    pub source: String,
    /// The most model calls of one run.
    pub max_loops: u32,
}

/// Text that is stored by its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// BLAKE3 of the body, hexadecimal.
    pub hash: String,
    /// The body; shared, since every run of an agent pins the same.
    pub body: Arc<str>,
}

/// An agent as one run pins it.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Its name.
    pub id: AgentId,
    /// What it may be used for.
    pub mode: AgentMode,
    /// The model in force, `provider/name`.
    pub model: String,
    /// Its definition as JSON.
    pub definition: Pinned,
    /// Its tools' schemas as JSON.
    pub tools: Pinned,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// Which agents there are. A boundary: the registry asks, the agent room answers.
pub trait Catalog: Send + Sync + 'static {
    /// The agent called `name`, with `model` in place of its own if given. The fault is
    /// `not_found` with the known names, or `invalid_params` for a model nobody offers.
    fn resolve(&self, name: &str, model: Option<&str>) -> Result<Resolved, Fault>;

    /// The agents that runs of the agent called `name` may spawn, by name: one value for
    /// refusals and listings alike.
    fn allowed(&self, name: &str) -> Vec<AgentId>;

    /// The agent used where none is named.
    fn default_agent(&self) -> AgentId;

    /// Every agent, hidden ones too, by name.
    fn list(&self) -> Vec<AgentSummary>;

    /// One agent as lists show it.
    fn get(&self, name: &str) -> Result<AgentSummary, Fault>;
}
