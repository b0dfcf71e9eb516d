//! What the registry answers to what the doors ask of it.

use serde_json::Value;

use crate::contract::preview::Preview;
use crate::kernel::approval::Approval;
use crate::kernel::delegation::ChildCall;
use crate::kernel::ids::{AgentId, AnnounceId, MessageId, RunId, SessionKey};
use crate::kernel::question::{Asker, Question};
use crate::kernel::run::{Outcome, Run, RunError, Usage};
use crate::kernel::said::Passed;
use crate::kernel::session::Session;
use crate::kernel::step::Step;
use crate::kernel::stop::Stop;
use crate::kernel::time::Timestamp;
use crate::store::read::{Activity, ShownSession};

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

/// An approval with where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalView {
    /// Its row.
    pub approval: Approval,
    /// Who wants to make the call.
    pub origin: Asker,
    /// The top of the tree, where people look.
    pub root: Option<SessionKey>,
    /// The names that are set in the environment of the run's programs.
    pub env: Vec<String>,
    /// What the call works on, as it is now.
    pub preview: Preview,
}

/// A session as the doors show it.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionView {
    /// Its row.
    pub session: Session,
    /// What is under way there.
    pub activity: Activity,
    /// The cancel that is in force there until new work begins.
    pub stop: Option<Stop>,
}

impl From<ShownSession> for SessionView {
    fn from((session, activity, stop): ShownSession) -> Self {
        SessionView {
            session,
            activity,
            stop,
        }
    }
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
    /// Names of its environment that it holds still for, each with the reason.
    pub lacks: Vec<(String, String)>,
    /// The model call that waits for its provider.
    pub provider_wait: Option<Step>,
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
    /// Runs with an environment of their own that programs may still carry.
    pub environments: u64,
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
