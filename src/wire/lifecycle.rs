//! What ends, changes, repeats and removes: `runs.cancel`, `runs.steer` and their kin, and those
//! methods of `sessions.*` that change a session that is there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decode::Params;
use super::input::{self, ThinkingLevel, choice};
use crate::kernel::ids::{AgentId, MessageId, RunId, SessionKey, StepId};

/// `runs.cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelRun {
    /// Which.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
    /// Why, for people.
    #[serde(default, deserialize_with = "input::name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
impl Params for CancelRun {
    fn object(&self) -> Option<String> {
        Some(self.run_id.to_string())
    }
}

/// `sessions.cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelSession {
    /// What goes on in this session, and below it.
    pub session_key: SessionKey,
    /// Everything of its conversation: also what it has asked other sessions, and sessions below
    /// it in which nothing is open.
    #[serde(default)]
    pub all: bool,
    /// Why, for people.
    #[serde(default, deserialize_with = "input::name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
impl Params for CancelSession {
    fn object(&self) -> Option<String> {
        Some(self.session_key.to_string())
    }
}

/// What a cancel answers. Each run of the subtree that was open stands in one of the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Steer {
    /// A run in the middle of its turn.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
    /// What is said.
    #[serde(deserialize_with = "input::text")]
    #[schemars(regex(pattern = r"\S"))]
    pub message: String,
    /// The message's id, for a safe repeat.
    #[serde(default, deserialize_with = "input::maybe_id")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
}
impl Params for Steer {
    fn object(&self) -> Option<String> {
        Some(self.run_id.to_string())
    }
}

/// What `runs.steer` answers: the text is in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Steered {
    /// The run.
    pub run_id: RunId,
    /// The id of the message that the run's next model call sees.
    pub message_id: MessageId,
}

choice! {
    /// What a person says of a call that may have happened.
    Decision {
        /// It has happened.
        Done = "done",
        /// It has not: it is carried out now.
        NotDone = "not_done",
        /// Whatever it is, the run ends.
        Abort = "abort",
    }
}

/// `runs.resolve`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolveRun {
    /// A run that needs a review.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
    /// The call, one of the run's `reviews`.
    #[serde(deserialize_with = "input::id")]
    pub step_id: StepId,
    /// What is said of it.
    pub decision: Decision,
    /// With `done`: its result, for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}
impl Params for ResolveRun {
    fn object(&self) -> Option<String> {
        Some(self.run_id.to_string())
    }
}

/// `runs.retry`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryRun {
    /// A run that has ended.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
    /// For a safe repeat.
    #[serde(default, deserialize_with = "input::key")]
    #[schemars(length(min = 1, max = input::KEY_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}
impl Params for RetryRun {
    fn object(&self) -> Option<String> {
        Some(self.run_id.to_string())
    }
}

/// What `runs.retry` answers: the new run is in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retried {
    /// `accepted`.
    pub status: String,
    /// The new run.
    pub run_id: RunId,
    /// The run that it does again.
    pub retry_of: RunId,
    /// The session it works in.
    pub session_key: SessionKey,
    /// Who does it.
    pub agent: AgentId,
    /// With which model.
    pub model: String,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// `runs.retry_announce` and `runs.dismiss_announce`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OfAnnounce {
    /// The run whose end is to be told, or not.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
}
impl Params for OfAnnounce {
    fn object(&self) -> Option<String> {
        Some(self.run_id.to_string())
    }
}

/// What `runs.retry_announce` and `runs.dismiss_announce` answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnounceDecided {
    /// The run.
    pub run_id: RunId,
    /// The wake run that was made to show its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_run_id: Option<RunId>,
}

/// `sessions.patch`: a value that is left out stays as it is, null takes it away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchSession {
    /// Which.
    pub session_key: SessionKey,
    /// A name for look-ups.
    #[serde(default, deserialize_with = "patched_name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Option<String>>,
    /// A heading for people.
    #[serde(default, deserialize_with = "patched_name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<Option<String>>,
    /// The model of its turns; null: the agent's.
    #[serde(default, deserialize_with = "patched_name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Option<String>>,
    /// How much that model thinks; null: the agent's level.
    #[serde(
        default,
        deserialize_with = "patched_level",
        skip_serializing_if = "Option::is_none"
    )]
    pub thinking: Option<Option<ThinkingLevel>>,
    /// The folder that its tools see, absolute.
    #[serde(default, deserialize_with = "patched_folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Option<String>>,
    /// Only if its revision is this one; else `conflict`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_revision: Option<i64>,
}
impl Params for PatchSession {
    fn object(&self) -> Option<String> {
        Some(self.session_key.to_string())
    }
}

/// A value that is there, be it null.
fn patched_name<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<String>>, D::Error> {
    input::name(from).map(Some)
}

fn patched_folder<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<String>>, D::Error> {
    input::folder(from).map(Some)
}

fn patched_level<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<ThinkingLevel>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// `sessions.reset`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResetSession {
    /// Which.
    pub session_key: SessionKey,
    /// Cancel its open runs first; without it they are a `conflict`.
    #[serde(default)]
    pub force: bool,
    /// The generation that is to end, for a safe repeat: where a later one has begun already,
    /// the session is answered as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_generation: Option<i64>,
}
impl Params for ResetSession {
    fn object(&self) -> Option<String> {
        Some(self.session_key.to_string())
    }
}

/// `sessions.delete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteSession {
    /// Which.
    pub session_key: SessionKey,
    /// Cancel its open runs first; without it they are a `conflict`.
    #[serde(default)]
    pub force: bool,
}
impl Params for DeleteSession {
    fn object(&self) -> Option<String> {
        Some(self.session_key.to_string())
    }
}

/// What `sessions.delete` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deleted {
    /// The key, which is free now.
    pub session_key: SessionKey,
    /// Always true.
    pub deleted: bool,
}

/// `sessions.compact`: a run of its own, queued behind the turns that wait in the session. What
/// was said stays in the transcript; its model is shown a summary of the older part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompactSession {
    /// Which.
    pub session_key: SessionKey,
    /// For a safe repeat.
    #[serde(default, deserialize_with = "input::key")]
    #[schemars(length(min = 1, max = input::KEY_LIMIT))]
    pub idempotency_key: Option<String>,
}
impl Params for CompactSession {
    fn object(&self) -> Option<String> {
        Some(self.session_key.to_string())
    }
}

/// What `sessions.compact` answers: the run is in the store. Its result says what has come of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Compacting {
    /// `accepted`.
    pub status: String,
    /// The run that shortens.
    pub run_id: RunId,
    /// The session.
    pub session_key: SessionKey,
}
