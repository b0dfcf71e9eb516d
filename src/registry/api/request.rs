//! Request types of the registry's calls; the answer types are in `answer`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

pub use crate::command::{Accepted, CancelTarget, Verdict};
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::policy::approval::ApprovalState;
use crate::kernel::question::QuestionState;
use crate::kernel::run::AnnouncePolicy;
use crate::kernel::run::budget::Budget;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::secret::GivenValue;
use crate::kernel::session::{Cleanup, Owner, SessionMode};
use crate::kernel::time::Timestamp;

/// The identity that a call is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The tenant.
    pub org: String,
    /// The user.
    pub user: String,
    /// The run whose program calls; `None` for a client's call.
    pub run: Option<RunId>,
    /// The caller has presented the access token. Without it a caller cannot decide for the user.
    pub with_token: bool,
}

impl Principal {
    /// The actor recorded for its calls: `run:<id>`, or `owner` for a client.
    pub fn recorded(&self) -> String {
        match self.run {
            Some(run) => format!("run:{run}"),
            None => "owner".to_owned(),
        }
    }

    /// The actor recorded in rows about runs: the run or, without a run, the user.
    pub(crate) fn by(&self) -> String {
        match self.run {
            Some(_) => self.recorded(),
            None => self.user.clone(),
        }
    }
}

/// An idempotency key with the request that it was first used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The client's key, at most 256 characters.
    pub key: String,
    /// The canonical parameters without `meta`; the store hashes them.
    pub request: String,
}

/// Parameters of `sessions.spawn`.
#[derive(Clone, Debug, PartialEq)]
pub struct SpawnRequest {
    /// The task, as the first message of the child session.
    pub task: String,
    /// Run id chosen by the client; generated if unset.
    pub run_id: Option<RunId>,
    /// The session that requests the run and gets its announce.
    pub parent: Option<SessionKey>,
    /// The agent that carries it out; the default agent if unset.
    pub agent: Option<String>,
    /// Label for display and look-up.
    pub label: Option<String>,
    /// Overrides the agent's model.
    pub model: Option<String>,
    /// Overrides the agent's thinking level.
    pub thinking: Option<Thinking>,
    /// Absolute path of the working folder of its tools.
    pub cwd: Option<String>,
    /// Time limit in milliseconds.
    pub run_timeout_ms: Option<u64>,
    /// Limits on what the run may use.
    pub budget: Option<Budget>,
    /// Environment values for the run's programs.
    pub env: BTreeMap<String, GivenValue>,
    /// How its end is announced to the requester.
    pub announce: Option<AnnouncePolicy>,
    /// How long its session accepts messages.
    pub mode: SessionMode,
    /// Whether its session is kept or deleted after the announce.
    pub cleanup: Cleanup,
    /// True to start its transcript with the parent's as it is at the spawn.
    pub fork: bool,
    /// Idempotency key; the same key returns the first answer.
    pub idempotency: Option<Idempotency>,
    /// Client metadata, returned unchanged; at most 4 KiB of JSON.
    pub meta: Option<Value>,
}

/// Parameters of `agent.run`.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnRequest {
    /// The session; created if it does not exist.
    pub session: SessionKey,
    /// The agent if the session must be created; the default agent if unset.
    pub agent: Option<String>,
    /// The message to the agent.
    pub message: String,
    /// Run id chosen by the client; generated if unset.
    pub run_id: Option<RunId>,
    /// Overrides the session's model for this turn.
    pub model: Option<String>,
    /// Overrides the session's thinking level for this turn.
    pub thinking: Option<Thinking>,
    /// Time limit in milliseconds.
    pub run_timeout_ms: Option<u64>,
    /// Limits on what the run may use.
    pub budget: Option<Budget>,
    /// Environment values for the run's programs.
    pub env: BTreeMap<String, GivenValue>,
    /// Idempotency key; the same key returns the first answer.
    pub idempotency: Option<Idempotency>,
    /// Client metadata, returned unchanged; at most 4 KiB of JSON.
    pub meta: Option<Value>,
}

/// Parameters of `sessions.send`.
#[derive(Clone, Debug, PartialEq)]
pub struct SendRequest {
    /// Key of the target session.
    pub key: Option<SessionKey>,
    /// Label of the target session.
    pub label: Option<String>,
    /// The message.
    pub message: String,
    /// The client-owned session that sends the message and gets a late reply.
    pub from: Option<SessionKey>,
    /// Maximum time to wait for the reply; zero means not to wait.
    pub window: Duration,
    /// Time limit of the turn that answers, in milliseconds.
    pub run_timeout_ms: Option<u64>,
    /// Idempotency key; the same key returns the first answer.
    pub idempotency: Option<Idempotency>,
    /// Client metadata, returned unchanged; at most 4 KiB of JSON.
    pub meta: Option<Value>,
}

/// Parameters of `questions.list`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuestionFilter {
    /// Only questions of this session.
    pub session: Option<SessionKey>,
    /// With `session`: questions of the whole tree that contains it.
    pub tree: bool,
    /// Only questions in this state.
    pub state: Option<QuestionState>,
}

/// A user's answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionAnswer {
    /// Free text.
    Text(String),
    /// One of the proposed answers.
    Choice(String),
}

/// Parameters of `approvals.list`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApprovalFilter {
    /// Only approvals of this session.
    pub session: Option<SessionKey>,
    /// With `session`: approvals of the whole tree that contains it.
    pub tree: bool,
    /// Only approvals in this state.
    pub state: Option<ApprovalState>,
    /// True to include previews of what the calls would change.
    pub previews: bool,
}

/// What `sessions.create` does if the key is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfExists {
    /// Returns the existing session if its agent and owner are the same.
    #[default]
    Get,
    /// Refuses with `conflict`.
    Conflict,
}

/// Parameters of `sessions.create`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateRequest {
    /// The agent of its turns; may be unset for a client-owned session.
    pub agent: Option<String>,
    /// The session key; generated if unset.
    pub key: Option<SessionKey>,
    /// Label for look-ups.
    pub label: Option<String>,
    /// Title for display.
    pub title: Option<String>,
    /// Thinking level of its turns.
    pub thinking: Option<Thinking>,
    /// Absolute path of the working folder of its tools.
    pub cwd: Option<String>,
    /// Whether an agent or a client answers in it.
    pub owner: Owner,
    /// What to do if the key is taken.
    pub if_exists: IfExists,
}

/// The kinds of sessions in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionKind {
    /// Root sessions.
    #[default]
    Main,
    /// Sessions with a parent.
    Child,
    /// Both.
    All,
}

/// Filter of `sessions.list`; conditions are combined with AND.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionFilter {
    /// The kind of sessions.
    pub kind: SessionKind,
    /// Only sessions spawned from this session.
    pub parent: Option<SessionKey>,
    /// Only sessions of this agent.
    pub agent: Option<String>,
    /// Only sessions with this label.
    pub label: Option<String>,
    /// Only sessions whose key, label or title contains this text.
    pub search: Option<String>,
    /// True to include archived sessions.
    pub archived: bool,
}

/// Filter of `runs.list`; conditions are combined with AND.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFilter {
    /// Only runs that work in this session.
    pub session: Option<SessionKey>,
    /// Only runs that this session requested.
    pub parent: Option<SessionKey>,
    /// Only runs in these states, as text (`queued`, `running`, `ok`, …).
    pub states: Vec<String>,
    /// Only runs of this agent.
    pub agent: Option<String>,
    /// Only runs with this label.
    pub label: Option<String>,
    /// Only runs in the tree of this root run.
    pub tree: Option<RunId>,
    /// Only runs whose announce is not delivered (or not acknowledged).
    pub undelivered: bool,
    /// Only runs paused until an operator states whether an effect happened.
    pub needs_review: bool,
    /// Only runs whose metadata has all of these fields with these values.
    pub meta: Vec<(String, MetaValue)>,
    /// True to include the total count over all pages.
    pub total: bool,
    /// Only runs accepted after this time.
    pub created_after: Option<Timestamp>,
    /// Only runs accepted before this time.
    pub created_before: Option<Timestamp>,
}

/// A value of a metadata field that runs can be filtered by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaValue {
    /// A string.
    Text(String),
    /// An integer.
    Number(i64),
    /// A boolean.
    Flag(bool),
}

/// The requested part of a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryPart {
    /// Messages before this position.
    pub before: Option<i64>,
    /// Messages after this position; takes precedence over [`HistoryPart::before`].
    pub after: Option<i64>,
    /// Maximum number of messages.
    pub limit: u32,
    /// True to include tool calls and their results.
    pub tools: bool,
}

/// Parameters of `sessions.patch`: `None` leaves a field unchanged, `Some(None)` clears it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchRequest {
    /// Label for look-ups.
    pub label: Option<Option<String>>,
    /// Title for display.
    pub title: Option<Option<String>>,
    /// The model of its turns.
    pub model: Option<Option<String>>,
    /// Thinking level of its turns.
    pub thinking: Option<Option<Thinking>>,
    /// Absolute path of the working folder of its tools.
    pub cwd: Option<Option<String>>,
    /// Fails with `conflict` unless the session has this revision.
    pub if_revision: Option<i64>,
}
