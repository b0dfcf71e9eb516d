//! `sessions.*`: spawn work, keep conversations, read them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::budget::Budget;
use super::decode::Params;
use super::environment::Env;
use super::input::{self, PageSize, RunTimeout, ThinkingLevel, WaitTimeout, choice};
use super::schema;
use super::shapes::{Announce, Message, Session};
use crate::kernel::ids::{AnnounceId, RunId, SessionKey};
use crate::kernel::run::RunError;

choice! {
    /// How a requester is told of the end.
    AnnouncePolicy {
        /// In its transcript, and its agent runs a turn.
        Wake = "wake",
        /// In its transcript, waiting for `sessions.ack`.
        Inbox = "inbox",
        /// In the turn that goes on there; as `wake` where none is.
        Steer = "steer",
        /// Not at all.
        None = "none",
    }
}

choice! {
    /// What becomes of the child session.
    Cleanup {
        /// It stays, and is archived after a while.
        Keep = "keep",
        /// It is deleted once all is told.
        Delete = "delete",
    }
}

choice! {
    /// How long the child session lives.
    Mode {
        /// For one task.
        Run = "run",
        /// Until it is deleted.
        Session = "session",
    }
}

choice! {
    /// What the child knows of its parent's conversation.
    Context {
        /// Nothing.
        Isolated = "isolated",
        /// All of it, as it is now.
        Fork = "fork",
    }
}

/// `sessions.spawn`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spawn {
    /// What is to be done.
    #[serde(deserialize_with = "input::text")]
    #[schemars(regex(pattern = r"\S"))]
    pub task: String,
    /// An id chosen by the client, a UUID of version 7.
    #[serde(default, deserialize_with = "input::chosen_run")]
    #[schemars(schema_with = "schema::chosen_run")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The session that asks and is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionKey>,
    /// Who does it; the default agent if unset.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// A name for people.
    #[serde(default, deserialize_with = "input::name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// In place of the agent's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much the model thinks, in place of the agent's level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingLevel>,
    /// The folder that its tools see, absolute.
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// How long it may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout: Option<RunTimeout>,
    /// What it may use.
    #[serde(default, deserialize_with = "super::budget::checked")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// What its programs have in their environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Env>,
    /// What becomes of its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<Cleanup>,
    /// How long its session lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// What it knows of the parent's conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    /// How the parent is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announce: Option<AnnouncePolicy>,
    /// For a safe repeat.
    #[serde(default, deserialize_with = "input::key")]
    #[schemars(length(min = 1, max = input::KEY_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Comes back unchanged.
    #[serde(default, deserialize_with = "input::meta")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}
impl Params for Spawn {
    const LATER: &'static [&'static str] = &["attachments"];

    fn object(&self) -> Option<String> {
        self.parent.as_ref().map(SessionKey::to_string)
    }
}

/// What `sessions.spawn` answers: the run is in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Spawned {
    /// `accepted`.
    pub status: String,
    /// The run.
    pub run_id: RunId,
    /// The session that it works in.
    pub child_session_key: SessionKey,
    /// Who does it.
    pub agent: String,
    /// With which model.
    pub model: String,
    /// Levels below a root session.
    pub depth: u32,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// `sessions.send`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Send {
    /// To the session with this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// To the session with this label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What is said.
    #[serde(deserialize_with = "input::text")]
    #[schemars(regex(pattern = r"\S"))]
    pub message: String,
    /// The session that says it and gets a late reply; a client owns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<SessionKey>,
    /// How long this call waits for the reply; 30 s if unset, 0 = not at all.
    #[serde(default)]
    pub wait_timeout: WaitTimeout,
    /// How long the turn that answers may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout: Option<RunTimeout>,
    /// For a safe repeat.
    #[serde(default, deserialize_with = "input::key")]
    #[schemars(length(min = 1, max = input::KEY_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Comes back unchanged.
    #[serde(default, deserialize_with = "input::meta")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}
impl Params for Send {}

/// What `sessions.send` answers: delivery and reply apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sent {
    /// The run of the turn that answers; missing where a client owns the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The session.
    pub session_key: SessionKey,
    /// The message stands in its transcript.
    pub delivered: bool,
    /// There is a reply.
    pub replied: bool,
    /// The reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// `accepted`, `pending`, `delivered`, or how the turn ended.
    pub status: String,
    /// Why the turn did not end well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
}

choice! {
    /// Who answers in a session.
    Owner {
        /// Its agent: messages become turns.
        Agent = "agent",
        /// A client program: nothing runs, announces wait for `sessions.ack`.
        Client = "client",
    }
}

choice! {
    /// What `sessions.create` does where the key is taken.
    IfExists {
        /// Gives the session that is there.
        Get = "get",
        /// Refuses.
        Conflict = "conflict",
    }
}

/// `sessions.create`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Create {
    /// The agent of its turns.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Its address; made up if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<SessionKey>,
    /// A name for look-ups.
    #[serde(default, deserialize_with = "input::name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// A heading for people.
    #[serde(default, deserialize_with = "input::name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// How much the model thinks, in place of the agent's level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingLevel>,
    /// The folder that its tools see, absolute.
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Who answers in it; the agent if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Where the key is taken; `get` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_exists: Option<IfExists>,
}
impl Params for Create {
    fn object(&self) -> Option<String> {
        self.key.as_ref().map(SessionKey::to_string)
    }
}

/// What `sessions.create` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Created {
    /// The session.
    pub session: Session,
    /// It was made by this call.
    pub created: bool,
}

/// `sessions.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetSession {
    /// Its address.
    pub session_key: SessionKey,
}
impl Params for GetSession {}

choice! {
    /// Which sessions a list gives.
    SessionKind {
        /// Root sessions.
        Main = "main",
        /// Sessions below another.
        Child = "child",
        /// Both.
        All = "all",
    }
}

/// `sessions.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListSessions {
    /// Which kind; `main` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<SessionKind>,
    /// Only those spawned from this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionKey>,
    /// Only those of this agent.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only those with this label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Only those whose key, label or title contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// The archived ones, too.
    #[serde(default)]
    pub archived: bool,
    /// How many at most.
    #[serde(default)]
    pub limit: PageSize,
    /// Where to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
impl Params for ListSessions {}

/// What `sessions.list` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sessions {
    /// A page of them.
    pub sessions: Vec<Session>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `sessions.history`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetHistory {
    /// Whose.
    pub session_key: SessionKey,
    /// Only messages below this seq, the last of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<i64>,
    /// Only messages above this seq, the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
    /// With tool calls and their results; true if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// How many at most.
    #[serde(default)]
    pub limit: PageSize,
}
impl Params for GetHistory {}

/// What `sessions.history` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History<Entry = Message> {
    /// Oldest first.
    pub messages: Vec<Entry>,
    /// There are more on the asked side.
    pub truncated: bool,
}

/// `sessions.inbox`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetInbox {
    /// Whose.
    pub session_key: SessionKey,
    /// The acknowledged ones, too.
    #[serde(default)]
    pub acked: bool,
    /// How many at most.
    #[serde(default)]
    pub limit: PageSize,
    /// Where to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
impl Params for GetInbox {}

/// What `sessions.inbox` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inbox {
    /// A page of them, oldest first.
    pub announces: Vec<Announce>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `sessions.ack`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ack {
    /// Whose inbox.
    pub session_key: SessionKey,
    /// Which announces.
    #[serde(deserialize_with = "input::ids")]
    pub announce_ids: Vec<AnnounceId>,
}
impl Params for Ack {
    fn object(&self) -> Option<String> {
        Some(self.session_key.to_string())
    }
}

/// What `sessions.ack` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Acked {
    /// Those acknowledged by this or an earlier call.
    pub announce_ids: Vec<AnnounceId>,
}
