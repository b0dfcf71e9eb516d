//! Answer types of the registry's calls from the RPC layer.

use serde_json::Value;

use crate::contract::preview::Preview;
use crate::kernel::delegation::ChildCall;
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::policy::approval::Approval;
use crate::kernel::question::{Asker, Question};
use crate::kernel::run::Run;
use crate::kernel::run::step::Step;
use crate::kernel::run::stop::Stop;
use crate::kernel::session::Session;
use crate::kernel::session::stored_content::StoredMessage;
use crate::kernel::time::Timestamp;
use crate::store::tables::read::{Activity, ShownSession};

/// An approval with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalView {
    /// The stored approval.
    pub approval: Approval,
    /// The run and session that want to make the call.
    pub origin: Asker,
    /// The root session of the tree, where the approval is shown to the user.
    pub root: Option<SessionKey>,
    /// The model's id of the call.
    pub tool_call: Option<String>,
    /// Names of the variables set in the environment of the run's programs.
    pub env: Vec<String>,
    /// Preview of the call's effect on its file, computed now.
    pub preview: Preview,
}

/// A session as the RPC layer shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionView {
    /// The stored session.
    pub session: Session,
    /// The work under way in the session.
    pub activity: Activity,
    /// The cancel in force in the session until new work begins.
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
    /// The items, in the order of the list.
    pub items: Vec<T>,
    /// Cursor of the next page; `None` on the last page.
    pub next: Option<String>,
}

/// Progress of the announce of a run's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnounceState {
    /// The run has no requester to announce to.
    None,
    /// The run is open, so there is no announce yet.
    Open,
    /// Waits for the requester's current turn to end.
    Pending,
    /// Is in the requester's transcript.
    Delivered,
    /// The requester has acknowledged it.
    Acked,
    /// Cannot be delivered; the result stays on the run.
    Undelivered,
    /// An operator dismissed it; it will not be delivered.
    Dismissed,
}

impl AnnounceState {
    /// The word used on the wire.
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

/// A run as the RPC layer shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunDetail {
    /// The stored run.
    pub run: Run,
    /// The open step; if none, the last one: its sequence number and kind (`model` or a tool name).
    pub step: Option<(u32, String)>,
    /// Progress of the announce of its end.
    pub announce: AnnounceState,
    /// Why a queued run gets no slot: its lane is closed by a setting.
    pub queue_blocked: Option<String>,
    /// Its open questions to the user.
    pub questions: Vec<Question>,
    /// Its open approvals.
    pub approvals: Vec<Approval>,
    /// Its to-do list; only filled when a single run is requested.
    pub todo: Option<Value>,
    /// Steps that need a review: an operator must state whether they happened.
    pub reviews: Vec<Step>,
    /// Missing environment names that the run is paused for, each with the reason.
    pub missing_env: Vec<(String, String)>,
    /// The model step that waits for its provider.
    pub provider_wait: Option<Step>,
    /// Why the announce is undelivered.
    pub undelivered_reason: Option<String>,
    /// Running time used so far, in milliseconds.
    pub elapsed_ms: u64,
    /// When its time limit would pass if it kept running from now; for display only.
    pub deadline_at: Option<Timestamp>,
}

/// State of one run in an answer of `agent.wait`.
#[derive(Clone, Debug, PartialEq)]
pub enum AwaitedRun {
    /// The run exists, open or ended.
    Run(Box<RunDetail>),
    /// No run has that id.
    NotFound(RunId),
    /// The run existed and retention has removed it.
    Expired(RunId),
}

/// Why `agent.wait` returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// The awaited runs have ended.
    Ended,
    /// The caller's timeout passed.
    TimedOut,
    /// The daemon is stopping.
    Draining,
}

/// The answer of `agent.wait`.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitAnswer {
    /// One entry per requested id, in request order.
    pub runs: Vec<AwaitedRun>,
    /// True if the wait condition is met.
    pub done: bool,
    /// Why the call returned.
    pub cause: WaitCause,
}

/// A page of a transcript.
#[derive(Clone, Debug)]
pub struct TranscriptPage {
    /// The messages, oldest first.
    pub messages: Vec<StoredMessage>,
    /// The runs that carry out tool calls of these messages, each with the tool calls it made.
    pub delegated: Vec<(Run, Vec<ChildCall>)>,
    /// True if there are more messages in the requested direction.
    pub truncated: bool,
}

/// A page of a journal: each step, with the run that carries out its call.
pub type StepPage = Page<(Step, Option<RunId>)>;
