//! What ends, changes, repeats and removes: `runs.cancel`, `runs.steer` and their kin, and those
//! methods of `sessions.*` that change a session that is there.

use serde::{Deserialize, Serialize};

use super::decode::Params;
use super::input;
use crate::kernel::ids::{MessageId, RunId, SessionKey};

/// `runs.cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelRun {
    /// Which.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
    /// Why, for people.
    #[serde(
        default,
        deserialize_with = "input::name",
        skip_serializing_if = "Option::is_none"
    )]
    pub reason: Option<String>,
}
impl Params for CancelRun {}

/// `sessions.cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelSession {
    /// What goes on in this session, and below it.
    pub session_key: SessionKey,
    /// Why, for people.
    #[serde(
        default,
        deserialize_with = "input::name",
        skip_serializing_if = "Option::is_none"
    )]
    pub reason: Option<String>,
}
impl Params for CancelSession {}

/// What a cancel answers. Each run of the subtree that was open stands in one of the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cancelled {
    /// These have ended by it.
    pub cancelled: Vec<RunId>,
    /// These had ended before, or were ended by something else meanwhile.
    pub already_ended: Vec<RunId>,
    /// These are marked to end, and what carries them out is still there.
    pub not_ended: Vec<RunId>,
}

/// `runs.steer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Steer {
    /// A run in the middle of its turn.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
    /// What is said.
    #[serde(deserialize_with = "input::text")]
    pub message: String,
    /// The message's id, for a safe repeat.
    #[serde(
        default,
        deserialize_with = "input::maybe_id",
        skip_serializing_if = "Option::is_none"
    )]
    pub message_id: Option<MessageId>,
}
impl Params for Steer {}

/// What `runs.steer` answers: the text is in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Steered {
    /// The run.
    pub run_id: RunId,
    /// The id of the message that the run's next model call sees.
    pub message_id: MessageId,
}
