//! Shape of `data` for each kind of event, as shown in `rpc.discover`. The store's commands write
//! it; a test checks the events of a real daemon against these shapes.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::events;
use super::shapes::{EnvName, Word};
use crate::kernel::ids::{
    AgentId, AnnounceId, ApprovalId, BootId, MessageId, QuestionId, RunId, SessionId, SessionKey,
    StepId,
};
use crate::kernel::run::action::EventKind;
use crate::kernel::run::{CancelRequest, RunError, Usage};
use crate::kernel::time::Timestamp;

/// Generates the JSON Schema of one shape.
pub type Shape = fn(&mut SchemaGenerator) -> Schema;

/// Shape of `data` for each stored kind of event. Every new kind needs a row here.
pub const SHAPES: &[(EventKind, Shape)] = &[
    (EventKind::SessionCreated, shape::<SessionCreated>),
    (EventKind::SessionUpdated, shape::<SessionUpdated>),
    (EventKind::SessionDeleted, shape::<SessionDeleted>),
    (EventKind::RunQueued, shape::<RunQueued>),
    (EventKind::RunStarted, shape::<RunMoved>),
    (EventKind::RunStep, shape::<StepMoved>),
    (EventKind::RunSettling, shape::<RunMoved>),
    (EventKind::RunPaused, shape::<RunPaused>),
    (EventKind::RunResumed, shape::<RunMoved>),
    (EventKind::RunWarned, shape::<RunWarned>),
    (EventKind::RunEnded, shape::<RunEnded>),
    (EventKind::MessageAdded, shape::<MessageAdded>),
    (EventKind::AnnounceQueued, shape::<AnnounceQueued>),
    (EventKind::AnnounceDelivered, shape::<AnnounceDelivered>),
    (EventKind::AnnounceHeld, shape::<AnnounceHeld>),
    (EventKind::AnnounceDismissed, shape::<AnnounceDismissed>),
    (EventKind::AnnounceAcked, shape::<AnnounceAcked>),
    (EventKind::ToolStarted, shape::<StepMoved>),
    (EventKind::ToolCompleted, shape::<StepMoved>),
    (EventKind::ToolProgress, shape::<ToolProgress>),
    (EventKind::EnvApplied, shape::<EnvApplied>),
    (EventKind::EnvRestored, shape::<EnvNames>),
    (EventKind::EnvMissing, shape::<EnvNames>),
    (EventKind::EnvProvided, shape::<EnvNames>),
    (EventKind::SubAgentCallStart, shape::<SubAgentCallStart>),
    (EventKind::SubAgentPartial, shape::<SubAgentPartial>),
    (EventKind::SubAgentComplete, shape::<SubAgentComplete>),
    (EventKind::SubAgentError, shape::<SubAgentError>),
    (EventKind::DelegationStart, shape::<DelegationStart>),
    (EventKind::DelegationComplete, shape::<DelegationComplete>),
    (EventKind::DelegationBreaker, shape::<DelegationBreaker>),
    (EventKind::AgentsChanged, shape::<AgentsChanged>),
    (EventKind::SkillsChanged, shape::<SkillsChanged>),
    (EventKind::QuestionAsked, shape::<QuestionAsked>),
    (EventKind::QuestionAnswered, shape::<QuestionAnswered>),
    (EventKind::ApprovalRequested, shape::<ApprovalRequested>),
    (EventKind::ApprovalResolved, shape::<ApprovalResolved>),
    (EventKind::UsageAlert, shape::<UsageAlert>),
    (EventKind::AlertRaised, shape::<AlertRaised>),
    (EventKind::ProviderHealth, shape::<ProviderHealth>),
    (EventKind::GatewayStarted, shape::<GatewayStarted>),
    (EventKind::GatewayDraining, shape::<GatewayDraining>),
    (EventKind::GatewayResumed, shape::<GatewayResumed>),
];

/// Kinds that only a subscription delivers and that are not stored.
pub const UNSTORED: &[(&str, Shape)] = &[
    (events::SNAPSHOT, shape::<events::Snapshot>),
    (events::LAGGED, shape::<events::Lagged>),
    ("message.delta", shape::<events::MessageText>),
    ("message.partial", shape::<events::MessageText>),
    ("message.reset", shape::<events::MessageText>),
];

/// Shape of the envelope that carries the `data` of every event.
pub const ENVELOPE: Shape = shape::<events::Event>;

fn shape<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Warnings about a run after its end: resources leased to it could not be released properly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunWarned {
    /// Warnings for the caller, also added to the run's `warnings`.
    pub warnings: Vec<String>,
}

/// From now on, programs of the run may carry its environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnvApplied {
    /// Names of the variables, each with its origin.
    pub env: Vec<EnvName>,
}

/// Variables of a run's environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnvNames {
    /// Names of the variables.
    pub names: Vec<String>,
}

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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

/// A client decided that a run's result need not be announced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnounceDismissed {
    /// Id of the announce.
    pub announce_id: AnnounceId,
}

/// A run was accepted and waits for a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunQueued {
    /// Agent that executes the run.
    pub agent: AgentId,
    /// Label of the run.
    pub label: Option<String>,
    /// Title of the run: the start of its task on one line.
    pub title: String,
    /// Session the run works in.
    pub session_key: SessionKey,
    /// Session that requested the run.
    pub parent: Option<SessionKey>,
    /// `meta` of the request, unchanged.
    pub meta: Option<Value>,
}

/// A run changed its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunMoved {
    /// The new state.
    pub state: Word,
}

/// A run was paused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPaused {
    /// Why: `child`, `reply`, `approval`, `review`, `input`, `node` or `provider`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Word>,
    /// For `provider`: when the next request is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// For `provider`: its error message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A model provider stopped accepting requests, or accepts them again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderHealth {
    /// Name of the provider.
    pub provider: String,
    /// `paused`: it accepts no requests; `recovering` or `ok`: it accepts them again.
    pub state: Word,
    /// When it stopped accepting requests; absent if `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// No request is sent before this time; absent if requests are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Failures since the last successful request.
    pub failures: u32,
    /// Its last error message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A run has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunEnded {
    /// `ok`, `error`, `timeout`, `cancelled` or `interrupted`.
    pub state: Word,
    /// Why it did not end `ok`.
    pub error: Option<RunError>,
    /// The cancel request; null if the run was not cancelled.
    pub cancel: Option<CancelRequest>,
    /// Number of tool calls that have an outcome.
    pub tool_calls: u32,
    /// Number of model calls that have an outcome.
    pub loops: u32,
    /// Model usage of the run.
    pub usage: Usage,
    /// `meta` of the request, unchanged.
    pub meta: Option<Value>,
    /// Number of steer messages that arrived too late for any of the run's model calls.
    pub steers_dropped: u64,
}

/// The intent or outcome of a step was committed; tool steps have `toolName`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepMoved {
    /// Id of the step.
    pub step_id: StepId,
    /// Position of the step in the run, counted from 1.
    pub seq: u32,
    /// `intended`, `started`, `done`, `failed` or `uncertain`.
    pub state: Word,
    /// Name of the tool; null for a model call.
    pub tool_name: Option<String>,
    /// Id that the model gave the call.
    pub tool_call_id: Option<String>,
    /// Arguments on one line.
    pub params_summary: Option<String>,
    /// Outcome on one line.
    pub result_summary: Option<String>,
    /// Why the step failed.
    pub error: Option<String>,
    /// `subagent:<agent>`: the step belongs to a run that a plan of this run delegated to. Absent
    /// for the run's own steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// A child run that carries out a tool call began or finished one of its own steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolProgress {
    /// Id that the parent's model gave the call.
    pub tool_call_id: String,
    /// The child run.
    pub child_run_id: RunId,
    /// The step of the child run.
    pub progress: Progress,
}

/// A step of a child run that carries out a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// `tool_start`, `tool_complete`, or `thinking` (once per model call).
    pub r#type: Word,
    /// `running`, `completed` or `error`.
    pub status: Word,
    /// Id that the child's model gave its tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_tool_call_id: Option<String>,
    /// Name of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// Arguments on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params_summary: Option<String>,
    /// Outcome on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
    /// Why the step failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Another agent was called in the session of this event's run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubAgentCallStart {
    /// The called agent.
    pub agent: AgentId,
    /// Display name of that agent when the call was made.
    pub agent_name: String,
    /// Id that the model gave the call.
    pub tool_call_id: Option<String>,
    /// Child run that carries out the call.
    pub child_run_id: RunId,
    /// Message to the agent on one line.
    pub args_summary: String,
}

/// A called agent emitted part of its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubAgentPartial {
    /// The called agent.
    pub agent: AgentId,
    /// Display name of that agent when the call was made.
    pub agent_name: String,
    /// Id that the model gave the call.
    pub tool_call_id: String,
    /// Child run that carries out the call.
    pub child_run_id: RunId,
    /// Byte offset of this piece in the answer; 0 at the beginning, also when the answer restarts.
    pub offset: usize,
    /// The text of this piece.
    pub text: String,
    /// When the piece was emitted.
    pub at: Timestamp,
    /// Approximate number of output tokens so far.
    pub tokens_so_far: u64,
}

/// A called agent has answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubAgentComplete {
    /// The called agent.
    pub agent: AgentId,
    /// Display name of that agent when the call was made.
    pub agent_name: String,
    /// Id that the model gave the call.
    pub tool_call_id: String,
    /// Child run that carried out the call.
    pub child_run_id: RunId,
    /// Answer, truncated to 32 KiB.
    pub text: String,
    /// Model usage of the child run.
    pub usage: Usage,
    /// Duration from the call to the end of the child run, in milliseconds.
    pub duration_ms: u64,
}

/// A called agent has failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubAgentError {
    /// The called agent.
    pub agent: AgentId,
    /// Display name of that agent when the call was made.
    pub agent_name: String,
    /// Id that the model gave the call.
    pub tool_call_id: String,
    /// Child run that carried out the call.
    pub child_run_id: RunId,
    /// What happened.
    pub error: String,
    /// Earlier errors in the child run, latest first; at most 5.
    pub cause: Vec<String>,
    /// Model usage of the child run.
    pub usage: Usage,
    /// Duration from the call to the end of the child run, in milliseconds.
    pub duration_ms: u64,
}

/// A plan has delegated a task to another agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DelegationStart {
    /// The agent delegated to.
    pub sub_agent_id: AgentId,
    /// Display name of that agent when the call was made: its title, otherwise its id.
    pub sub_agent_name: String,
    /// Id of the `delegate` tool call.
    pub tool_call_id: Option<String>,
    /// Child run that carries out the task.
    pub child_run_id: RunId,
    /// The task, truncated to 200 characters.
    pub task: String,
}

/// A delegation of a plan has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DelegationComplete {
    /// The agent delegated to.
    pub sub_agent_id: AgentId,
    /// Display name of that agent when the call was made: its title, otherwise its id.
    pub sub_agent_name: String,
    /// Id of the `delegate` tool call.
    pub tool_call_id: String,
    /// Child run that carried out the task.
    pub child_run_id: RunId,
    /// True if the child run succeeded.
    pub success: bool,
    /// Start of the result, at most 500 characters; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_preview: Option<String>,
    /// Why there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The circuit breaker of an agent opened or closed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DelegationBreaker {
    /// The agent whose calls it guards.
    pub agent: AgentId,
    /// Display name of that agent.
    pub agent_name: String,
    /// `open`: calls are refused; `closed`: calls pass again.
    pub state: Word,
    /// When it closes; absent if it is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
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

/// A run asks the user a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuestionAsked {
    /// Id of the question.
    pub question_id: QuestionId,
    /// Text of the question.
    pub text: String,
    /// Proposed answers.
    pub choices: Vec<String>,
    /// Deadline; without an answer by then, the outcome is "no answer".
    pub expires_at: Timestamp,
    /// Session of the run.
    pub session_key: SessionKey,
    /// Agent of the run.
    pub agent: AgentId,
    /// Label of the run.
    pub label: Option<String>,
}

/// A question was answered, expired or closed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuestionAnswered {
    /// Id of the question.
    pub question_id: QuestionId,
    /// `answered`, `expired` or `closed`.
    pub state: Word,
    /// The answer; null without one.
    pub answer: Option<String>,
    /// Principal that answered; null without an answer.
    pub by: Option<String>,
}

/// A tool call waits for a user's approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequested {
    /// Id of the approval.
    pub approval_id: ApprovalId,
    /// Name of the tool.
    pub tool: String,
    /// Id that the model gave the call.
    pub tool_call_id: Option<String>,
    /// Arguments on one line; `approvals.list` has them in full.
    pub params_summary: Option<String>,
    /// The policy rule that requires approval.
    pub why: String,
    /// Deadline; without a decision by then, the call is denied.
    pub expires_at: Timestamp,
    /// Session of the run that wants to make the call.
    pub session_key: SessionKey,
    /// Agent of the run.
    pub agent: AgentId,
    /// Label of the run.
    pub label: Option<String>,
}

/// An approval was decided, expired or closed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalResolved {
    /// Id of the approval.
    pub approval_id: ApprovalId,
    /// Name of the tool.
    pub tool: String,
    /// `allowed`, `denied`, `expired` or `closed`.
    pub state: Word,
    /// Principal that decided; for a remembered decision, the principal that made it.
    pub by: Option<String>,
    /// Scope of later calls that the decision covers: `session` or `agent`; null if none.
    pub remember: Option<Word>,
}

/// The set of agents in effect has changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentsChanged {
    /// Version of the set, raised by each change.
    pub version: i64,
    /// Trigger of the change: `start`, `watch`, `manual` or `stored`.
    pub reason: Word,
    /// Names that are newly in effect.
    pub added: Vec<String>,
    /// Names whose definition has changed.
    pub changed: Vec<String>,
    /// Names that are no longer in effect.
    pub removed: Vec<String>,
}

/// The skills available in a workspace have changed; the next runs there use the new set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SkillsChanged {
    /// Absolute path of the workspace.
    pub workspace: String,
    /// Version of the skills in the workspace, raised by each change.
    pub version: i64,
    /// Trigger of the change: `start`, `watch`, `manual` or `config`.
    pub reason: Word,
    /// Number of skills that can be used now.
    pub skills: usize,
}

/// A usage threshold was exceeded; emitted once per hour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageAlert {
    /// `cost_per_hour` or `failure_rate`.
    pub threshold: Word,
    /// Measured value: millionths of the currency of the prices, or percent.
    pub value: u64,
    /// Configured threshold, in the same unit as `value`.
    pub limit: u64,
    /// Start of the hour.
    pub since: Timestamp,
    /// End of the hour.
    pub until: Timestamp,
}

/// A condition that needs an operator's attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "alert",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum AlertRaised {
    /// A row could not be decoded and was quarantined.
    RowQuarantined {
        /// Name of the row's table.
        table: Word,
        /// Why the row could not be decoded.
        reason: String,
        /// Effect on the row: `mended` (its readable part stays), `moved` (removed from its table)
        /// or `kept` (still there, unreadable).
        fate: Word,
        /// Session the row belongs to; null if unknown.
        session_id: Option<SessionId>,
        /// Run the row belongs to; null if unknown.
        run_id: Option<RunId>,
    },
    /// At a start the clock was far ahead of the stored times. Nothing expires or is removed by age
    /// until this is resolved.
    ClockAhead {
        /// Difference in milliseconds.
        ahead_ms: u64,
        /// True: the clock was certainly set ahead. False: that much time may really have passed;
        /// this is accepted once the clock has run steadily for ten minutes.
        is_certain: bool,
    },
    /// A file of the store was removed or replaced while the daemon ran. The daemon saved the
    /// store's content and exited.
    StoreMoved {
        /// Which file, and what happened to it.
        what: String,
    },
    /// The store's file was damaged; its readable rows were copied to a new store.
    StoreSalvaged {
        /// What was salvaged.
        report: Salvage,
    },
}

/// Report on the salvage of a damaged store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Salvage {
    /// When the store was salvaged.
    pub at: Timestamp,
    /// What was wrong with the file.
    pub why: String,
    /// Path of the damaged file, which was set aside.
    pub set_aside: String,
    /// Row counts by table.
    pub tables: Vec<SavedTable>,
    /// Rows that were read but could not be decoded; they are in quarantine.
    pub quarantined: u64,
}

/// Salvage result of one table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SavedTable {
    /// Name of the table.
    pub table: Word,
    /// Number of rows kept.
    pub kept: u64,
    /// Number of rows known to be lost.
    pub lost: u64,
    /// True if more rows may be lost than are counted.
    pub more: bool,
}

/// The daemon accepts no new work until it stops or resumes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayDraining {
    /// Id of the daemon's current boot.
    pub boot_id: BootId,
    /// What follows the drain: `stop`, `restart` or `resume`.
    pub then: Word,
    /// Time limit for steps in flight, in milliseconds.
    pub timeout_ms: u64,
}

/// The daemon works again after downtime or a drain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayResumed {
    /// Id of the daemon's current boot.
    pub boot_id: BootId,
    /// Reason for the interruption: `stop` or `drain`.
    pub after: Word,
    /// Length of the interruption in milliseconds.
    pub away_ms: u64,
}

/// The daemon has started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStarted {
    /// Id of the daemon's current boot.
    pub boot_id: BootId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_event_has_one_shape() {
        for kind in EventKind::ALL {
            let rows = SHAPES.iter().filter(|(of, _)| of == kind).count();
            assert_eq!(rows, 1, "{kind}: give it its row in SHAPES");
        }
        assert_eq!(SHAPES.len(), EventKind::ALL.len());
    }
}
