//! Data of events about sessions, their transcripts and the announces to them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Word;
use crate::kernel::ids::{AgentId, AnnounceId, MessageId, RunId, SessionKey};

/// A session was created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionCreated {
    /// Key of the session.
    pub key: SessionKey,
    /// Agent that answers in it.
    pub agent: AgentId,
    /// Owner of the session: `agent` or `client`.
    pub owner: Word,
    /// Session that spawned it; null for a root session.
    pub parent: Option<SessionKey>,
}

/// A session was changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionUpdated {
    /// Names of the changed fields.
    pub changed: Vec<String>,
    /// Revision of the session, raised by each change; absent if only `archived` changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Generation of the session, raised by each reset; absent if it was not a reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// True: the session was archived; false: it was restored. Absent if neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived: Option<bool>,
}

impl SessionUpdated {
    /// A session was archived or restored.
    pub fn archived(archived: bool) -> SessionUpdated {
        SessionUpdated {
            changed: vec!["archived".to_owned()],
            archived: Some(archived),
            ..SessionUpdated::default()
        }
    }
}

/// A session was deleted together with its transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionDeleted {
    /// Key of the session.
    pub key: SessionKey,
    /// Agent that answered in it.
    pub agent: AgentId,
    /// Session that spawned it; null for a root session.
    pub parent: Option<SessionKey>,
}

/// An entry was appended to a transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageAdded {
    /// Id of the entry.
    pub message_id: MessageId,
    /// Position of the entry in the session.
    pub seq: i64,
    /// `text`, `tool_call`, `tool_result`, `announce`, `restart_notice`, `compaction`, …
    pub kind: Word,
}

/// The announce of a run's result was queued.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnounceQueued {
    /// Id of the announce.
    pub announce_id: AnnounceId,
    /// Delivery policy: `wake` or `inbox`.
    pub policy: Word,
}

/// A run's result was delivered into its requester's transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnounceDelivered {
    /// Id of the announce.
    pub announce_id: AnnounceId,
    /// The run that ended.
    pub run_id: RunId,
    /// Position of its entry in the requester's transcript.
    pub seq: i64,
    /// `tool`: it was delivered as the outcome of a tool call of the requester's own run, not as a
    /// separate entry. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<Word>,
}

/// A run's result cannot be delivered; it remains stored on the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnounceHeld {
    /// Id of the announce.
    pub announce_id: AnnounceId,
    /// Why: `gone`, the requester's session no longer exists.
    pub reason: Word,
}

/// The client acknowledged an announce.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnounceAcked {
    /// Id of the announce.
    pub announce_id: AnnounceId,
    /// The run that ended.
    pub run_id: RunId,
}

/// A client decided that a run's result need not be announced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnounceDismissed {
    /// Id of the announce.
    pub announce_id: AnnounceId,
}
