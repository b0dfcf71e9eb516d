//! Rows that modules other than the registry read. The store implements the traits; the daemon
//! passes it in when it creates the parts.

use crate::kernel::fault::Fault;
use crate::kernel::ids::MemoryId;
use crate::kernel::memory::Memory;
use crate::kernel::time::Timestamp;

/// An agent that a client has defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAgent {
    /// The tenant.
    pub org: String,
    /// Its name, unique in the tenant.
    pub name: String,
    /// The format of its definition: `markdown`, `toml` or `json`.
    pub format: String,
    /// The definition as the client sent it.
    pub text: String,
    /// Number of writes, starting at 1.
    pub revision: i64,
    /// When it was first stored.
    pub created_at: Timestamp,
}

/// A project that a user trusts as long as its content hash is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProject {
    /// The tenant.
    pub org: String,
    /// Its folder.
    pub folder: String,
    /// Hash of the content that the trust covers.
    pub hash: String,
    /// The user who trusts it.
    pub user: String,
    /// When trust was granted.
    pub at: Timestamp,
}

/// The rows that the `agent` module reads.
pub trait AgentRows: Send + Sync + 'static {
    /// Every stored agent, by tenant and name.
    fn stored_agents(&self) -> Result<Vec<StoredAgent>, Fault>;

    /// Every trusted project, by tenant and folder.
    fn trusted_projects(&self) -> Result<Vec<TrustedProject>, Fault>;
}

/// The rows of long-term memory that runners read.
pub trait MemoryRows: Send + Sync + 'static {
    /// The memories with these ids in this tenant, in this order; missing ones are omitted.
    fn memories(&self, org: &str, ids: &[MemoryId]) -> Result<Vec<Memory>, Fault>;
}
