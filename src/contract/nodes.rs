//! The paired nodes as tools, skills and the registry see them. The gateway's node links implement
//! it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::watch;

use super::BoxFuture;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{CallId, NodeId};
use crate::kernel::node::{
    CallEnd, Machine, NodeCall, NodeInvite, NodeSkill, Offer, OfferLimit, OutputStream, PairedNode,
};
use crate::kernel::time::Timestamp;

/// The tool that runs a program on a node.
pub const NODE_RUN: &str = "node_run";
/// The tool that reads a file of a node.
pub const NODE_READ: &str = "node_read";
/// The tool that lists a folder of a node.
pub const NODE_LIST: &str = "node_list";
/// The format of a tool argument that names a node; resolution replaces it by the names.
pub const NODE_FORMAT: &str = "node";

/// The key in the schema of a tool with a line for models on each node that it may name.
pub const NODES_KEY: &str = "nodes";
/// The key in the schema of a tool with the node on which it works, if its agent works on one.
pub const ON_NODE_KEY: &str = "on";

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
    /// Programs that it was asked for, found or not.
    pub asked: BTreeSet<String>,
    /// Number of its pairings. What was found holds for one of them.
    pub pairing: i64,
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
    /// Nothing was sent: no such node, not approved, or it is away. The text says which. This process
    /// knows nothing of calls of an earlier one: a caller that repeats such a call knows better.
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

    /// The nodes of all tenants, each with its tenant.
    fn everywhere(&self) -> Vec<(String, NodeView)>;

    /// Counts changes of nodes: paired, connected, away, removed, or approved for something else.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Once this resolves, the node is known to have `found` of the programs that it was asked for,
    /// in the pairing with this number.
    fn keep_programs(
        &self,
        org: &str,
        node: &str,
        pairing: i64,
        asked: BTreeSet<String>,
        found: BTreeMap<String, String>,
    ) -> BoxFuture<'static, Result<(), Fault>>;

    /// The skills that the nodes of a tenant publish and that are approved, by node; a node that is
    /// away has none.
    fn skills(&self, org: &str) -> Vec<(String, Vec<NodeSkill>)>;
}

/// Where parts find the nodes, which are made after them.
pub type NodesSlot = Arc<std::sync::OnceLock<Arc<dyn Nodes>>>;

/// A node to pair.
#[derive(Clone, Debug, PartialEq)]
pub struct PairNode {
    /// The id of a new node.
    pub id: NodeId,
    /// Its Ed25519 public key, hexadecimal.
    pub public_key: String,
    /// The name that it asks for.
    pub name: String,
    /// The machine.
    pub machine: Machine,
    /// What it offers.
    pub offered: Offer,
    /// Who admits it.
    pub by: Admission,
}

/// Who admits a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// An operator.
    Operator {
        /// The tenant.
        org: String,
        /// The operator.
        user: String,
        /// The name that the node gets instead of the one that it asks for.
        name: Option<String>,
        /// What is approved.
        limit: OfferLimit,
    },
    /// The holder of a setup code.
    Invite {
        /// BLAKE3 hash of the code, hexadecimal.
        code_hash: String,
    },
}

/// A change of a paired node.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeNode {
    /// The tenant.
    pub org: String,
    /// The node.
    pub id: NodeId,
    /// The change.
    pub change: NodeChange,
}

/// What changes of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeChange {
    /// It gets a token with this BLAKE3 hash; the earlier one is invalid.
    Token(String),
    /// It is connected; `is_new` if it was away before.
    Connected {
        /// The machine.
        machine: Machine,
        /// What it offers.
        offered: Offer,
        /// Whether it was away before.
        is_new: bool,
    },
    /// It offers something else.
    Offers(Offer),
    /// It is away.
    Lost {
        /// Since then.
        at: Timestamp,
        /// Number of calls that were in progress.
        calls: usize,
    },
    /// An operator has decided on what it offers.
    Decided {
        /// What is approved; `None` denies what is pending.
        approve: Option<OfferLimit>,
        /// The operator.
        by: String,
    },
    /// It has another name.
    Renamed(String),
    /// It is removed.
    Removed {
        /// The operator.
        by: String,
    },
    /// These programs were found there, in the pairing with this number.
    Programs(i64, BTreeMap<String, String>),
}

/// An event about a node that changes no row.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeNote {
    /// A node waits for an operator.
    Waiting(crate::kernel::event::NodeWaiting),
    /// A node asks the operator about a program.
    Asked(crate::kernel::event::NodeAsked),
}

/// The step to which a call belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOfCall {
    /// It is open: its run asks for the call.
    Open,
    /// It is open until a person has decided whether the call has happened.
    InReview,
    /// It has ended, or its run has: nothing asks for the call any more.
    Ended,
}

/// The result of a write or a read. A write is carried out even if the future is dropped.
pub type Stored<T> = BoxFuture<'static, Result<T, Fault>>;

/// The rows of paired nodes. The store implements it; the writes begin when they are called.
pub trait NodeRows: Send + Sync + 'static {
    /// All nodes of all tenants, also removed ones.
    fn paired_nodes(&self) -> Result<Vec<PairedNode>, Fault>;

    /// Once this resolves, the node is paired, or was before; it has no token yet.
    fn pair_node(&self, new: PairNode) -> Stored<PairedNode>;

    /// Once this resolves, the node has changed. A node that the tenant does not have is
    /// `not_found`.
    fn change_node(&self, change: ChangeNode) -> Stored<PairedNode>;

    /// Once this resolves, the invitation can be used.
    fn add_invite(&self, invite: NodeInvite) -> Stored<()>;

    /// Once this resolves, the event log has this event of the tenant.
    fn note_node(&self, org: &str, note: NodeNote) -> Stored<()>;

    /// Those of the calls that belong to steps of the tenant's runs. Others belong to clients, or to
    /// steps that were removed.
    fn steps_of_calls(&self, org: &str, calls: Vec<CallId>) -> Stored<HashMap<CallId, StepOfCall>>;
}
