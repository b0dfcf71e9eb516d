//! `nodes.*`: other machines that are paired with this gateway.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input;
use super::shapes::Word;
use crate::kernel::ids::{CallId, NodeId};
use crate::kernel::node::{
    CallEnd, Machine, NodeCall, NodeCommand, Offer, OutputStream, RunQuestion,
};
use crate::kernel::time::Timestamp;

super::method::no_params! {
    /// Parameters of `nodes.list`.
    ListNodes
}

/// Result of `nodes.list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeList {
    /// The paired nodes, by name.
    pub nodes: Vec<Node>,
    /// Nodes that wait to be admitted, oldest first.
    pub waiting: Vec<NodeRequest>,
    /// What the allow-lists of nodes ask the operator.
    pub questions: Vec<NodeQuestion>,
}

/// Parameters of `nodes.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetNode {
    /// Name or id of the node.
    #[serde(deserialize_with = "input::text")]
    pub node: String,
}

/// A paired node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Id of the node.
    pub id: NodeId,
    /// Name of the node.
    pub name: String,
    /// `connected`, or `away`.
    pub state: Word,
    /// The machine, as it last described itself.
    pub machine: Machine,
    /// What it last offered.
    pub offered: Offer,
    /// What an operator has approved.
    pub approved: Offer,
    /// What an operator has denied.
    pub denied: Offer,
    /// What it offers and no operator has decided on.
    pub pending: Offer,
    /// What can be called now; empty while it is away.
    pub callable: Offer,
    /// Programs that were found there, each with its path.
    pub programs: BTreeMap<String, String>,
    /// SHA-256 fingerprint of its key, hexadecimal.
    pub fingerprint: String,
    /// Number of its pairings.
    pub generation: i64,
    /// Number of calls in progress.
    pub calls: u64,
    /// When it was paired.
    pub paired_at: Timestamp,
    /// User who approved it last, or whose invitation it used.
    pub approved_by: String,
    /// When it was last connected; absent if it never was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen_at: Option<Timestamp>,
}

/// A node that waits to be admitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRequest {
    /// Code by which it is admitted, as the machine shows it.
    pub code: String,
    /// Name that it asks for.
    pub name: String,
    /// The machine, as it describes itself.
    pub machine: Machine,
    /// What it offers.
    pub offered: Offer,
    /// SHA-256 fingerprint of its key, hexadecimal.
    pub fingerprint: String,
    /// Address that it comes from.
    pub address: String,
    /// When it came.
    pub since: Timestamp,
    /// When the request expires.
    pub expires_at: Timestamp,
}

/// A question of a node's allow-list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeQuestion {
    /// Id of the call.
    pub id: CallId,
    /// Name of the node.
    pub node: String,
    /// What it would run.
    pub question: RunQuestion,
}

/// Parameters of `nodes.approve`: the code of a waiting node, or a paired node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveNode {
    /// Code of a waiting node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Name or id of a paired node, to decide on what it offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Name that a waiting node gets; by default the one that it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Commands to approve; the others are denied. All that it offers if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<BTreeSet<NodeCommand>>,
    /// Folders to approve; the others are denied. All that it offers if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<BTreeSet<String>>,
}

/// Parameters of `nodes.refuse`: the code of a waiting node, or a paired node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RefuseNode {
    /// Code of a waiting node, which is told so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Name or id of a paired node, to deny what is pending of its offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Result of `nodes.refuse`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedNode {
    /// Name of the node.
    pub name: String,
}

/// Parameters of `nodes.invite`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InviteNode {
    /// Name that the node gets; by default the one that it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Commands to approve; the others are denied. All that it offers if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<BTreeSet<NodeCommand>>,
    /// Folders to approve; the others are denied. All that it offers if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<BTreeSet<String>>,
}

/// Result of `nodes.invite`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeInvitation {
    /// Setup code; it pairs one node, and is not shown again.
    pub code: String,
    /// When it expires.
    pub expires_at: Timestamp,
    /// URL of this gateway, as the daemon knows it.
    pub url: String,
}

/// Parameters of `nodes.rename`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenameNode {
    /// Name or id of the node.
    #[serde(deserialize_with = "input::text")]
    pub node: String,
    /// Its new name.
    #[serde(deserialize_with = "input::text")]
    pub name: String,
}

/// Parameters of `nodes.remove`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveNode {
    /// Name or id of the node.
    #[serde(deserialize_with = "input::text")]
    pub node: String,
}

/// Result of `nodes.remove`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemovedNode {
    /// Id of the node.
    pub id: NodeId,
    /// Name of the node.
    pub name: String,
}

/// Parameters of `nodes.answer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerNode {
    /// Id of the call that the node asks about.
    #[serde(deserialize_with = "input::id")]
    pub id: CallId,
    /// Digest of the question; the answer holds for exactly this.
    #[serde(deserialize_with = "input::text")]
    pub digest: String,
    /// `allow` or `deny`.
    pub decision: NodeDecision,
}

crate::kernel::text::text_enum::text_enum! {
    /// An operator's answer to a node's question.
    NodeDecision {
        /// The program may run.
        Allow = "allow",
        /// The program may not run.
        Deny = "deny",
    }
}

/// Parameters of `nodes.call`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallNode {
    /// Name of the node.
    #[serde(deserialize_with = "input::text")]
    pub node: String,
    /// Id of the call, made by the client: calls with the same id are one call, also after a
    /// restart of the daemon. A new one if unset.
    #[serde(default, deserialize_with = "input::maybe_id")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<CallId>,
    /// The command and its arguments.
    pub call: NodeCall,
    /// Also send the output of a program while it runs, as notifications `nodes.output` of this
    /// connection; WebSocket only.
    #[serde(default)]
    pub follow: bool,
}

/// Method name of the notifications that carry a program's output.
pub const OUTPUT: &str = "nodes.output";

/// A part of a program's output, parameters of `nodes.output`. Parts are left out for a client that
/// reads too slowly; the result has the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeOutputPart {
    /// Id of the call.
    pub id: CallId,
    /// `stdout` or `stderr`.
    pub stream: OutputStream,
    /// The text.
    pub text: String,
}

/// Result of `nodes.call`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeCallEnded {
    /// Id of the call.
    pub id: CallId,
    /// Name of the node.
    pub node: String,
    /// How it ended.
    pub end: CallEnd,
}
