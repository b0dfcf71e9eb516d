//! What stands in `data` of each kind of event. `rpc.discover` shows it; the store's commands
//! write it, and a test holds the events of a real daemon against these shapes.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::events;
use super::shapes::{EnvName, Word};
use crate::kernel::action::EventKind;
use crate::kernel::ids::{
    AgentId, AnnounceId, ApprovalId, BootId, MessageId, QuestionId, RunId, SessionId, SessionKey,
    StepId,
};
use crate::kernel::run::{CancelRequest, RunError, Usage};
use crate::kernel::time::Timestamp;

/// Gives the schema of one shape.
pub type Shape = fn(&mut SchemaGenerator) -> Schema;

/// The shape of `data` for every kind of event. A new kind has its row here.
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

/// The kinds that only a subscription gives and that are not stored.
pub const UNSTORED: &[(&str, Shape)] = &[
    (events::SNAPSHOT, shape::<events::Snapshot>),
    (events::LAGGED, shape::<events::Lagged>),
    ("message.delta", shape::<events::MessageText>),
    ("message.partial", shape::<events::MessageText>),
    ("message.reset", shape::<events::MessageText>),
];

/// What surrounds the data of every event.
pub const ENVELOPE: Shape = shape::<events::Event>;

fn shape<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// What a run was lent could not be taken back as it should. It comes after the run's end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunWarned {
    /// What its caller should know; it stands among the run's warnings from now on.
    pub warnings: Vec<String>,
}

/// Programs of a run may carry its environment from now on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnvApplied {
    /// The names, and who has set each.
    pub env: Vec<EnvName>,
}

/// Names of a run's environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnvNames {
    /// The names.
    pub names: Vec<String>,
}

/// A session was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionCreated {
    /// Its address.
    pub key: SessionKey,
    /// The agent of its turns.
    pub agent: AgentId,
    /// `agent` or `client`.
    pub owner: Word,
    /// The session that it was spawned from.
    pub parent: Option<SessionKey>,
}

/// A session was changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionUpdated {
    /// The names of what was changed.
    pub changed: Vec<String>,
    /// Raised by each change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Raised by each reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// It left the lists, or came back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived: Option<bool>,
}

/// A session is gone, with its transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionDeleted {
    /// Its address.
    pub key: SessionKey,
    /// The agent of its turns.
    pub agent: AgentId,
    /// The session that it was spawned from.
    pub parent: Option<SessionKey>,
}

/// Somebody has decided that a run's end need not be told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnounceDismissed {
    /// The announce.
    pub announce_id: AnnounceId,
}

/// A run was accepted and wants a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunQueued {
    /// Who carries it out.
    pub agent: AgentId,
    /// Its name.
    pub label: Option<String>,
    /// What it is about, on one line.
    pub title: String,
    /// The session it works in.
    pub session_key: SessionKey,
    /// The session that asked for it.
    pub parent: Option<SessionKey>,
    /// What the client gave to get back.
    pub meta: Option<Value>,
}

/// A run has moved on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunMoved {
    /// The state it is in now.
    pub state: Word,
}

/// A run holds still.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPaused {
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Word>,
    /// For `provider`: when it is asked again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// For `provider`: what it has said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A provider of models takes no requests, or does again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderHealth {
    /// Its name.
    pub provider: String,
    /// `paused`: it takes none; `recovering` or `ok`: it does again.
    pub state: Word,
    /// Since when it takes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Until when none is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Failures since the last request that was answered.
    pub failures: u32,
    /// What it has said.
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
    /// The cancel that was asked for.
    pub cancel: Option<CancelRequest>,
    /// Tool calls that had an outcome.
    pub tool_calls: u32,
    /// Model calls that had an outcome.
    pub loops: u32,
    /// Model use.
    pub usage: Usage,
    /// What the client gave to get back.
    pub meta: Option<Value>,
    /// Texts said to it too late for any of its model calls.
    pub steers_dropped: u64,
}

/// A step has its intent or its outcome; one of a tool has the tool's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepMoved {
    /// The step.
    pub step_id: StepId,
    /// Its place in the run.
    pub seq: u32,
    /// `intended`, `started`, `done`, `failed` or `uncertain`.
    pub state: Word,
    /// Which tool.
    pub tool_name: Option<String>,
    /// The model's name for the call.
    pub tool_call_id: Option<String>,
    /// The arguments on one line.
    pub params_summary: Option<String>,
    /// The outcome on one line.
    pub result_summary: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// `subagent:<agent>`: it is no step of this run, but of one that a plan of it has delegated
    /// to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// A run that carries out a call of a tool has begun or ended a step of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolProgress {
    /// The model's name for the call that is carried out.
    pub tool_call_id: String,
    /// The run that carries it out.
    pub child_run_id: RunId,
    /// How far that one has come.
    pub progress: Progress,
}

/// A step of a run that carries out a call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// `tool_start`, `tool_complete`, or `thinking`: once a model call.
    pub r#type: Word,
    /// `running`, `completed` or `error`.
    pub status: Word,
    /// The child's name for its call of a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_tool_call_id: Option<String>,
    /// Which tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// Its arguments on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params_summary: Option<String>,
    /// Its outcome on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An agent was called into the session of the run that this is an event of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubAgentCallStart {
    /// Which.
    pub agent: AgentId,
    /// What people called it when the call was made.
    pub agent_name: String,
    /// The model's name for the call.
    pub tool_call_id: Option<String>,
    /// The run that carries it out.
    pub child_run_id: RunId,
    /// What it is called for, on one line.
    pub args_summary: String,
}

/// A called agent says something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubAgentPartial {
    /// Which.
    pub agent: AgentId,
    /// What people called it when the call was made.
    pub agent_name: String,
    /// The model's name for the call.
    pub tool_call_id: String,
    /// The run that carries it out.
    pub child_run_id: RunId,
    /// How many bytes of this answer came before; 0 where it begins, also when it begins anew.
    pub offset: usize,
    /// The piece.
    pub text: String,
    /// When.
    pub at: Timestamp,
    /// About how many tokens it has said by now.
    pub tokens_so_far: u64,
}

/// A called agent has answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubAgentComplete {
    /// Which.
    pub agent: AgentId,
    /// What people called it when the call was made.
    pub agent_name: String,
    /// The model's name for the call.
    pub tool_call_id: String,
    /// The run that has carried it out.
    pub child_run_id: RunId,
    /// Its answer, cut to 32 KiB.
    pub text: String,
    /// Model use.
    pub usage: Usage,
    /// From the call to its end.
    pub duration_ms: u64,
}

/// A called agent has failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubAgentError {
    /// Which.
    pub agent: AgentId,
    /// What people called it when the call was made.
    pub agent_name: String,
    /// The model's name for the call.
    pub tool_call_id: String,
    /// The run that has carried it out.
    pub child_run_id: RunId,
    /// What happened.
    pub error: String,
    /// What had gone wrong before that in it, the latest first; at most 5.
    pub cause: Vec<String>,
    /// Model use.
    pub usage: Usage,
    /// From the call to its end.
    pub duration_ms: u64,
}

/// A plan has another agent do something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DelegationStart {
    /// Which.
    pub sub_agent_id: AgentId,
    /// What people called it when the call was made: its title, or else its id.
    pub sub_agent_name: String,
    /// The call of tool `delegate`.
    pub tool_call_id: Option<String>,
    /// The run that carries it out.
    pub child_run_id: RunId,
    /// What it is to do, up to 200 characters.
    pub task: String,
}

/// The agent that a plan has delegated to has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DelegationComplete {
    /// Which.
    pub sub_agent_id: AgentId,
    /// What people called it when the call was made: its title, or else its id.
    pub sub_agent_name: String,
    /// The call of tool `delegate`.
    pub tool_call_id: String,
    /// The run that has carried it out.
    pub child_run_id: RunId,
    /// It went well.
    pub success: bool,
    /// Its result, up to 500 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_preview: Option<String>,
    /// Why it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Calls of an agent are let through no more, or again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DelegationBreaker {
    /// Whose.
    pub agent: AgentId,
    /// What people call it.
    pub agent_name: String,
    /// `open` or `closed`.
    pub state: Word,
    /// Until when it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A transcript has a new entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageAdded {
    /// The entry.
    pub message_id: MessageId,
    /// Its place in the session.
    pub seq: i64,
    /// `text`, `tool_call`, `tool_result`, `announce`, `restart_notice`, `compaction`, …
    pub kind: Word,
}

/// A run's end waits to be told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnounceQueued {
    /// The announce.
    pub announce_id: AnnounceId,
    /// `wake` or `inbox`.
    pub policy: Word,
}

/// A run's end is in its requester's transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnounceDelivered {
    /// The announce.
    pub announce_id: AnnounceId,
    /// The run that ended.
    pub run_id: RunId,
    /// The place of its message in the session.
    pub seq: i64,
    /// `tool`: it is the outcome of a call of the requester's own run, and no message of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<Word>,
}

/// A run's end cannot be told; it stays on the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnounceHeld {
    /// The announce.
    pub announce_id: AnnounceId,
    /// Why: `gone`.
    pub reason: Word,
}

/// The client has taken note of an announce.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnounceAcked {
    /// The announce.
    pub announce_id: AnnounceId,
    /// The run that ended.
    pub run_id: RunId,
}

/// A run asks people something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuestionAsked {
    /// The question.
    pub question_id: QuestionId,
    /// What is asked.
    pub text: String,
    /// Answers that are proposed.
    pub choices: Vec<String>,
    /// When it runs out as "no answer".
    pub expires_at: Timestamp,
    /// The session of the run that asks.
    pub session_key: SessionKey,
    /// The agent that asks.
    pub agent: AgentId,
    /// The run's name.
    pub label: Option<String>,
}

/// A question is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuestionAnswered {
    /// The question.
    pub question_id: QuestionId,
    /// `answered`, `expired` or `closed`.
    pub state: Word,
    /// What was answered.
    pub answer: Option<String>,
    /// By whom.
    pub by: Option<String>,
}

/// A call of a tool waits for a person's leave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequested {
    /// The approval.
    pub approval_id: ApprovalId,
    /// Which tool.
    pub tool: String,
    /// The model's name for the call.
    pub tool_call_id: Option<String>,
    /// The arguments on one line; `approvals.list` has them whole.
    pub params_summary: Option<String>,
    /// Which rule asks.
    pub why: String,
    /// When it runs out as a no.
    pub expires_at: Timestamp,
    /// The session of the run that wants to make the call.
    pub session_key: SessionKey,
    /// The run's agent.
    pub agent: AgentId,
    /// The run's name.
    pub label: Option<String>,
}

/// An approval is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalResolved {
    /// The approval.
    pub approval_id: ApprovalId,
    /// Which tool.
    pub tool: String,
    /// `allowed`, `denied`, `expired` or `closed`.
    pub state: Word,
    /// Who decided; a remembered decision names who made it.
    pub by: Option<String>,
    /// For which later calls that counts: `session` or `agent`.
    pub remember: Option<Word>,
}

/// Other agents count than before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentsChanged {
    /// Raised by each change.
    pub version: i64,
    /// What brought it about: `start`, `watch`, `manual`, …
    pub reason: Word,
    /// Names that count now.
    pub added: Vec<String>,
    /// Names whose definition is another one.
    pub changed: Vec<String>,
    /// Names that count no more.
    pub removed: Vec<String>,
}

/// Other skills can be used in a folder than before; the next runs there have them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SkillsChanged {
    /// The folder.
    pub workspace: String,
    /// Raised by each change.
    pub version: i64,
    /// What brought it about: `start`, `watch`, `manual` or `config`.
    pub reason: Word,
    /// How many can be used now.
    pub skills: usize,
}

/// `usage.alert`: a threshold was passed, told once for each hour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageAlert {
    /// `cost_per_hour` or `failure_rate`.
    pub threshold: Word,
    /// What was found: millionths of the currency of the prices, or percent.
    pub value: u64,
    /// The setting, likewise.
    pub limit: u64,
    /// Where the hour begins.
    pub since: Timestamp,
    /// Where it ends.
    pub until: Timestamp,
}

/// Something that a person should look at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "alert",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum AlertRaised {
    /// A row could not be read, and was set aside.
    RowQuarantined {
        /// The table of the row.
        table: Word,
        /// What is wrong with it.
        reason: String,
        /// What became of it.
        fate: Word,
        /// The session that it belongs to.
        session_id: Option<SessionId>,
        /// The run that it belongs to.
        run_id: Option<RunId>,
    },
    /// At a start the clock was far ahead of what is stored: nothing ends or is removed by its age
    /// before that is clear.
    ClockAhead {
        /// By how much, milliseconds.
        ahead_ms: u64,
        /// It was certainly set ahead; else that much time may have passed, which is believed once
        /// the clock has gone on steadily for ten minutes.
        is_certain: bool,
    },
    /// A file of the store was removed or replaced under the daemon, which saved all that the store
    /// held and ended.
    StoreMoved {
        /// Which file, and what happened to it.
        what: String,
    },
    /// The store's file was damaged; what could be read of it was copied out.
    StoreSalvaged {
        /// What was saved of it.
        report: Salvage,
    },
}

/// What was saved of a damaged file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Salvage {
    /// When.
    pub at: Timestamp,
    /// What was wrong with it.
    pub why: String,
    /// Where it lies now.
    pub set_aside: String,
    /// Table by table.
    pub tables: Vec<SavedTable>,
    /// Rows that were read and do not fit; they lie in quarantine.
    pub quarantined: u64,
}

/// What was saved of one table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SavedTable {
    /// Its name.
    pub table: Word,
    /// Rows that were kept.
    pub kept: u64,
    /// Rows that are known to be lost.
    pub lost: u64,
    /// There may be more lost rows than are known.
    pub more: bool,
}

/// The daemon takes no work until it is stopped or resumes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayDraining {
    /// This life of it.
    pub boot_id: BootId,
    /// What follows: `stop`, `restart` or `resume`.
    pub then: Word,
    /// How long steps in flight may go on.
    pub timeout_ms: u64,
}

/// The daemon takes work again after it was away.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayResumed {
    /// This life of it.
    pub boot_id: BootId,
    /// What it was away for: `stop` or `drain`.
    pub after: Word,
    /// How long.
    pub away_ms: u64,
}

/// The daemon is up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStarted {
    /// This life of it.
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
