//! `events.*` and `GET /events`: live events, with replay from a cursor.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::input;
use super::shapes::{Run, Session};
use crate::kernel::ids::{MessageId, RunId, SessionKey};
use crate::kernel::time::Timestamp;

/// Maximum number of kind patterns in one subscription.
pub const KINDS_LIMIT: usize = 32;
/// Method name of the notifications that carry events.
pub const NOTIFICATION: &str = "events.event";
/// Kind of the first event of a subscription without a cursor.
pub const SNAPSHOT: &str = "snapshot";
/// Kind of the last event of a subscription whose reader is too slow.
pub const LAGGED: &str = "lagged";

/// Generates the JSON Schema of one shape.
pub type Shape = fn(&mut SchemaGenerator) -> Schema;

/// Kinds that only a subscription delivers and that are not stored, with the schema of their data.
pub const UNSTORED: &[(&str, Shape)] = &[
    (SNAPSHOT, schema::<Snapshot>),
    (LAGGED, schema::<Lagged>),
    ("message.delta", schema::<MessageText>),
    ("message.partial", schema::<MessageText>),
    ("message.reset", schema::<MessageText>),
];

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Parameters of `events.subscribe`. All given conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubscribeEvents {
    /// Deliver every event after this cursor; if unset, a snapshot of the live state comes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Id of the store the cursor is from; another store answers `cursor_unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_id: Option<String>,
    /// Only events of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// Only events of this run.
    #[serde(default, deserialize_with = "input::maybe_id")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Only events of this run and its descendants.
    #[serde(default, deserialize_with = "input::maybe_id")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<RunId>,
    /// Only these kinds, or kinds matching a prefix with `*` such as `run.*`; any kind if empty.
    #[serde(
        default,
        deserialize_with = "kinds",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = KINDS_LIMIT))]
    pub kinds: Vec<String>,
    /// Also deliver partial model output as it arrives, regardless of `kinds`.
    #[serde(default)]
    pub deltas: bool,
}

fn kinds<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let kinds = Vec::<String>::deserialize(from)?;
    if kinds.len() > KINDS_LIMIT {
        return Err(serde::de::Error::custom(format!(
            "{} patterns; the limit is {KINDS_LIMIT}",
            kinds.len()
        )));
    }
    Ok(kinds)
}

/// Parameters of `events.unsubscribe`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnsubscribeEvents {
    /// Subscription id that `events.subscribe` returned.
    pub subscription: String,
}

/// Envelope of an event. Only stored events have a `cursor`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event<D = Value> {
    /// Position in the event log: strictly increasing, with gaps; absent if not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<i64>,
    /// When it happened.
    pub at: Timestamp,
    /// Kind of the event; it determines the shape of `data`.
    pub kind: String,
    /// Tenant; absent for events of the daemon itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub org_id: Option<String>,
    /// Session of the event; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// Run of the event; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Parent of that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// Trace id, shared by parent and child runs and kept across restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Details; the shape depends on `kind`.
    pub data: D,
}

/// `data` of `snapshot`: the live state at the start of a subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "EventSnapshot")]
pub struct Snapshot {
    /// The snapshot includes every event up to this cursor; later events follow.
    pub cursor: i64,
    /// Id of the store the cursor is from.
    pub store_id: String,
    /// Sessions of these runs, and the session of the filter.
    pub sessions: Vec<Session>,
    /// Open runs, newest first, and the run of the filter in any state.
    pub runs: Vec<Run>,
    /// True if there are more; the `list` methods return all.
    pub more: bool,
}

/// `data` of `lagged`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lagged {
    /// Value for `since` to resume without missing an event.
    pub resume_from: i64,
    /// Name of the setting that limits how far a reader may lag.
    #[serde(default)]
    pub setting: Cow<'static, str>,
}

/// `data` of `message.delta`, `message.partial` and `message.reset`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageText {
    /// Run that produces the text.
    pub run_id: RunId,
    /// Id that the message will have once it is stored.
    pub message_id: MessageId,
    /// `text` or `thinking`; absent in a reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Of a delta: byte offset of its text in the channel (UTF-8).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The added text of a delta, or the whole text so far of a partial; absent in a reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}
