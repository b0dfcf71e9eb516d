//! Run, session, message, announce and step as results show them.
//!
//! Enum values are plain strings here: a later daemon may send new ones, which a client must treat
//! as "other".

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::budget::BudgetUse;
use super::runs::State;
pub use crate::kernel::event::{EnvName, Word};
use crate::kernel::ids::{
    AgentId, AnnounceId, ApprovalId, MessageId, QuestionId, RunId, SessionId, SessionKey, StepId,
};
use crate::kernel::run::{CancelRequest, Pins, RunError, Usage};
use crate::kernel::session::message::Block;
use crate::kernel::time::Timestamp;

/// A run as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Id of the run.
    pub run_id: RunId,
    /// Session the run works in.
    pub session_key: SessionKey,
    /// Run that requested it; absent if no run did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// Session that requested it and is notified of its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionKey>,
    /// Root run of the tree; the run itself if it has no parent.
    pub root_run_id: RunId,
    /// Agent that executes it.
    pub agent: AgentId,
    /// Model it uses, `provider/name`.
    pub model: String,
    /// Thinking level; absent if none is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Word>,
    /// Depth below the root session.
    pub depth: u32,
    /// Label given by the requester.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Title: the start of its task, on one line.
    #[serde(default)]
    pub title: String,
    /// `queued`, `running`, `paused`, `settling`, or the outcome: `ok`, `error`, `timeout`,
    /// `cancelled` or `interrupted`.
    pub state: Word,
    /// While `paused`, why: `child`, `reply`, `approval`, `review`, `input` or `provider`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_reason: Option<Word>,
    /// While paused for `provider`: since when, until when and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_wait: Option<ProviderWait>,
    /// The open step, or the last one; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<CurrentStep>,
    /// Number of tool calls that have an outcome.
    pub tool_calls: u32,
    /// Number of model calls that have an outcome.
    pub loops: u32,
    /// Time of the last change.
    pub last_activity_at: Timestamp,
    /// When the run was accepted.
    pub created_at: Timestamp,
    /// When it first got a slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Running time used so far, in milliseconds.
    pub elapsed_ms: u64,
    /// Estimated time at which its timeout passes; absent if it has none or is not counting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    /// Final text; truncated if `resultTruncated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// True if `result` is truncated; `runs.get` returns all of it.
    pub result_truncated: bool,
    /// Why it did not end `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// Tool call of `parentRunId` that this run carries out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delegated: Option<DelegatedCall>,
    /// Cancel request; absent if it was not cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelRequest>,
    /// Run that this one retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<RunId>,
    /// Model usage of the run.
    pub usage: Usage,
    /// Budget of the run and its descendants, with its use; absent if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetUse>,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
    /// `meta` of the request, unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// Versions pinned when the run was accepted, such as of its skills and tools.
    pub pins: Pins,
    /// Variables set in the environment of its programs, beyond those that every program gets:
    /// names, never values.
    #[serde(default)]
    pub env: Vec<EnvName>,
    /// True if a user must decide whether a call happened; see `reviews`.
    pub needs_review: bool,
    /// Why it gets no slot while `queued`: its lane is closed by a setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_up: Option<String>,
    /// Its unanswered questions to the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<OpenQuestion>,
    /// Its tool calls that wait for approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<OpenApproval>,
    /// Its todo list; only in `runs.get`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub todo: Vec<TodoItem>,
    /// Calls that may or may not have happened; a user must decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reviews: Vec<OpenReview>,
    /// Trace id, shared by parent and child runs and kept across restarts.
    pub trace_id: String,
    /// How the result is announced to the requester.
    pub announce: AnnounceProgress,
}

impl Run {
    /// True while it has not ended.
    pub fn is_open(&self) -> bool {
        let state = self.state.as_ref();
        State::OPEN.iter().any(|open| open.as_str() == state)
    }
}

/// Wait for a model provider that accepts no requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderWait {
    /// When the unanswered model call began.
    pub since: Timestamp,
    /// When the next request is sent.
    pub until: Timestamp,
    /// Last error message of the provider.
    pub reason: String,
}

/// Tool call that a child run carries out for its waiting parent run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DelegatedCall {
    /// Delegation mode: `task`, `subagent`, `call` or `plan`.
    pub mode: Word,
    /// Position of the waiting step in the parent run.
    pub step: u32,
    /// Id that the parent's model gave the call.
    pub tool_call_id: String,
    /// Display name of the child's agent when the call was made: its title, otherwise its id.
    pub agent_name: String,
}

/// Status of a tool call that another agent carries out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubAgentSummary {
    /// Id that the model gave the call.
    pub tool_call_id: String,
    /// Child run that carries out the call.
    pub child_run_id: RunId,
    /// Session of the child run.
    pub session_key: SessionKey,
    /// Agent of the child run.
    pub agent: AgentId,
    /// Display name of that agent when the call was made.
    pub agent_name: String,
    /// State of the child run, as in [`Run::state`].
    pub state: Word,
    /// The latest tool calls of the child run.
    pub calls: Vec<SubAgentCall>,
}

/// A tool call of a child run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubAgentCall {
    /// Id that the child's model gave the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// `running`, `completed` or `error`.
    pub status: Word,
    /// Arguments on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// An unanswered question of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenQuestion {
    /// Id of the question.
    pub id: QuestionId,
    /// Text of the question.
    pub text: String,
    /// Proposed answers; a free-form answer is also accepted.
    pub choices: Vec<String>,
    /// When the question was asked.
    pub asked_at: Timestamp,
    /// Deadline; without an answer by then, the outcome is "no answer".
    pub expires_at: Timestamp,
}

/// An entry of a run's todo list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TodoItem {
    /// Description of the entry.
    pub text: String,
    /// `open`, `in_progress` or `done`.
    pub status: Word,
}

/// A tool call that waits for approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenApproval {
    /// Id of the approval.
    pub id: ApprovalId,
    /// Name of the tool.
    pub tool: String,
    /// Complete arguments of the call.
    pub arguments: Value,
    /// The policy rule that requires approval.
    pub why: String,
    /// When the approval was requested.
    pub asked_at: Timestamp,
    /// Deadline; without a decision by then, the call is denied.
    pub expires_at: Timestamp,
}

/// A call that may or may not have happened; `runs.resolve` settles it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenReview {
    /// Id of the step.
    pub step_id: StepId,
    /// Position of the step in the run.
    pub seq: u32,
    /// Name of the tool; `command` for the program that a `command` agent runs.
    pub tool: String,
    /// Exact arguments of the call; null for a program.
    pub arguments: Value,
    /// The call on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// When its intent was committed.
    pub started_at: Timestamp,
    /// Number of times it was started.
    pub attempts: u32,
    /// Why its outcome is unknown; absent: the daemon was killed during the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The current step of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CurrentStep {
    /// Position of the step in the run, counted from 1.
    pub seq: u32,
    /// `model`, or the name of the tool.
    pub what: String,
}

/// How a run's result is announced to the requester, and the progress of that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnnounceProgress {
    /// `wake`, `inbox`, `steer` or `none`.
    pub policy: Word,
    /// `none`, `open`, `pending`, `delivered`, `acked`, `undelivered` or `dismissed`.
    pub state: Word,
    /// Why it is undelivered; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
}

/// A session as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Unique key of the session.
    pub key: SessionKey,
    /// Id of the session; unlike the key, it is never reused.
    pub id: SessionId,
    /// Label for lookups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Display title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Agent that answers in it.
    pub agent: AgentId,
    /// Session that spawned it; absent for a root session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionKey>,
    /// True if another session spawned it.
    pub is_sub_session: bool,
    /// Depth below the root session.
    pub depth: u32,
    /// `agent`: its agent answers; `client`: a client program does.
    pub owner: Word,
    /// Model of its turns; absent if it is the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Thinking level of its turns; absent if it is the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Word>,
    /// Absolute working directory of its tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `run`: for one task; `session`: until it is deleted.
    pub mode: Word,
    /// What happens once all announces are delivered: `keep` or `delete`.
    pub cleanup: Word,
    /// Raised by each reset; messages of earlier generations are not shown to models.
    pub generation: i64,
    /// When it was archived; archived sessions are left out of lists by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<Timestamp>,
    /// Session from which its transcript was forked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fork_of: Option<SessionId>,
    /// `seq` of the last message.
    pub messages: i64,
    /// When it was created.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// `busy` while a turn is running or queued, `waiting` while only runs that it requested are
    /// open, otherwise `idle`.
    pub state: Word,
    /// Set while a cancel is in force: until new work begins, results of runs wake no agent here.
    pub stopped: Option<Stopped>,
    /// Raised by each change.
    pub revision: i64,
    /// Model usage of all its runs.
    pub usage: Usage,
}

/// A cancel that is in force in a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stopped {
    /// `person`: only a user can start new work there; `agent`: agents can, too.
    pub by: Word,
    /// When it was last requested.
    pub at: Timestamp,
}

/// An entry of a transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Message<Content = Vec<Block>, Metadata = Value> {
    /// Id of the entry.
    pub id: MessageId,
    /// Position in the session: 1, 2, 3 …
    pub seq: i64,
    /// Generation of the session when it was appended.
    pub generation: i64,
    /// When it was appended.
    pub at: Timestamp,
    /// `user`, `assistant`, `tool` or `system`.
    pub role: Word,
    /// `text`, `tool_call`, `tool_result`, `announce`, `restart_notice`, `compaction`,
    /// `sub_agent_user`, `sub_agent_ai`, …
    pub kind: Word,
    /// Origin of the entry: `user`, `agent`, `session` or `internal`.
    pub origin: Word,
    /// The run that appended it; for an announce, the run that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Content of the entry.
    pub content: Content,
    /// True if the content was truncated to fit the page.
    pub truncated: bool,
    /// For a tool result, id of the call it answers. For `sub_agent_user` and `sub_agent_ai`, id of
    /// the call that the called agent carries out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Run of the called agent that the entry belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_run_id: Option<RunId>,
    /// For an announce, its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announce_id: Option<AnnounceId>,
    /// True for a `NO_REPLY` answer, which is stored but not delivered.
    pub silent: bool,
    /// Further data of the entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// Status of its tool calls that other agents carry out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sub_agent_summary: Vec<SubAgentSummary>,
}

/// Result of a run in its requester's inbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Announce {
    /// Id of the announce.
    pub announce_id: AnnounceId,
    /// Run that ended.
    pub run_id: RunId,
    /// Session that the run worked in.
    pub session_key: SessionKey,
    /// Label of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Agent that executed the run.
    pub agent: AgentId,
    /// `ok`, `error`, `timeout`, `cancelled` or `interrupted`.
    pub outcome: Word,
    /// Why it did not end `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Final text, truncated to 100 KiB.
    pub result: String,
    /// True if `result` is truncated; `runs.get` returns all of it.
    pub truncated: bool,
    /// Duration from accepted to ended, in milliseconds.
    pub duration_ms: u64,
    /// Model usage of the run.
    pub usage: Usage,
    /// When it was delivered.
    pub at: Timestamp,
    /// `meta` of the spawn request, unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// When it was acknowledged; absent if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acked_at: Option<Timestamp>,
    /// Id of its entry in the requester's transcript.
    pub message_id: MessageId,
    /// Position of that entry.
    pub seq: i64,
}

/// A journaled action of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Id of the step.
    pub step_id: StepId,
    /// Position in the run: 1, 2, 3 …
    pub seq: u32,
    /// `model`, `tool`, `command` or `compaction`.
    pub kind: Word,
    /// Name of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Id that the model gave the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// For a tool, the effect of repeating the call: `read` (none), `idempotent` (nothing further)
    /// or `once` (it acts again).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Word>,
    /// `intended`, `started`, `done`, `failed` or `uncertain`.
    pub state: Word,
    /// Arguments on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params_summary: Option<String>,
    /// Outcome on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
    /// When its intent was committed.
    pub started_at: Timestamp,
    /// When its outcome was committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Child run that carries out this call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_run_id: Option<RunId>,
    /// What it waits for: `reply`, `child`, `any_child`, `answer`, `approval`, `review`, `value` or
    /// `provider`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Word>,
    /// Deadline of the wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_until: Option<Timestamp>,
    /// Number of times it was started.
    pub attempts: u32,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Model that answered; it may differ from the run's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Model usage of this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}
