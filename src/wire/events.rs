//! `events.*` and `GET /events`: what happens, as it happens.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::decode::Params;
use super::input;
use super::shapes::{Run, Session};
use crate::kernel::ids::{MessageId, RunId, SessionKey};
use crate::kernel::time::Timestamp;

/// The most patterns of kinds of one subscription.
pub const KINDS_LIMIT: usize = 32;
/// The method name of the notifications.
pub const NOTIFICATION: &str = "events.event";
/// The kind of the first item of a subscription without a cursor.
pub const SNAPSHOT: &str = "snapshot";
/// The kind of the last item for a reader that is too slow.
pub const LAGGED: &str = "lagged";

/// `events.subscribe`. All conditions hold together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubscribeEvents {
    /// Everything after this cursor; a snapshot of what is live if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// The store that the cursor is from; another one is `cursor_unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_id: Option<String>,
    /// Only in this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// Only about this run.
    #[serde(default, deserialize_with = "input::maybe_id")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Only about this run and those under it.
    #[serde(default, deserialize_with = "input::maybe_id")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<RunId>,
    /// Only of these kinds: whole ones, or their beginnings with `*`; any if empty.
    #[serde(
        default,
        deserialize_with = "kinds",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = KINDS_LIMIT))]
    pub kinds: Vec<String>,
    /// Answers while they come, too, whatever `kinds` says.
    #[serde(default)]
    pub deltas: bool,
}
impl Params for SubscribeEvents {}

fn kinds<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let kinds = Vec::<String>::deserialize(from)?;
    if kinds.len() > KINDS_LIMIT {
        return Err(serde::de::Error::custom(format!(
            "{} patterns; the most is {KINDS_LIMIT}",
            kinds.len()
        )));
    }
    Ok(kinds)
}

/// `events.unsubscribe`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnsubscribeEvents {
    /// What `events.subscribe` answered.
    pub subscription: String,
}
impl Params for UnsubscribeEvents {
    const ALONE: Option<&'static str> = Some("subscription");
}

/// What a subscription gives. `cursor` is there for what is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event<D = Value> {
    /// Its place in the log: strictly rising, with gaps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<i64>,
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub kind: String,
    /// The tenant; missing for what concerns the daemon itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub org_id: Option<String>,
    /// In which session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// To which run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// That run's parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// One trace through parent, child and restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Details.
    pub data: D,
}

/// Details of `snapshot`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Everything up to here is in the picture; what follows comes after it.
    pub cursor: i64,
    /// The store that the cursor is from.
    pub store_id: String,
    /// The sessions of these runs, and the one that was asked for.
    pub sessions: Vec<Session>,
    /// Open runs, newest first, and the one that was asked for in any state.
    pub runs: Vec<Run>,
    /// There are more; the lists have all.
    pub more: bool,
}

/// Details of `lagged`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lagged {
    /// The `since` with which nothing is missed.
    pub resume_from: i64,
    /// The setting that bounds how far behind a reader may be.
    #[serde(default)]
    pub setting: Cow<'static, str>,
}

/// Details of `message.delta`, `message.partial` and `message.reset`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageText {
    /// Which run speaks.
    pub run_id: RunId,
    /// The id that the message will have once it is stored.
    pub message_id: MessageId,
    /// `text`; missing in a reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Of a delta: how many bytes of UTF-8 came before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// More of the message, or all of it so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}
