//! A run: one piece of work in a session, from "accepted" to its one terminal state.

pub mod action;
pub mod budget;
pub mod event;
pub mod limits;
pub mod machine;
pub mod options;
pub mod outside;
pub mod recover;
pub mod step;
pub mod stop;
pub mod thinking;
pub mod trace;
pub mod usage;
pub mod waiting;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::delegation::{Delegated, DelegationMode};
use super::ids::{AgentId, RunId, SessionId, SessionKey};
use super::time::Timestamp;
use crate::kernel::policy::overlay::EnvName;
use crate::kernel::run::budget::{Budget, Spent};
use crate::kernel::run::thinking::Thinking;
use crate::kernel::text::text_enum::text_enum;

text_enum! {
    /// Why an open run is paused.
    PauseReason {
        /// A synchronous delegation is open.
        Child = "child",
        /// It waits for another session's reply.
        Reply = "reply",
        /// A person must decide on a tool call.
        Approval = "approval",
        /// A person must settle an uncertain effect.
        Review = "review",
        /// A user's answer or an environment value is missing.
        Input = "input",
        /// The provider of its model accepts no requests now.
        Provider = "provider",
    }
}

impl PauseReason {
    /// True if only a person can end the pause.
    pub fn is_for_person(self) -> bool {
        matches!(
            self,
            PauseReason::Approval | PauseReason::Review | PauseReason::Input
        )
    }
}

text_enum! {
    /// How a run ended. Never merged, never changed once written.
    Outcome {
        /// It has a final text.
        Ok = "ok",
        /// It failed; the error says why.
        Error = "error",
        /// It exceeded its own time limit.
        Timeout = "timeout",
        /// It was cancelled on request.
        Cancelled = "cancelled",
        /// It could not be continued after a crash.
        Interrupted = "interrupted",
    }
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// Waits for a slot, the first time or again.
    Queued,
    /// Holds a slot, its session's turn and an executor.
    Running,
    /// Paused for a reason, without a slot.
    Paused(PauseReason),
    /// Its turn has ended, but child runs or announces are still pending.
    Settling,
    /// Ended; no further transitions.
    Ended(Outcome),
}

impl RunState {
    /// True once it has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, RunState::Ended(_))
    }

    /// The text of the state column; a pause keeps its reason in a separate column.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Queued => "queued",
            RunState::Running => "running",
            RunState::Paused(_) => "paused",
            RunState::Settling => "settling",
            RunState::Ended(outcome) => outcome.as_str(),
        }
    }

    /// Parses the two columns; `None` for an invalid pair.
    pub fn parse(state: &str, pause: Option<&str>) -> Option<Self> {
        match (state, pause) {
            ("paused", Some(reason)) => PauseReason::parse(reason).map(RunState::Paused),
            ("queued", None) => Some(RunState::Queued),
            ("running", None) => Some(RunState::Running),
            ("settling", None) => Some(RunState::Settling),
            (ended, None) => Outcome::parse(ended).map(RunState::Ended),
            _ => None,
        }
    }

    /// The reason of a pause; `None` in any other state.
    pub fn pause(self) -> Option<PauseReason> {
        match self {
            RunState::Paused(reason) => Some(reason),
            _ => None,
        }
    }
}

text_enum! {
    /// How the run was created.
    RunOrigin {
        /// `sessions.spawn`: a task in a session of its own.
        Spawn = "spawn",
        /// `agent.run`: a turn in a lasting session.
        Turn = "turn",
        /// The daemon: announces arrived in an idle session.
        Wake = "wake",
        /// `sessions.send`: a message from another session or a client.
        Send = "send",
    }
}

text_enum! {
    /// The queue that a run waits in.
    Lane {
        /// Turns of root sessions.
        Main = "main",
        /// Spawned work.
        Subagent = "subagent",
        /// Answers to other sessions.
        Nested = "nested",
    }
}

text_enum! {
    /// How to treat an effect that must not be repeated and may have happened.
    OnUncertain {
        /// The model is told that it is uncertain, and decides.
        Report = "report",
        /// The run is paused until a person decides whether it happened.
        Review = "review",
        /// It is repeated nevertheless.
        Retry = "retry",
    }
}

text_enum! {
    /// How the requester is notified of a run's result.
    AnnouncePolicy {
        /// Added to its transcript, and its agent runs a turn.
        Wake = "wake",
        /// Added to its transcript; it waits for `sessions.ack`.
        Inbox = "inbox",
        /// Inserted into its turn in progress; as `wake` if there is none.
        Steer = "steer",
        /// No notification.
        None = "none",
    }
}

impl AnnouncePolicy {
    /// True if a turn of the requester's agent must see the announce.
    pub fn wakes(self) -> bool {
        matches!(self, AnnouncePolicy::Wake | AnnouncePolicy::Steer)
    }
}

/// Why a run did not end `ok`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunError {
    /// A stable name, such as `no_answer` or `provider`.
    pub kind: String,
    /// What happened, as text for people.
    pub message: String,
}

impl RunError {
    /// An error of this kind.
    pub fn new(kind: &str, message: impl Into<String>) -> Self {
        RunError {
            kind: kind.to_owned(),
            message: message.into(),
        }
    }
}

/// A requested cancel of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequest {
    /// The requester: a principal, or `parent_ended`.
    pub by: String,
    /// When it was requested.
    pub at: Timestamp,
    /// The reason that the requester gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The cancel was requested for an ancestor and cascaded to this run, whose end therefore wakes
    /// no model.
    #[serde(default)]
    pub inherited: bool,
    /// The requester is a person, or a client program that acts for one, not an agent or the
    /// daemon.
    #[serde(default, rename = "byPerson")]
    pub by_person: bool,
}

/// Summed model usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Number of model calls.
    pub model_calls: u64,
    /// Tokens sent to the model.
    pub input_tokens: u64,
    /// Tokens received from the model.
    pub output_tokens: u64,
    /// Cost in millionths of the currency of the prices; 0 where no price is known.
    #[serde(default)]
    pub cost_micros: u64,
}

impl Usage {
    /// Adds other usage to this one, saturating.
    pub fn add(&mut self, other: Usage) {
        self.model_calls = self.model_calls.saturating_add(other.model_calls);
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
    }
}

/// The session that requested a run and receives its announce. Fixed at spawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Its id; a key may be reused, an id never.
    pub session: SessionId,
    /// Its key, for display.
    pub key: SessionKey,
    /// Its generation at spawn.
    pub generation: i64,
}

/// Versions that are pinned for a run when it is spawned, whatever changes later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pins {
    /// Hash of the agent's definition; the body is in the blob table.
    pub agent: String,
    /// Hash of the tools' schemas.
    pub tools: String,
    /// The pinned skills; `None` if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<PinnedSkills>,
}

/// The skills that are pinned for a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinnedSkills {
    /// Version of the skill snapshot of its folder.
    pub version: i64,
    /// Hash of the skills that the run may use.
    pub hash: String,
}

/// One piece of work in a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The id; it is known to the caller before the run starts.
    pub id: RunId,
    /// Tenant that owns the run.
    pub org: String,
    /// The user who owns the root run.
    pub user: String,
    /// The session it works in.
    pub session: SessionId,
    /// Key of that session.
    pub session_key: SessionKey,
    /// Generation of that session when the run was created.
    pub generation: i64,
    /// The session that receives the announce of its end, if any.
    pub requester: Option<Requester>,
    /// The run that requested it; `None` if a client or the daemon did.
    pub parent_run: Option<RunId>,
    /// The topmost run of the chain; its own id if it has no ancestor.
    pub root_run: RunId,
    /// The root session of its session's tree.
    pub root_session: SessionId,
    /// The earlier run that it retries.
    pub retry_of: Option<RunId>,
    /// The tool call that it carries out for `parent_run`, which waits for it.
    pub delegated: Option<Delegated>,
    /// How to treat its effects of which is unknown whether they have happened.
    pub on_uncertain: OnUncertain,
    /// How it was created.
    pub origin: RunOrigin,
    /// The agent that carries it out.
    pub agent: AgentId,
    /// A name given by the requester.
    pub label: Option<String>,
    /// The beginning of its task, on one line.
    pub title: String,
    /// Its model, as `provider/name`.
    pub model: String,
    /// Thinking level of its model; `None` = the model's default.
    pub thinking: Option<Thinking>,
    /// The queue it waits in.
    pub lane: Lane,
    /// Levels below a root session.
    pub depth: u32,
    /// The working directory of its tools.
    pub cwd: Option<String>,
    /// Its current state.
    pub state: RunState,
    /// The requested cancel, if any.
    pub cancel: Option<CancelRequest>,
    /// Why it did not end `ok`.
    pub error: Option<RunError>,
    /// The final text of the last turn.
    pub result: Option<String>,
    /// Limit of its running time, in milliseconds; `None` = no limit.
    pub limit_ms: Option<u64>,
    /// What it may use together with all its descendants; `None` = no limit.
    pub budget: Option<Budget>,
    /// What its subtree has used of the budget. Stored beside this row, and updated when a run of
    /// the subtree has called a model.
    pub spent: Spent,
    /// Running time used of `limit_ms`, in milliseconds, without the time since `counting_since`.
    pub used_ms: u64,
    /// When it began to use running time, by the steady clock of this process; `None` while it uses
    /// none.
    pub counting_since: Option<Timestamp>,
    /// Recoveries in the middle of a step, without a finished step since.
    pub recoveries: u32,
    /// Earliest time at which it may start again.
    pub not_before: Option<Timestamp>,
    /// How its end is announced.
    pub announce: AnnouncePolicy,
    /// Model calls that have an outcome.
    pub loops: u32,
    /// Tool calls that have an outcome.
    pub tool_calls: u32,
    /// Number of steps so far; the next one gets this number plus one.
    pub steps: u32,
    /// Its own model usage.
    pub usage: Usage,
    /// JSON from the client, returned unchanged.
    pub meta: Option<Value>,
    /// The versions that were pinned when it was spawned.
    pub pins: Pins,
    /// The names in its environment beyond what every program gets, each with its source.
    pub env: Vec<EnvName>,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
    /// Id of the trace that spans parent, child and restarts.
    pub trace_id: String,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it first got a slot.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When the run or one of its steps last changed.
    pub last_activity_at: Timestamp,
    /// Row version, raised by each write; an update names the version it read.
    pub ver: i64,
}

impl Run {
    /// A run of `agent` that is queued in this session, as a root run without a task, limits or a
    /// requester.
    pub fn queued(
        id: RunId,
        org: &str,
        (session, session_key): (SessionId, SessionKey),
        agent: AgentId,
        origin: RunOrigin,
        now: Timestamp,
    ) -> Self {
        Run {
            id,
            org: org.to_owned(),
            user: String::new(),
            session,
            session_key,
            generation: 1,
            requester: None,
            parent_run: None,
            root_run: id,
            root_session: session,
            retry_of: None,
            delegated: None,
            on_uncertain: OnUncertain::Report,
            origin,
            agent,
            label: None,
            title: String::new(),
            model: String::new(),
            thinking: None,
            lane: Lane::Main,
            depth: 0,
            cwd: None,
            state: RunState::Queued,
            cancel: None,
            error: None,
            result: None,
            limit_ms: None,
            budget: None,
            spent: Spent::default(),
            used_ms: 0,
            counting_since: None,
            recoveries: 0,
            not_before: None,
            announce: AnnouncePolicy::None,
            loops: 0,
            tool_calls: 0,
            steps: 0,
            usage: Usage::default(),
            meta: None,
            pins: Pins::default(),
            env: Vec::new(),
            warnings: Vec::new(),
            trace_id: String::new(),
            created_at: now,
            started_at: None,
            ended_at: None,
            last_activity_at: now,
            ver: 1,
        }
    }

    /// True if its end must be announced to its requester.
    pub fn owes_announce(&self) -> bool {
        self.requester.is_some() && self.announce != AnnouncePolicy::None
    }

    /// The ancestor whose budget is charged for it: its parent run, or without one its root run.
    /// `None` for a root run.
    pub fn payer(&self) -> Option<RunId> {
        let root = Some(self.root_run).filter(|root| *root != self.id);
        self.parent_run.or(root)
    }

    /// True if it works in its caller's session and turn.
    pub fn is_called(&self) -> bool {
        self.delegated
            .as_ref()
            .is_some_and(|of| of.mode == DelegationMode::Called)
    }

    /// True if a requester or caller waits for its result, so that all its children must have ended
    /// before it ends.
    pub fn is_awaited(&self) -> bool {
        self.owes_announce() || self.delegated.is_some()
    }

    /// The running time used up to the steady reading `steady`, in milliseconds.
    pub fn used_at(&self, steady: Timestamp) -> u64 {
        self.used_ms + self.counting_since.map_or(0, |since| steady.since(since))
    }

    /// The remaining running time at the steady reading `steady`, in milliseconds; `None` = no
    /// limit.
    pub fn remaining_at(&self, steady: Timestamp) -> Option<u64> {
        self.limit_ms
            .map(|limit| limit.saturating_sub(self.used_at(steady)))
    }
}
