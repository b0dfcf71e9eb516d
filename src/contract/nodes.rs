//! The paired nodes as tools, skills and the registry see them. The gateway's node links implement
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::BoxFuture;
use crate::kernel::ids::CallId;
use crate::kernel::node::{CallEnd, NodeCall, Offer, OutputStream};

/// A paired node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Its name, unique in the tenant.
    pub name: String,
    /// `linux`, `macos`, …; empty until it has connected once.
    pub platform: String,
    /// Whether a link is open.
    pub connected: bool,
    /// What may be called: approved, and offered by the open link.
    pub callable: Offer,
    /// Programs that skills require and that were found there, each with its path. Known also while
    /// it is away.
    pub programs: BTreeMap<String, String>,
}

/// Receives a program's output while it runs.
pub trait NodeOutput: Send + Sync + 'static {
    /// The next piece.
    fn piece(&self, stream: OutputStream, text: &str);
}

/// How a call to a node ended for its caller.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeEnd {
    /// The node has answered.
    Answered(CallEnd),
    /// Nothing was sent: no such node, not approved, or it is away. The text says which.
    NotSent(String),
    /// The node was lost for 20 s after the call was sent. What has an effect may have happened.
    Away(String),
}

/// The paired nodes.
pub trait Nodes: Send + Sync + 'static {
    /// The nodes of a tenant, by name.
    fn list(&self, org: &str) -> Vec<NodeView>;

    /// Carries out `call` on `node`. Calls with the same id are one call: after a lost link or a
    /// restart of the daemon the node continues it and never runs it twice. Dropping the future
    /// cancels the call, except while the daemon stops.
    fn call(
        &self,
        org: &str,
        node: &str,
        id: CallId,
        call: NodeCall,
        output: Arc<dyn NodeOutput>,
    ) -> BoxFuture<'static, NodeEnd>;

    /// The end of the call is stored here: the node may forget it.
    fn release(&self, org: &str, node: &str, id: CallId);
}

/// Where parts find the nodes, which are made after them.
pub type NodesSlot = Arc<std::sync::OnceLock<Arc<dyn Nodes>>>;
