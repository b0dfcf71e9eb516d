//! Run, session, message, announce and step as answers show them.
//!
//! Words of a closed set are text here: a later daemon may send new ones, and a client treats
//! those as "other".

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::budget::BudgetUse;
use crate::kernel::ids::{
    AgentId, AnnounceId, ApprovalId, MessageId, QuestionId, RunId, SessionId, SessionKey, StepId,
};
use crate::kernel::message::Block;
use crate::kernel::run::{CancelRequest, Pins, RunError, Usage};
use crate::kernel::time::Timestamp;

/// A word of a closed set that may grow.
pub type Word = Cow<'static, str>;

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Its id.
    pub run_id: RunId,
    /// The session it works in.
    pub session_key: SessionKey,
    /// The run that asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// The session that asked for it and is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionKey>,
    /// The topmost run of the chain.
    pub root_run_id: RunId,
    /// Who carries it out.
    pub agent: AgentId,
    /// With which model.
    pub model: String,
    /// How much it thinks, if that was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Word>,
    /// Levels below a root session.
    pub depth: u32,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What it is about: the start of its task, on one line.
    #[serde(default)]
    pub title: String,
    /// `queued`, `running`, `paused`, `settling`, or how it ended.
    pub state: Word,
    /// Why it holds still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_reason: Option<Word>,
    /// For the reason `provider`: since when, until when and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_wait: Option<ProviderWait>,
    /// The step that is open, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<CurrentStep>,
    /// Tool calls that have an outcome.
    pub tool_calls: u32,
    /// Model calls that have an outcome.
    pub loops: u32,
    /// The last change.
    pub last_activity_at: Timestamp,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it first got a slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Running time used up to now.
    pub elapsed_ms: u64,
    /// When its limit would pass; an estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    /// Its final text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The text is longer; `runs.get` has the whole.
    pub result_truncated: bool,
    /// Why it did not end `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// The call of a tool of `parentRunId` that it carries out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delegated: Option<DelegatedCall>,
    /// A cancel that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelRequest>,
    /// The run that it does again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<RunId>,
    /// Model use.
    pub usage: Usage,
    /// What it may use, with all runs below it, and what of that is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetUse>,
    /// What the caller should know.
    pub warnings: Vec<String>,
    /// What the client gave to get back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// What it keeps from the moment of its spawn.
    pub pins: Pins,
    /// What its programs have in their environment beside what every program gets: names, never
    /// values.
    #[serde(default)]
    pub env: Vec<EnvName>,
    /// A person must settle something.
    pub needs_review: bool,
    /// Why it gets no slot although it wants one: a lane that is closed by its setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_up: Option<String>,
    /// What it asks people, and nobody has answered yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<OpenQuestion>,
    /// What it needs a person's leave for, and nobody has decided yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<OpenApproval>,
    /// What it has written down to do; only in `runs.get`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub todo: Vec<TodoItem>,
    /// Calls that may have happened when the daemon was killed: a person must say so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reviews: Vec<OpenReview>,
    /// One trace through parent, child and restarts.
    pub trace_id: String,
    /// How far the telling of its end has come.
    pub announce: AnnounceProgress,
}

/// A run waits for the provider of its model, which takes no requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderWait {
    /// When the model call began that has no answer yet.
    pub since: Timestamp,
    /// When the provider is asked again.
    pub until: Timestamp,
    /// What it has said.
    pub reason: String,
}

/// The call of a tool that a run carries out for the one above it, which waits for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DelegatedCall {
    /// `task`, `subagent`, `call` or `plan`.
    pub face: Word,
    /// The step there that waits.
    pub step: u32,
    /// The model's name for the call.
    pub tool_call_id: String,
    /// What people called its agent when the call was made: the title, or else the id.
    pub agent_name: String,
}

/// What has become of a call that another agent carries out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubAgentSummary {
    /// The call.
    pub tool_call_id: String,
    /// The run that carries it out.
    pub child_run_id: RunId,
    /// Its session.
    pub session_key: SessionKey,
    /// Its agent.
    pub agent: AgentId,
    /// What people called that when the call was made.
    pub agent_name: String,
    /// As in a run.
    pub state: Word,
    /// The tools that it has called, the last ones.
    pub calls: Vec<SubAgentCall>,
}

/// A tool that another agent has called on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubAgentCall {
    /// Its name for the call.
    pub id: String,
    /// Which tool.
    pub tool: String,
    /// `running`, `completed` or `error`.
    pub status: Word,
    /// Its arguments on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// What a run asks people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenQuestion {
    /// Its id.
    pub id: QuestionId,
    /// What is asked.
    pub text: String,
    /// Answers that are proposed.
    pub choices: Vec<String>,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it runs out as "no answer".
    pub expires_at: Timestamp,
}

/// One thing that a run has to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TodoItem {
    /// What.
    pub text: String,
    /// `open`, `in_progress` or `done`.
    pub status: Word,
}

/// A call that a run needs a person's leave for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenApproval {
    /// Its id.
    pub id: ApprovalId,
    /// Which tool.
    pub tool: String,
    /// With what, whole.
    pub arguments: Value,
    /// Which rule asks.
    pub why: String,
    /// When it was asked for.
    pub asked_at: Timestamp,
    /// When it runs out as a no.
    pub expires_at: Timestamp,
}

/// A name of a run's environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnvName {
    /// The name.
    pub name: String,
    /// Who has set it: `agent`, `skill:NAME` or `request`.
    pub from: Word,
    /// Why there is no value: the run holds still for it, and `runs.provide_env` gives one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// A call of which nobody is certain whether it has happened; `runs.resolve` settles it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenReview {
    /// The step.
    pub step_id: StepId,
    /// Its place in the run.
    pub seq: u32,
    /// Which tool; `command`: the program that the agent is.
    pub tool: String,
    /// The arguments, exactly; null for a program.
    pub arguments: Value,
    /// What is called, on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// When it was intended.
    pub started_at: Timestamp,
    /// How often it was begun.
    pub attempts: u32,
}

/// A run's present step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CurrentStep {
    /// Its place in the run.
    pub seq: u32,
    /// `model`, or the name of a tool.
    pub what: String,
}

/// How a requester is told, and how far that has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnnounceProgress {
    /// `wake`, `inbox`, `steer` or `none`.
    pub policy: Word,
    /// `none`, `open`, `pending`, `delivered`, `acked`, `undelivered` or `dismissed`.
    pub state: Word,
    /// Why it is undelivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Its address.
    pub key: SessionKey,
    /// Its id.
    pub id: SessionId,
    /// A name for look-ups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// A heading for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The agent of its turns.
    pub agent: AgentId,
    /// The session that it was spawned from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionKey>,
    /// It was spawned from another.
    pub is_sub_session: bool,
    /// Levels below the root.
    pub depth: u32,
    /// `agent` or `client`.
    pub owner: Word,
    /// The model of its turns, if not the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much it thinks, if not as the agent says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Word>,
    /// The folder that its tools see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `run`: for one task; `session`: until it is deleted.
    pub mode: Word,
    /// `keep` or `delete`: what becomes of it once all is told.
    pub cleanup: Word,
    /// Raised by each reset; no model sees messages of an earlier one.
    pub generation: i64,
    /// When it was put aside; lists leave it out since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<Timestamp>,
    /// The session whose transcript its own begins with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fork_of: Option<SessionId>,
    /// The last message's seq.
    pub messages: i64,
    /// When it was made.
    pub created_at: Timestamp,
    /// The last change.
    pub updated_at: Timestamp,
    /// `busy` while a turn goes on or waits, `waiting` while only runs that it asked for do,
    /// else `idle`.
    pub state: Word,
    /// Its work was cancelled, and none has begun since: ends wake no agent here.
    pub stopped: Option<Stopped>,
    /// Raised by each change.
    pub revision: i64,
    /// Model use of all its runs.
    pub usage: Usage,
}

/// A cancel that is in force in a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stopped {
    /// `person`: only a person begins work there again; or `agent`.
    pub by: Word,
    /// When it was last asked for.
    pub at: Timestamp,
}

/// An entry of a transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Message<Content = Vec<Block>, Metadata = Value> {
    /// Its id.
    pub id: MessageId,
    /// Its place in the session: 1, 2, 3 …
    pub seq: i64,
    /// The session's generation then.
    pub generation: i64,
    /// When it was appended.
    pub at: Timestamp,
    /// `user`, `assistant`, `tool` or `system`.
    pub role: Word,
    /// `text`, `tool_call`, `tool_result`, `announce`, `restart_notice`, `compaction`,
    /// `sub_agent_user`, `sub_agent_ai`, …
    pub kind: Word,
    /// `user`, `agent`, `session` or `internal`.
    pub origin: Word,
    /// The run that appended it; for an announce, the run that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// What it says.
    pub content: Content,
    /// The texts are longer than one page holds.
    pub truncated: bool,
    /// For a tool result, the call that it answers; of a called agent's two sides, the call that
    /// it carries out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The run of the called agent that the entry belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_run_id: Option<RunId>,
    /// For an announce, its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announce_id: Option<AnnounceId>,
    /// Nobody was told of it.
    pub silent: bool,
    /// Anything else that belongs to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// What has become of its calls that other agents carry out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sub_agent_summary: Vec<SubAgentSummary>,
}

/// How a run ended, in its requester's inbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Announce {
    /// Its id.
    pub announce_id: AnnounceId,
    /// The run that ended.
    pub run_id: RunId,
    /// The session that the run worked in.
    pub session_key: SessionKey,
    /// The run's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Who carried it out.
    pub agent: AgentId,
    /// How it ended.
    pub outcome: Word,
    /// Why it did not end `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its final text, cut to 100 KiB.
    pub result: String,
    /// The text was longer; `runs.get` has the whole.
    pub truncated: bool,
    /// From accepted to ended.
    pub duration_ms: u64,
    /// Model use.
    pub usage: Usage,
    /// When it was delivered.
    pub at: Timestamp,
    /// What the spawn gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// When it was acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acked_at: Option<Timestamp>,
    /// Its message in the transcript.
    pub message_id: MessageId,
    /// That message's place.
    pub seq: i64,
}

/// A journaled action of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Its id.
    pub step_id: StepId,
    /// Its place in the run: 1, 2, 3 …
    pub seq: u32,
    /// `model` or `tool`.
    pub kind: Word,
    /// Which tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The model's name for the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// For a tool, what a repeat would do: `read`, `idempotent` or `once`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Word>,
    /// `intended`, `started`, `done`, `failed` or `uncertain`.
    pub state: Word,
    /// The arguments on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params_summary: Option<String>,
    /// The outcome on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
    /// When its intent was committed.
    pub started_at: Timestamp,
    /// When its outcome was committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The run that carries out this call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_run_id: Option<RunId>,
    /// What it waits for: `reply`, `child`, `any_child` or `answer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Word>,
    /// When that window is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_until: Option<Timestamp>,
    /// How often it was begun.
    pub attempts: u32,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The model that answered it, which need not be the one of its run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What it used of that model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}
