//! What the doors ask of the registry, and what it answers.

use std::time::Duration;

use serde_json::Value;

use crate::kernel::approval::{Approval, ApprovalState};
use crate::kernel::delegation::ChildCall;
use crate::kernel::ids::{AgentId, AnnounceId, MessageId, RunId, SessionKey};
use crate::kernel::message::Passed;
use crate::kernel::question::{Asker, Question, QuestionState};
use crate::kernel::run::{AnnouncePolicy, Budget, Outcome, Run, RunError, Usage};
use crate::kernel::session::{Cleanup, Owner, Session, SessionMode};
use crate::kernel::step::Step;
use crate::kernel::thinking::Thinking;
use crate::kernel::time::Timestamp;
pub use crate::store::command::{Accepted, CancelTarget, Verdict};

/// On whose behalf a call is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The tenant.
    pub org: String,
    /// The user.
    pub user: String,
    /// The run whose program calls; `None`: it is no run's.
    pub run: Option<RunId>,
}

/// An idempotency key and what it was first used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The client's key, at most 256 characters.
    pub key: String,
    /// The canonical parameters without `meta`; hashed by the store.
    pub request: String,
}

/// `sessions.spawn`.
#[derive(Clone, Debug, PartialEq)]
pub struct SpawnRequest {
    /// What is to be done.
    pub task: String,
    /// An id chosen by the client.
    pub run_id: Option<RunId>,
    /// Who asks and is told.
    pub parent: Option<SessionKey>,
    /// Who does it; the default agent if unset.
    pub agent: Option<String>,
    /// A name for people.
    pub label: Option<String>,
    /// In place of the agent's model.
    pub model: Option<String>,
    /// In place of the agent's thinking level.
    pub thinking: Option<Thinking>,
    /// The folder that its tools see, absolute.
    pub cwd: Option<String>,
    /// How long it may run, milliseconds.
    pub run_timeout_ms: Option<u64>,
    /// What it may use.
    pub budget: Option<Budget>,
    /// How the requester is told.
    pub announce: Option<AnnouncePolicy>,
    /// How long its session stays open for messages.
    pub mode: SessionMode,
    /// What becomes of its session once all is told.
    pub cleanup: Cleanup,
    /// Its transcript begins with the parent's.
    pub fork: bool,
    /// For a safe repeat.
    pub idempotency: Option<Idempotency>,
    /// Comes back unchanged, at most 4 KiB of JSON.
    pub meta: Option<Value>,
}

/// `agent.run`.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnRequest {
    /// The session; made if there is none.
    pub session: SessionKey,
    /// The agent of a session that must be made first; the default agent if unset.
    pub agent: Option<String>,
    /// What is said.
    pub message: String,
    /// An id chosen by the client.
    pub run_id: Option<RunId>,
    /// In place of the session's model, for this turn.
    pub model: Option<String>,
    /// In place of the session's thinking level, for this turn.
    pub thinking: Option<Thinking>,
    /// How long it may run, milliseconds.
    pub run_timeout_ms: Option<u64>,
    /// What it may use.
    pub budget: Option<Budget>,
    /// For a safe repeat.
    pub idempotency: Option<Idempotency>,
    /// Comes back unchanged, at most 4 KiB of JSON.
    pub meta: Option<Value>,
}

/// `sessions.send`.
#[derive(Clone, Debug, PartialEq)]
pub struct SendRequest {
    /// To the session with this key.
    pub key: Option<SessionKey>,
    /// To the session with this label.
    pub label: Option<String>,
    /// What is said.
    pub message: String,
    /// The session that says it and gets a late reply; a client owns it.
    pub from: Option<SessionKey>,
    /// How long the reply is waited for; zero = not at all.
    pub window: Duration,
    /// How long the turn that answers may run, milliseconds.
    pub run_timeout_ms: Option<u64>,
    /// For a safe repeat.
    pub idempotency: Option<Idempotency>,
    /// Comes back unchanged, at most 4 KiB of JSON.
    pub meta: Option<Value>,
}

/// What `sessions.send` answers: delivery and reply apart.
#[derive(Clone, Debug, PartialEq)]
pub struct SendAnswer {
    /// The run of the turn that answers; `None` where a client owns the session.
    pub run: Option<RunId>,
    /// The session.
    pub session: SessionKey,
    /// `accepted`, `pending`, `delivered`, or how the turn ended.
    pub status: &'static str,
    /// The message stands in the session's transcript.
    pub delivered: bool,
    /// What was replied.
    pub reply: Option<String>,
    /// Why the turn did not end well.
    pub error: Option<RunError>,
}

/// `questions.list`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuestionFilter {
    /// Only those of this session.
    pub session: Option<SessionKey>,
    /// With that: those of the whole tree in which it lies.
    pub tree: bool,
    /// Only those in this state.
    pub state: Option<QuestionState>,
}

/// What a person says to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionAnswer {
    /// In their own words.
    Text(String),
    /// One of the proposed answers.
    Choice(String),
}

/// A question with where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionView {
    /// Its row.
    pub question: Question,
    /// Who asks.
    pub origin: Asker,
    /// The top of the tree, where people look.
    pub root: Option<SessionKey>,
}

/// `approvals.list`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApprovalFilter {
    /// Only those of this session.
    pub session: Option<SessionKey>,
    /// With that: those of the whole tree in which it lies.
    pub tree: bool,
    /// Only those in this state.
    pub state: Option<ApprovalState>,
}

/// An approval with where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalView {
    /// Its row.
    pub approval: Approval,
    /// Who wants to make the call.
    pub origin: Asker,
    /// The top of the tree, where people look.
    pub root: Option<SessionKey>,
}

/// What `sessions.create` does where the key is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfExists {
    /// Gives the session that is there, if agent and owner are the same.
    #[default]
    Get,
    /// Refuses.
    Conflict,
}

/// `sessions.create`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateRequest {
    /// The agent of its turns; for a client-owned session it may be unset.
    pub agent: Option<String>,
    /// Its address; made up if unset.
    pub key: Option<SessionKey>,
    /// A name for look-ups.
    pub label: Option<String>,
    /// A heading for people.
    pub title: Option<String>,
    /// How much the model of its turns thinks.
    pub thinking: Option<Thinking>,
    /// The folder that its tools see, absolute.
    pub cwd: Option<String>,
    /// Who answers in it.
    pub owner: Owner,
    /// What to do where the key is taken.
    pub if_exists: IfExists,
}

/// A session as the doors show it.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionView {
    /// Its row.
    pub session: Session,
    /// A turn is going on or waiting in it.
    pub busy: bool,
}

/// Which sessions a list gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionKind {
    /// Root sessions.
    #[default]
    Main,
    /// Sessions below another.
    Child,
    /// Both.
    All,
}

/// `sessions.list`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionFilter {
    /// Which kind.
    pub kind: SessionKind,
    /// Only those spawned from this session.
    pub parent: Option<SessionKey>,
    /// Only those of this agent.
    pub agent: Option<String>,
    /// Only those with this label.
    pub label: Option<String>,
    /// Only those whose key, label or title contains this text.
    pub search: Option<String>,
    /// The archived ones, too.
    pub archived: bool,
}

/// `runs.list`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFilter {
    /// Only those working in this session.
    pub session: Option<SessionKey>,
    /// Only those asked for by this session.
    pub parent: Option<SessionKey>,
    /// Only those in these states, as text (`queued`, `running`, `ok`, …).
    pub states: Vec<String>,
    /// Only those of this agent.
    pub agent: Option<String>,
    /// Only those with this label.
    pub label: Option<String>,
    /// Only those under this root run.
    pub tree: Option<RunId>,
    /// Only those whose announce is not delivered (or not acknowledged).
    pub undelivered: bool,
    /// Only those that hold still until a person has said whether an effect happened.
    pub needs_review: bool,
    /// Only those whose meta has all of these fields with these values.
    pub meta: Vec<(String, MetaValue)>,
    /// Only those accepted after this point.
    pub created_after: Option<Timestamp>,
    /// Only those accepted before this point.
    pub created_before: Option<Timestamp>,
}

/// A value of a field of meta by which runs can be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaValue {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// True or false.
    Flag(bool),
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where the next one begins; `None` on the last.
    pub next: Option<String>,
}

/// How far the telling of a run's end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnounceState {
    /// Nobody is told.
    None,
    /// The run is open.
    Open,
    /// It waits for the requester's turn to end.
    Pending,
    /// It is in the requester's transcript.
    Delivered,
    /// The requester has acknowledged it.
    Acked,
    /// It cannot be delivered; the result stays on the run.
    Undelivered,
    /// Somebody has decided that it need not be told.
    Dismissed,
}

impl AnnounceState {
    /// The text on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            AnnounceState::None => "none",
            AnnounceState::Open => "open",
            AnnounceState::Pending => "pending",
            AnnounceState::Delivered => "delivered",
            AnnounceState::Acked => "acked",
            AnnounceState::Undelivered => "undelivered",
            AnnounceState::Dismissed => "dismissed",
        }
    }
}

/// A run as the doors show it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunDetail {
    /// Its row.
    pub run: Run,
    /// The step that is open, or the last one: its seq and what it is (`model`, a tool name).
    pub step: Option<(u32, String)>,
    /// How far the telling of its end has come.
    pub announce: AnnounceState,
    /// Why it gets no slot although it wants one: a lane that is closed by its setting.
    pub held_up: Option<String>,
    /// What it asks people, and nobody has answered yet.
    pub questions: Vec<Question>,
    /// What it needs a person's leave for, and nobody has decided yet.
    pub approvals: Vec<Approval>,
    /// What it has written down to do, where one run is asked for.
    pub todo: Option<Value>,
    /// Its steps of which a person must say whether they happened.
    pub reviews: Vec<Step>,
    /// Why that is undelivered.
    pub held: Option<String>,
    /// Running time used up to now, milliseconds.
    pub elapsed_ms: u64,
    /// When its limit would pass if it ran on from now; for display.
    pub deadline_at: Option<Timestamp>,
}

/// One look at a run by `agent.wait`.
#[derive(Clone, Debug, PartialEq)]
pub enum Waited {
    /// It is there, ended or not.
    Run(Box<RunDetail>),
    /// No run has that id.
    NotFound(RunId),
    /// The run was there, and retention has removed it.
    Expired(RunId),
}

/// Why `agent.wait` answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// What was waited for has ended.
    Ended,
    /// The window passed.
    Window,
    /// The daemon stops.
    Draining,
}

/// What `agent.wait` answers.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitAnswer {
    /// One entry for each id, in the order in which they were given.
    pub runs: Vec<Waited>,
    /// What was waited for has ended.
    pub done: bool,
    /// Why it answers now.
    pub cause: WaitCause,
}

/// One announce of a session's inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct InboxEntry {
    /// Its id.
    pub announce: AnnounceId,
    /// The run that ended.
    pub run: RunId,
    /// The session that the run worked in.
    pub session: SessionKey,
    /// The run's name.
    pub label: Option<String>,
    /// Who carried it out.
    pub agent: AgentId,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it did not end `ok`.
    pub error: Option<String>,
    /// Its final text, cut to 100 KiB.
    pub result: String,
    /// The text was longer.
    pub truncated: bool,
    /// From accepted to ended.
    pub duration_ms: u64,
    /// Model use.
    pub usage: Usage,
    /// When it was delivered.
    pub at: Timestamp,
    /// What the spawn gave.
    pub meta: Option<Value>,
    /// When it was acknowledged.
    pub acked_at: Option<Timestamp>,
    /// Its place in the transcript.
    pub message: (MessageId, i64),
}

/// Which part of a transcript is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryPart {
    /// What stands before this place.
    pub before: Option<i64>,
    /// What stands after this place; counts before [`HistoryPart::before`].
    pub after: Option<i64>,
    /// So many messages at most.
    pub limit: u32,
    /// Also calls of tools and their results.
    pub tools: bool,
}

/// A page of a transcript.
#[derive(Clone, Debug)]
pub struct History {
    /// The messages, oldest first.
    pub messages: Vec<Passed>,
    /// The runs that carry out calls of tools in them, with the tools that those have called.
    pub delegated: Vec<(Run, Vec<ChildCall>)>,
    /// There are more on the asked side.
    pub truncated: bool,
}

/// A page of a journal: each step, and the run that carries out its call.
pub type StepPage = Page<(Step, Option<RunId>)>;

/// `gateway.status`: what is live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runs by open state: queued, running, paused, settling.
    pub queued: u64,
    /// Runs that hold a slot.
    pub running: u64,
    /// Runs that hold still.
    pub paused: u64,
    /// Runs whose turn is over.
    pub settling: u64,
    /// Announces that wait to be delivered.
    pub pending_announces: u64,
    /// Calls of tools that wait for a person's leave.
    pub approvals: u64,
    /// Questions that wait for a person's answer.
    pub questions: u64,
}

/// What a cancel has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CancelAnswer {
    /// These have ended by it.
    pub cancelled: Vec<RunId>,
    /// These ended before, or by something else meanwhile.
    pub already_ended: Vec<RunId>,
    /// These are marked to end and still have an executor.
    pub not_ended: Vec<RunId>,
}

/// `sessions.patch`: `None` = as it is, `Some(None)` = none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchRequest {
    /// A name for look-ups.
    pub label: Option<Option<String>>,
    /// A heading for people.
    pub title: Option<Option<String>>,
    /// The model of its turns.
    pub model: Option<Option<String>>,
    /// How much that model thinks.
    pub thinking: Option<Option<Thinking>>,
    /// The folder that its tools see, absolute.
    pub cwd: Option<Option<String>>,
    /// Only if its revision is this one.
    pub if_revision: Option<i64>,
}
