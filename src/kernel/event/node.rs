//! Data of events about paired nodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Word;
use crate::kernel::ids::{CallId, NodeId};
use crate::kernel::time::Timestamp;

/// A node waits for an operator to admit it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeWaiting {
    /// Name that it asks for.
    pub name: String,
    /// Host name of the machine, as it says.
    pub host: String,
    /// Code by which an operator admits it.
    pub code: String,
    /// When the request expires.
    pub expires_at: Timestamp,
}

/// A node was paired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePaired {
    /// Id of the node.
    pub node_id: NodeId,
    /// Name of the node.
    pub name: String,
    /// User who approved it, or whose invitation it used.
    pub by: String,
    /// What may be called: commands, `root FOLDER`, `skills`.
    pub approved: Vec<String>,
}

/// A node, by id and name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNamed {
    /// Id of the node.
    pub node_id: NodeId,
    /// Name of the node.
    pub name: String,
}

/// Nothing was heard of a node for 20 s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeLost {
    /// Id of the node.
    pub node_id: NodeId,
    /// Name of the node.
    pub name: String,
    /// Number of calls that were in progress when its link ended. Their outcome is unknown until it
    /// is back.
    pub calls: usize,
}

/// A node offers more than was decided on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeOfferChanged {
    /// Id of the node.
    pub node_id: NodeId,
    /// Name of the node.
    pub name: String,
    /// What it offers in addition: commands, `root FOLDER`, `skills`.
    pub pending: Vec<String>,
}

/// A node was changed by an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeChanged {
    /// Id of the node.
    pub node_id: NodeId,
    /// Name of the node.
    pub name: String,
    /// `renamed`, `approved` or `refused`.
    pub change: Word,
    /// What may be called: commands, `root FOLDER`, `skills`.
    pub approved: Vec<String>,
}

/// A node's allow-list asks the operator about a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeAsked {
    /// Id of the node.
    pub node_id: NodeId,
    /// Name of the node.
    pub name: String,
    /// Id of the call.
    pub call_id: CallId,
    /// File of the program.
    pub program: String,
}

/// A node was removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRemoved {
    /// Id of the node.
    pub node_id: NodeId,
    /// Name of the node.
    pub name: String,
    /// User who removed it.
    pub by: String,
}
