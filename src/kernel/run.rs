//! A run: one piece of work in a session, from "accepted" to its one terminal state.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::budget::{Budget, Spent};
use super::delegation::{Delegated, Face};
use super::ids::{AgentId, RunId, SessionId, SessionKey};
use super::overlay::EnvName;
use super::text_enum::text_enum;
use super::thinking::Thinking;
use super::time::Timestamp;

text_enum! {
    /// Why a run holds still although it has not ended.
    PauseReason {
        /// A synchronous delegation is open.
        Child = "child",
        /// It waits for another session's reply.
        Reply = "reply",
        /// A person must allow a tool call.
        Approval = "approval",
        /// A person must settle an uncertain effect.
        Review = "review",
        /// A value is missing.
        Input = "input",
        /// A paired machine is away.
        Node = "node",
        /// The provider of its model takes no requests now.
        Provider = "provider",
    }
}

impl PauseReason {
    /// Does only a person end it?
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
        /// Its own limit passed.
        Timeout = "timeout",
        /// Somebody asked for it.
        Cancelled = "cancelled",
        /// It could not be carried on after a crash.
        Interrupted = "interrupted",
    }
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// Wants a slot, the first time or again.
    Queued,
    /// Holds a slot, its session's turn and an executor.
    Running,
    /// Holds still for a reason, without a slot.
    Paused(PauseReason),
    /// Its turn is over, but what it asked others for is not.
    Settling,
    /// Ended, for ever.
    Ended(Outcome),
}

impl RunState {
    /// Has it ended?
    pub fn is_terminal(self) -> bool {
        matches!(self, RunState::Ended(_))
    }

    /// The text of the state column: a pause has its reason in a column of its own.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Queued => "queued",
            RunState::Running => "running",
            RunState::Paused(_) => "paused",
            RunState::Settling => "settling",
            RunState::Ended(outcome) => outcome.as_str(),
        }
    }

    /// Reads the two columns; `None` for a pair that no state has.
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

    /// The reason of a pause.
    pub fn pause(self) -> Option<PauseReason> {
        match self {
            RunState::Paused(reason) => Some(reason),
            _ => None,
        }
    }
}

text_enum! {
    /// What made the run.
    RunOrigin {
        /// `sessions.spawn`: a task in a session of its own.
        Spawn = "spawn",
        /// `agent.run`: a turn in a session that stays.
        Turn = "turn",
        /// The daemon: announces arrived in an idle session.
        Wake = "wake",
        /// `sessions.send`: another session (or a client) has said something.
        Send = "send",
    }
}

text_enum! {
    /// Which queue a run waits in.
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
    /// What becomes of an effect that must not be repeated and may have happened.
    OnUncertain {
        /// The model is told exactly that, and decides.
        Report = "report",
        /// The run holds still until a person has said whether it happened.
        Review = "review",
        /// It is repeated all the same.
        Retry = "retry",
    }
}

text_enum! {
    /// How the requester is told of the end.
    AnnouncePolicy {
        /// In its transcript, and its agent runs a turn.
        Wake = "wake",
        /// In its transcript, waiting for `sessions.ack`.
        Inbox = "inbox",
        /// In the turn that goes on there, before its next model call; as `wake` where none is.
        Steer = "steer",
        /// Not at all; the result is there for wait and `runs.get`.
        None = "none",
    }
}

impl AnnouncePolicy {
    /// Must a turn of the requester's agent see the announce?
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
    /// What happened, for people.
    pub message: String,
}

impl RunError {
    /// An error of that kind.
    pub fn new(kind: &str, message: impl Into<String>) -> Self {
        RunError {
            kind: kind.to_owned(),
            message: message.into(),
        }
    }
}

/// Who asked for a cancel, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequest {
    /// A principal, or `parent_ended`.
    pub by: String,
    /// When it was asked.
    pub at: Timestamp,
    /// Why, in the words of whoever asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// It was asked for something above this run, which falls with it: its end wakes nobody.
    #[serde(default)]
    pub inherited: bool,
    /// A person asked, or a client program that acts for one; not an agent or the daemon.
    #[serde(default, rename = "byPerson")]
    pub by_person: bool,
}

/// Model use, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Calls of a model.
    pub model_calls: u64,
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// What that cost, in millionths of the currency in which the prices are; nothing where no
    /// price is known.
    #[serde(default)]
    pub cost_micros: u64,
}

impl Usage {
    /// Adds another use to this one.
    pub fn add(&mut self, other: Usage) {
        self.model_calls = self.model_calls.saturating_add(other.model_calls);
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
    }
}

/// The session that asked for a run and is told of its end. Fixed at spawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Its id; a key may be given anew, an id never.
    pub session: SessionId,
    /// Its key, to show.
    pub key: SessionKey,
    /// Its generation at spawn.
    pub generation: i64,
}

/// What a run keeps from the moment of its spawn, whatever changes later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pins {
    /// Hash of the agent's definition; the body is in the blob table.
    pub agent: String,
    /// Hash of the tools' schemas.
    pub tools: String,
    /// Its skills; `None`: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<PinnedSkills>,
}

/// The skills that a run keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinnedSkills {
    /// The version that the skills of its folder had.
    pub version: i64,
    /// Hash of those that it may use.
    pub hash: String,
}

/// One piece of work in a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// The tenant.
    pub org: String,
    /// The user whom the root run belongs to.
    pub user: String,
    /// The session it works in.
    pub session: SessionId,
    /// That session's key.
    pub session_key: SessionKey,
    /// That session's generation when the run was made.
    pub generation: i64,
    /// Who is told of the end.
    pub requester: Option<Requester>,
    /// The run that asked for it, if a run did.
    pub parent_run: Option<RunId>,
    /// The topmost run of the chain; itself when nobody's child.
    pub root_run: RunId,
    /// The topmost session of its session's tree.
    pub root_session: SessionId,
    /// The run that it does again.
    pub retry_of: Option<RunId>,
    /// The call of a tool that it carries out for `parent_run`, which waits for it.
    pub delegated: Option<Delegated>,
    /// What becomes of its effects that may have happened when the daemon was killed.
    pub on_uncertain: OnUncertain,
    /// What made it.
    pub origin: RunOrigin,
    /// Who carries it out.
    pub agent: AgentId,
    /// A name given by the requester.
    pub label: Option<String>,
    /// What it is about: the start of its task, on one line.
    pub title: String,
    /// `provider/name`.
    pub model: String,
    /// How much its model thinks; `None` = the model's own habit.
    pub thinking: Option<Thinking>,
    /// Its queue.
    pub lane: Lane,
    /// Levels below a root session.
    pub depth: u32,
    /// The folder that its tools see.
    pub cwd: Option<String>,
    /// Where it stands.
    pub state: RunState,
    /// A cancel that was asked for.
    pub cancel: Option<CancelRequest>,
    /// Why it did not end `ok`.
    pub error: Option<RunError>,
    /// The last turn's final text.
    pub result: Option<String>,
    /// How long it may run; `None` = no limit.
    pub limit_ms: Option<u64>,
    /// What it may use, with all runs below it; `None` = no limit.
    pub budget: Option<Budget>,
    /// What is used of that. Written beside this row, when one of them has asked a model.
    pub spent: Spent,
    /// How much of that is used, without the time since `counting_since`.
    pub used_ms: u64,
    /// Since when it has been using its time: a steady reading of this life of the daemon.
    pub counting_since: Option<Timestamp>,
    /// Restarts that met it in the middle of a step, without a finished step since.
    pub recoveries: u32,
    /// Not before this point may it start again.
    pub not_before: Option<Timestamp>,
    /// How its requester is told.
    pub announce: AnnouncePolicy,
    /// Model calls that have an outcome.
    pub loops: u32,
    /// Tool calls that have an outcome.
    pub tool_calls: u32,
    /// Steps so far; the next one gets this number plus one.
    pub steps: u32,
    /// Model use.
    pub usage: Usage,
    /// What the client wants back unchanged.
    pub meta: Option<Value>,
    /// What it keeps.
    pub pins: Pins,
    /// What it has in its environment beside what every program gets: the names, and who has
    /// set each.
    pub env: Vec<EnvName>,
    /// What the caller should know.
    pub warnings: Vec<String>,
    /// One trace through parent, child and restarts.
    pub trace_id: String,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it first got a slot.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The last change of the run or of one of its steps.
    pub last_activity_at: Timestamp,
    /// Raised by each write; an update names the one it read.
    pub ver: i64,
}

impl Run {
    /// Does somebody wait to be told of the end?
    pub fn owes_announce(&self) -> bool {
        self.requester.is_some() && self.announce != AnnouncePolicy::None
    }

    /// The run above it that pays for it: the one that asked for it; for one that nobody asked
    /// for, the root of what it is about.
    pub fn payer(&self) -> Option<RunId> {
        let root = Some(self.root_run).filter(|root| *root != self.id);
        self.parent_run.or(root)
    }

    /// Does it work in its caller's session, in its caller's turn?
    pub fn is_called(&self) -> bool {
        self.delegated
            .as_ref()
            .is_some_and(|of| of.face == Face::Called)
    }

    /// Does somebody get its result, so that it must be whole before it ends?
    pub fn is_awaited(&self) -> bool {
        self.owes_announce() || self.delegated.is_some()
    }

    /// The running time used up to the steady reading `steady`, milliseconds.
    pub fn used_at(&self, steady: Timestamp) -> u64 {
        self.used_ms + self.counting_since.map_or(0, |since| steady.since(since))
    }

    /// What is left of the limit at the steady reading `steady`, milliseconds; `None` = no limit.
    pub fn left_at(&self, steady: Timestamp) -> Option<u64> {
        self.limit_ms
            .map(|limit| limit.saturating_sub(self.used_at(steady)))
    }
}
