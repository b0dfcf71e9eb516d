//! What the doors ask of the registry; what it answers is in `answer`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::kernel::approval::ApprovalState;
use crate::kernel::budget::Budget;
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::question::QuestionState;
use crate::kernel::run::AnnouncePolicy;
use crate::kernel::secret::Given;
use crate::kernel::session::{Cleanup, Owner, SessionMode};
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
    /// The caller has shown the token. Without it a caller decides nothing for a person.
    pub with_token: bool,
}

impl Principal {
    /// The name under which its calls are recorded: its run's, or `owner`.
    pub fn recorded(&self) -> String {
        match self.run {
            Some(run) => format!("run:{run}"),
            None => "owner".to_owned(),
        }
    }

    /// Who has asked, for rows about runs.
    pub(super) fn by(&self) -> String {
        match self.run {
            Some(_) => self.recorded(),
            None => self.user.clone(),
        }
    }
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
    /// What its programs have in their environment.
    pub env: BTreeMap<String, Given>,
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
    /// What its programs have in their environment.
    pub env: BTreeMap<String, Given>,
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

/// `approvals.list`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApprovalFilter {
    /// Only those of this session.
    pub session: Option<SessionKey>,
    /// With that: those of the whole tree in which it lies.
    pub tree: bool,
    /// Only those in this state.
    pub state: Option<ApprovalState>,
    /// With what their calls work on.
    pub previews: bool,
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
    /// With their number on all pages.
    pub total: bool,
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
