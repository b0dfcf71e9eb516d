//! Cancel, steer, resolve and retry runs (`runs.*`), and change existing sessions
//! (`sessions.cancel`, `patch`, `reset`, `delete`, `compact`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input;
use crate::kernel::ids::{AgentId, MessageId, RunId, SessionKey, StepId};
use crate::kernel::run::thinking::Thinking;
use crate::kernel::text::text_enum::text_enum;

/// Parameters of `runs.cancel`, which also cancels the run's descendants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelRun {
    /// Id of the run.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
    /// Reason, stored with the cancel request and shown to users.
    #[serde(default, deserialize_with = "input::name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Parameters of `sessions.cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelSession {
    /// Key of the session whose work, descendants included, is cancelled.
    pub session_key: SessionKey,
    /// Cancel the whole conversation: also requests it sent to other sessions, and descendant
    /// sessions without open runs.
    #[serde(default)]
    pub all: bool,
    /// Reason, stored with the cancel request and shown to users.
    #[serde(default, deserialize_with = "input::name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Result of a cancel. Every run of the subtree that was open is in exactly one of the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cancelled {
    /// Runs that this call ended.
    pub cancelled: Vec<RunId>,
    /// Runs that had ended before, or that ended for another reason meanwhile.
    pub already_ended: Vec<RunId>,
    /// Runs marked as cancelled whose execution has not stopped yet.
    pub not_ended: Vec<RunId>,
}

/// Parameters of `gateway.cancel_runs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelAllRuns {
    /// Reason, stored with the cancel requests and shown to users.
    #[serde(default, deserialize_with = "input::name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `notEnded` of an earlier result, whose outcome is wanted.
    #[serde(default, deserialize_with = "input::ids")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub run_ids: Vec<RunId>,
}

/// Result of `gateway.cancel_runs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CancelledRuns {
    /// Runs that this call ended, and those of `runIds` that ended as cancelled.
    pub cancelled: Vec<RunId>,
    /// Runs that ended for another reason meanwhile.
    pub already_ended: Vec<RunId>,
    /// Runs marked as cancelled whose execution has not stopped yet.
    pub not_ended: Vec<RunId>,
    /// Number of runs of all orgs that are open now. Repeat the call until it is 0: results of
    /// cancelled runs may begin new ones.
    pub open: u64,
}

/// Parameters of `runs.steer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Steer {
    /// Id of a run in the middle of its turn.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
    /// Text for the run's next model call.
    #[serde(deserialize_with = "input::text")]
    #[schemars(regex(pattern = r"\S"))]
    pub message: String,
    /// Id of the message, used for idempotency: a repeat with the same id adds nothing. Generated
    /// if unset.
    #[serde(default, deserialize_with = "input::maybe_id")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
}

/// Result of `runs.steer`: the message is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Steered {
    /// Id of the run.
    pub run_id: RunId,
    /// Id of the message that the run's next model call sees.
    pub message_id: MessageId,
}

text_enum! {
    /// The user's decision on a call that may or may not have happened.
    #[schemars(rename = "StepDecision")]
    Decision {
        /// The call happened.
        Done = "done",
        /// The call did not happen; it is made now.
        NotDone = "not_done",
        /// End the run, whether or not the call happened.
        Abort = "abort",
    }
}

/// Parameters of `runs.resolve`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolveRun {
    /// Id of a run that needs a review.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
    /// Step of the call, from the run's `reviews`.
    #[serde(deserialize_with = "input::id")]
    pub step_id: StepId,
    /// Whether the call happened.
    pub decision: Decision,
    /// With `done`: result of the call, passed to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

/// Parameters of `runs.retry`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryRun {
    /// Id of a run that has ended.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
    /// Idempotency key; a repeat with the same key returns the first answer.
    #[serde(default, deserialize_with = "input::key")]
    #[schemars(length(min = 1, max = input::KEY_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// Result of `runs.retry`: the new run is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retried {
    /// Always `accepted`.
    pub status: String,
    /// Id of the new run.
    pub run_id: RunId,
    /// Id of the run that is repeated.
    pub retry_of: RunId,
    /// Session the new run works in.
    pub session_key: SessionKey,
    /// Agent that executes it.
    pub agent: AgentId,
    /// Model it uses, `provider/name`.
    pub model: String,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
}

/// Parameters of `runs.retry_announce`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryAnnounce {
    /// Id of the run whose result is to be announced again, or not at all.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
}

/// Parameters of `runs.dismiss_announce`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DismissAnnounce {
    /// Id of the run whose result is to be announced again, or not at all.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
}

/// Result of `runs.retry_announce` and `runs.dismiss_announce`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnounceDecided {
    /// Id of the run.
    pub run_id: RunId,
    /// Wake run that was created to show the result; absent if none was needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_run_id: Option<RunId>,
}

/// Parameters of `sessions.patch`. An absent field stays unchanged; null clears it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchSession {
    /// Key of the session.
    pub session_key: SessionKey,
    /// Label for lookups.
    #[serde(default, deserialize_with = "patched_name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Option<String>>,
    /// Display title.
    #[serde(default, deserialize_with = "patched_name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<Option<String>>,
    /// Agent that answers from the next turn on; only for a root session.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Model of its turns; null uses the agent's model.
    #[serde(default, deserialize_with = "patched_name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Option<String>>,
    /// Thinking level of its turns; null uses the agent's level.
    #[serde(
        default,
        deserialize_with = "patched_level",
        skip_serializing_if = "Option::is_none"
    )]
    pub thinking: Option<Option<Thinking>>,
    /// Absolute working directory of its tools.
    #[serde(default, deserialize_with = "patched_folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Option<String>>,
    /// Patch only if the session has this revision; otherwise `conflict`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_revision: Option<i64>,
}

impl PatchSession {
    /// A patch of this session that changes nothing, as a base for others.
    pub fn unchanged(session_key: SessionKey) -> PatchSession {
        PatchSession {
            session_key,
            label: None,
            title: None,
            agent: None,
            model: None,
            thinking: None,
            cwd: None,
            if_revision: None,
        }
    }
}

/// Wraps a present value in `Some`, so that null differs from an absent field.
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
) -> Result<Option<Option<Thinking>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// Parameters of `sessions.reset`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResetSession {
    /// Key of the session.
    pub session_key: SessionKey,
    /// Cancel its open runs first; if false, open runs are a `conflict`.
    #[serde(default)]
    pub force: bool,
    /// Generation to end, for idempotency: if a later one has already begun, the session is
    /// returned unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_generation: Option<i64>,
}

/// Parameters of `sessions.delete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteSession {
    /// Key of the session.
    pub session_key: SessionKey,
    /// Cancel its open runs first; if false, open runs are a `conflict`.
    #[serde(default)]
    pub force: bool,
}

/// Result of `sessions.delete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DeletedSession")]
pub struct Deleted {
    /// Key of the deleted session; it can be used again.
    pub session_key: SessionKey,
    /// Always true.
    pub deleted: bool,
}

/// Parameters of `sessions.compact`, which queues a run behind the waiting turns of the session.
/// The transcript keeps all messages; the model sees a summary of the older part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompactSession {
    /// Key of the session.
    pub session_key: SessionKey,
    /// Idempotency key; a repeat with the same key returns the first answer.
    #[serde(default, deserialize_with = "input::key")]
    #[schemars(length(min = 1, max = input::KEY_LIMIT))]
    pub idempotency_key: Option<String>,
}

/// Result of `sessions.compact`: the run is stored. The outcome is in the run's result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Compacting {
    /// Always `accepted`.
    pub status: String,
    /// Id of the run that compacts the session.
    pub run_id: RunId,
    /// Key of the session.
    pub session_key: SessionKey,
}
