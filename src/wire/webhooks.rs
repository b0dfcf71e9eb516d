//! `webhooks.*`: the receivers of events, and the events that could not be delivered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input::PageSize;
use super::method::no_params;
use super::shapes::Word;
use crate::kernel::ids::RunId;
use crate::kernel::time::Timestamp;

/// Maximum number of ids in one call.
pub const IDS_LIMIT: usize = 1000;

no_params! {
    /// Parameters of `webhooks.list`.
    ListWebhooks
}

/// Result of `webhooks.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Webhooks {
    /// All webhooks, by name.
    pub webhooks: Vec<Webhook>,
}

/// A receiver of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Its name, that of its table in the settings.
    pub name: String,
    /// Address that events are sent to; absent if the table is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Kinds of events that it gets; any kind if empty.
    pub kinds: Vec<String>,
    /// Sessions whose events it gets; any session if empty.
    pub sessions: Vec<String>,
    /// `active`, `failing`, `blocked` (nothing can be sent; `failure` says why), `stopped` (it
    /// answered 410) or `removed` (from the settings).
    pub state: Word,
    /// Every event up to this cursor is finished.
    pub cursor: i64,
    /// Number of events in the log after the cursor, those for other receivers included; at most
    /// 10,000.
    pub behind: u64,
    /// When the first of them happened; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind_since: Option<Timestamp>,
    /// Number of events that were read and are not finished.
    pub waiting: u64,
    /// Number of deliveries that succeeded.
    pub delivered: u64,
    /// Number of attempts that failed.
    pub failed: u64,
    /// Number of events that were given up after their last attempt.
    pub given_up: u64,
    /// Number of events that retention removed before they were delivered.
    pub missed: u64,
    /// Number of dead letters: given up, and neither delivered since nor dropped.
    pub dead_letters: u64,
    /// When the last attempt succeeded; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Timestamp>,
    /// When the last failed attempt ended; absent if none failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Timestamp>,
    /// Why it failed, or why nothing can be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// When it was first configured; it gets later events.
    pub created_at: Timestamp,
}

/// Parameters of `webhooks.dead`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListDeadLetters {
    /// Name of the webhook.
    pub webhook: String,
    /// Page size: 1 to 500; 50 if unset.
    #[serde(default)]
    pub limit: PageSize,
    /// `nextCursor` of the previous page; the first page if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Result of `webhooks.dead`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetters {
    /// One page of dead letters, newest event first.
    pub letters: Vec<DeadLetter>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// An event that was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// Id of the dead letter: the cursor of its event.
    pub id: i64,
    /// Kind of the event.
    pub kind: String,
    /// When it happened.
    pub at: Timestamp,
    /// Session of the event; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// Run of the event; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Number of attempts.
    pub attempts: u32,
    /// Why the last one failed.
    pub failure: String,
    /// When the last one ended.
    pub died_at: Timestamp,
    /// True while it waits to be delivered again.
    pub replaying: bool,
}

/// Parameters of `webhooks.replay`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayDeadLetters {
    /// Name of the webhook.
    pub webhook: String,
    /// Ids of dead letters, at most 1000; all if unset.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "some_ids"
    )]
    #[schemars(length(min = 1, max = IDS_LIMIT))]
    pub ids: Option<Vec<i64>>,
}

/// Result of `webhooks.replay`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayedDeadLetters {
    /// Ids of the dead letters that existed and are now delivered again.
    pub replaying: Vec<i64>,
}

/// Parameters of `webhooks.drop`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DropDeadLetters {
    /// Name of the webhook.
    pub webhook: String,
    /// Ids of dead letters, at most 1000; all if unset.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "some_ids"
    )]
    #[schemars(length(min = 1, max = IDS_LIMIT))]
    pub ids: Option<Vec<i64>>,
}

/// Result of `webhooks.drop`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DroppedDeadLetters {
    /// Ids of the dead letters that existed and were deleted by this call.
    pub dropped: Vec<i64>,
}

fn some_ids<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Vec<i64>>, D::Error> {
    let ids = Option::<Vec<i64>>::deserialize(from)?;
    match ids.as_ref().map(Vec::len) {
        // An empty list that meant all would surprise.
        Some(0) => Err(serde::de::Error::custom("an id is needed; all if unset")),
        Some(count) if count > IDS_LIMIT => Err(serde::de::Error::custom(format!(
            "{count} ids; the limit per call is {IDS_LIMIT}"
        ))),
        _ => Ok(ids),
    }
}
