//! `sessions.*`: spawn runs, send messages, and read sessions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::budget::Budget;
use super::environment::Env;
use super::input::{self, PageSize, RunTimeout, WaitTimeout};
use super::schema;
use super::shapes::{Announce, Message, Session};
use crate::kernel::ids::{AnnounceId, RunId, SessionKey};
use crate::kernel::run::thinking::Thinking;
use crate::kernel::run::{AnnouncePolicy, RunError};
use crate::kernel::session::{Cleanup, Owner, SessionMode};
use crate::kernel::text::text_enum::text_enum;

text_enum! {
    /// What the child sees of its parent's conversation.
    Context {
        /// Nothing.
        Isolated = "isolated",
        /// The whole conversation as of now.
        Fork = "fork",
    }
}

/// Parameters of `sessions.spawn`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spawn {
    /// Task of the run.
    #[serde(deserialize_with = "input::text")]
    #[schemars(regex(pattern = r"\S"))]
    pub task: String,
    /// Client-chosen run id, a UUID version 7; generated if unset.
    #[serde(default, deserialize_with = "input::chosen_run")]
    #[schemars(schema_with = "schema::chosen_run")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Session that requests the run and is notified of its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionKey>,
    /// Agent that executes the run; the default agent if unset.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Label, shown to users.
    #[serde(default, deserialize_with = "input::name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Model, instead of the agent's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Thinking level, instead of the agent's level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Absolute working directory of its tools.
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Maximum running time; the default of the agent or the settings if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout: Option<RunTimeout>,
    /// Budget of the run and its descendants; only the configured budgets apply if unset.
    #[serde(default, deserialize_with = "super::budget::checked")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Environment variables for the run's programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Env>,
    /// What happens to its session afterwards; `keep` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<Cleanup>,
    /// Lifetime of its session; `run` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<SessionMode>,
    /// What it sees of the parent's conversation; `isolated` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    /// How the parent is notified; if unset, `wake` for agent-owned and `inbox` for client-owned
    /// parents, `none` without a parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announce: Option<AnnouncePolicy>,
    /// Idempotency key; a repeat with the same key returns the first answer.
    #[serde(default, deserialize_with = "input::key")]
    #[schemars(length(min = 1, max = input::KEY_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Client data, returned unchanged; at most 4 KiB of JSON.
    #[serde(default, deserialize_with = "input::meta")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

/// Result of `sessions.spawn`: the run is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Spawned {
    /// Always `accepted`.
    pub status: String,
    /// Id of the run.
    pub run_id: RunId,
    /// Key of the session the run works in.
    pub child_session_key: SessionKey,
    /// Agent that executes the run.
    pub agent: String,
    /// Model it uses, `provider/name`.
    pub model: String,
    /// Depth below the root session.
    pub depth: u32,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
}

/// Parameters of `sessions.send`. At least one of `sessionKey` and `label` is required; both must
/// name the same session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Send {
    /// Key of the receiving session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// Label of the receiving session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Text of the message.
    #[serde(deserialize_with = "input::text")]
    #[schemars(regex(pattern = r"\S"))]
    pub message: String,
    /// Sending session, which also receives a late reply; it must be client-owned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<SessionKey>,
    /// Timeout of this call for the reply; 30 s if unset, 0 returns without waiting.
    #[serde(default)]
    pub wait_timeout: WaitTimeout,
    /// Maximum running time of the turn that answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout: Option<RunTimeout>,
    /// Idempotency key; a repeat with the same key returns the first answer.
    #[serde(default, deserialize_with = "input::key")]
    #[schemars(length(min = 1, max = input::KEY_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Client data, returned unchanged; at most 4 KiB of JSON.
    #[serde(default, deserialize_with = "input::meta")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

/// Result of `sessions.send`; delivery and reply are reported separately.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sent {
    /// Run of the turn that answers; absent if the session is client-owned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Key of the receiving session.
    pub session_key: SessionKey,
    /// True if the message is in the session's transcript.
    pub delivered: bool,
    /// True if there is a reply.
    pub replied: bool,
    /// Text of the reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// `accepted`, `pending`, `delivered`, or the outcome of the turn.
    pub status: String,
    /// Why the turn did not end `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
}

text_enum! {
    /// What `sessions.create` does if the key is taken.
    IfExists {
        /// Return the existing session.
        Get = "get",
        /// Fail with `conflict`.
        Conflict = "conflict",
    }
}

/// Parameters of `sessions.create`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Create {
    /// Agent that answers in it; the default agent if unset.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Key of the session; generated if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<SessionKey>,
    /// Label for lookups.
    #[serde(default, deserialize_with = "input::name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Display title.
    #[serde(default, deserialize_with = "input::name")]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Thinking level, instead of the agent's level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Absolute working directory of its tools.
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Owner of the session; `agent` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// What to do if the key is taken; `get` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_exists: Option<IfExists>,
}

/// Result of `sessions.create`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Created {
    /// The session.
    pub session: Session,
    /// True if this call created it.
    pub created: bool,
}

/// Parameters of `sessions.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetSession {
    /// Key of the session.
    pub session_key: SessionKey,
}

text_enum! {
    /// Kind of sessions to list.
    SessionKind {
        /// Root sessions.
        Main = "main",
        /// Sessions spawned from another session.
        Child = "child",
        /// Root and child sessions.
        All = "all",
    }
}

/// Parameters of `sessions.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListSessions {
    /// Kind of sessions; `main` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<SessionKind>,
    /// Only sessions spawned from this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionKey>,
    /// Only sessions of this agent.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only sessions with this label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Only sessions with this absolute working directory; links in it are followed.
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Only sessions whose key, label or title contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// Include archived sessions.
    #[serde(default)]
    pub archived: bool,
    /// Page size: 1 to 500; 50 if unset.
    #[serde(default)]
    pub limit: PageSize,
    /// `nextCursor` of the previous page; the first page if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Result of `sessions.list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sessions {
    /// One page of sessions, newest first.
    pub sessions: Vec<Session>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Parameters of `sessions.history`. At most one of `before` and `after` may be given; without
/// either, the latest messages are returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetHistory {
    /// Key of the session.
    pub session_key: SessionKey,
    /// Only messages with a smaller `seq`; the last ones of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<i64>,
    /// Only messages with a larger `seq`; the first ones of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
    /// Include tool calls and their results; true if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// Page size: 1 to 500; 50 if unset.
    #[serde(default)]
    pub limit: PageSize,
}

/// Result of `sessions.history`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History<Entry = Message> {
    /// Messages, oldest first.
    pub messages: Vec<Entry>,
    /// True if there are more messages in the requested direction.
    pub truncated: bool,
}

/// Parameters of `sessions.inbox`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetInbox {
    /// Key of the session.
    pub session_key: SessionKey,
    /// Include acknowledged announces.
    #[serde(default)]
    pub acked: bool,
    /// Page size: 1 to 500; 50 if unset.
    #[serde(default)]
    pub limit: PageSize,
    /// `nextCursor` of the previous page; the first page if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Result of `sessions.inbox`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inbox {
    /// One page of announces, oldest first.
    pub announces: Vec<Announce>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Parameters of `sessions.ack`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ack {
    /// Session whose inbox contains the announces.
    pub session_key: SessionKey,
    /// Ids of the announces to acknowledge.
    #[serde(deserialize_with = "input::ids")]
    pub announce_ids: Vec<AnnounceId>,
}

/// Result of `sessions.ack`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Acked {
    /// Announces acknowledged by this or an earlier call.
    pub announce_ids: Vec<AnnounceId>,
}
