//! Rows that rooms besides the registry read. The store implements it; who makes the parts hands
//! it in.

use crate::kernel::fault::Fault;
use crate::kernel::time::Timestamp;

/// An agent that a client has defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAgent {
    /// The tenant.
    pub org: String,
    /// Its name.
    pub name: String,
    /// How its definition is written: `markdown`, `toml` or `json`.
    pub format: String,
    /// The definition as the client gave it.
    pub text: String,
    /// How often it was written, from 1.
    pub revision: i64,
    /// When it was stored first.
    pub created_at: Timestamp,
}

/// A project that somebody trusts, as far as its content is still the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProject {
    /// The tenant.
    pub org: String,
    /// Its folder.
    pub folder: String,
    /// Hash of what the trust covers.
    pub hash: String,
    /// Who trusts it.
    pub user: String,
    /// Since when.
    pub at: Timestamp,
}

/// What the room of agents reads.
pub trait AgentRows: Send + Sync + 'static {
    /// Every stored agent, by tenant and name.
    fn stored_agents(&self) -> Result<Vec<StoredAgent>, Fault>;

    /// Every trusted project, by tenant and folder.
    fn trusted_projects(&self) -> Result<Vec<TrustedProject>, Fault>;
}
