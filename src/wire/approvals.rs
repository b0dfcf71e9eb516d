//! `approvals.*`: tool calls that wait for a user's approval, and the decisions on them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::input::{self, PageSize};
use super::shapes::Word;
use crate::kernel::ids::{AgentId, ApprovalId, RunId, SessionId, SessionKey};
use crate::kernel::policy::approval::{ApprovalState, Choice, Remember};
use crate::kernel::time::Timestamp;

/// Parameters of `approvals.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListApprovals {
    /// Only approvals of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// With `sessionKey`: approvals of the whole session tree that contains it; true if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<bool>,
    /// Only approvals in this state; any state if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ApprovalState>,
    /// Include `folder`, `env` and `change`; true if unset. If false, no file is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previews: Option<bool>,
    /// Page size: 1 to 500; 50 if unset.
    #[serde(default)]
    pub limit: PageSize,
    /// `nextCursor` of the previous page; the first page if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Result of `approvals.list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approvals {
    /// One page of approvals, oldest first.
    pub approvals: Vec<Approval>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Parameters of `approvals.resolve`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveApproval {
    /// Id of the approval.
    #[serde(deserialize_with = "input::id")]
    pub id: ApprovalId,
    /// The decision.
    pub decision: Choice,
    /// Apply the decision to later calls in this scope as well; to this call only if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remember: Option<Remember>,
    /// `digest` of the change that was reviewed. If the call would now do something else, an
    /// `allow` fails with `conflict` and nothing is approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// Parameters of `approvals.remembered`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListRemembered {
    /// Page size: 1 to 500; 50 if unset.
    #[serde(default)]
    pub limit: PageSize,
    /// `nextCursor` of the previous page; the first page if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Result of `approvals.remembered`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RememberedPage {
    /// One page of remembered decisions, oldest first.
    pub remembered: Vec<Remembered>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Parameters of `approvals.forget`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetApproval {
    /// Id of the approval whose decision is remembered.
    #[serde(deserialize_with = "input::id")]
    pub id: ApprovalId,
}

/// Result of `approvals.forget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Forgotten {
    /// True if a remembered decision was removed; false if there was none.
    pub forgotten: bool,
}

/// A tool call that needs a user's approval, with its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Id of the approval.
    pub id: ApprovalId,
    /// Run that wants to make the call.
    pub run_id: RunId,
    /// Session of that run.
    pub session_key: SessionKey,
    /// Root session of the tree that contains it; absent if that session was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_session_key: Option<SessionKey>,
    /// Agent of the run.
    pub agent: AgentId,
    /// Label of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Title of the run: the start of its task on one line.
    pub title: String,
    /// Depth of the run below the root session.
    pub depth: u32,
    /// Name of the tool.
    pub tool: String,
    /// Id that the model gave the call; absent for a program that an agent runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Complete arguments of the call.
    pub arguments: Value,
    /// The policy rule that requires approval.
    pub why: String,
    /// What a remembered decision covers, such as this command, file or host; every call of the
    /// tool if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covers: Option<String>,
    /// Absolute working directory of the call; absent without `previews`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Names of the variables set in the environment of the run's programs; never values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// For open approvals of `write` and `edit`: the effect of the call on the file's present
    /// content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// When the approval was requested.
    pub asked_at: Timestamp,
    /// Deadline; without a decision by then, the call is denied.
    pub expires_at: Timestamp,
    /// `open`, `allowed`, `denied`, `expired` or `closed`.
    pub state: Word,
    /// Principal that decided; absent without a decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
    /// Scope of later calls that the decision covers: `session` or `agent`; absent if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remember: Option<Word>,
    /// When the approval left state `open`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// Effect of a call on a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Path of the file, relative to `folder`.
    pub path: String,
    /// `creates`, `changes`, `nothing` (the file already has this content), `fails` (the call would
    /// fail) or `not_shown`.
    pub effect: Word,
    /// With `creates` and `changes`: a unified diff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// With `fails` and `not_shown`: the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Digest to pass to `approvals.resolve`; it differs if the call would do something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// A remembered decision that applies to later calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remembered {
    /// Id of the approval it was made for.
    pub id: ApprovalId,
    /// Which calls it covers: `session` or `agent`.
    pub scope: Word,
    /// Agent whose calls it covers.
    pub agent: AgentId,
    /// With scope `session`: id of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Name of the tool.
    pub tool: String,
    /// The command, file or host it covers; every call of the tool if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covers: Option<String>,
    /// `allow` or `deny`.
    pub decision: Word,
    /// Principal that decided.
    pub by: String,
    /// When the decision was made.
    pub at: Timestamp,
}
