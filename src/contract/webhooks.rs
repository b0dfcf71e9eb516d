//! Webhooks between the part that delivers them, the registry that stores their progress, and the
//! gateway that shows them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::kernel::text::text_enum::text_enum;
use crate::kernel::time::Timestamp;
use crate::kernel::webhook::{DeadLetter, OpenEvents, Selection, Webhook};

/// A webhook of the settings, as far as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookTable {
    /// Its name.
    pub name: String,
    /// Which events it delivers.
    pub selection: Selection,
    /// A keyed digest of its table.
    pub digest: String,
}

/// Progress of a webhook. Storing it again changes nothing more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebhookRecord {
    /// Its name.
    pub name: String,
    /// The log was read up to here.
    pub read_to: i64,
    /// The selected events up to there that are not finished.
    pub open: OpenEvents,
    /// Number of deliveries that succeeded, since it was first configured.
    pub delivered: u64,
    /// Number of attempts that failed, since then.
    pub failed: u64,
    /// When the last attempt succeeded.
    pub delivered_at: Option<Timestamp>,
    /// When the last failed attempt ended, and why it failed.
    pub failure: Option<(Timestamp, String)>,
    /// The receiver answered that it is gone for good.
    pub stopped: bool,
    /// Open events that are in the log no more.
    pub lost: Vec<i64>,
    /// Events that were given up. They are not in `open`.
    pub dead: Vec<DeadLetter>,
    /// Dead letters that were delivered.
    pub replayed: Vec<i64>,
    /// Dead letters that were tried again and failed.
    pub refused: Vec<RefusedLetter>,
}

/// A dead letter that was tried again and failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedLetter {
    /// The event's cursor.
    pub cursor: i64,
    /// The request that the attempt was for. A later one is not answered by it.
    pub request: Option<i64>,
    /// Number of attempts, this one included.
    pub attempts: u32,
    /// Why it failed.
    pub failure: String,
}

/// Which dead letters of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterChoice {
    /// All of them.
    All,
    /// Those of the events at these cursors.
    These(Vec<i64>),
}

/// A stored webhook with what is read beside its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredWebhook {
    /// Its row.
    pub webhook: Webhook,
    /// Number of dead letters.
    pub dead_letters: u64,
    /// Number of events in the log after its cursor, whichever it selects; at most
    /// [`BEHIND_LIMIT`].
    pub behind: u64,
    /// When the first of them happened; `None` if there is none.
    pub behind_since: Option<Timestamp>,
}

/// Maximum of [`StoredWebhook::behind`].
pub const BEHIND_LIMIT: u32 = 10_000;

text_enum! {
    /// The state of a webhook.
    WebhookState {
        /// The last attempt succeeded, or none was needed yet.
        Active = "active",
        /// The last attempts failed; they are repeated.
        Failing = "failing",
        /// Nothing can be sent as its table is; `failure` says why.
        Blocked = "blocked",
        /// Its receiver answered 410. Nothing is sent until its table changes.
        Stopped = "stopped",
        /// Its table was removed from the settings. Its place is kept for a week.
        Removed = "removed",
    }
}

/// A webhook at work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveWebhook {
    /// Its receiver.
    pub url: String,
    /// Its state.
    pub state: WebhookState,
    /// Number of events that were read and are not finished.
    pub waiting: u64,
    /// Why nothing can be sent, of a blocked one.
    pub blocked: Option<String>,
}

/// The webhooks at work, by name. The delivering part writes it, the gateway reads it.
#[derive(Clone, Debug, Default)]
pub struct WebhookBoard(Arc<Mutex<BTreeMap<String, LiveWebhook>>>);

impl WebhookBoard {
    /// The webhook with that name.
    pub fn get(&self, name: &str) -> Option<LiveWebhook> {
        self.with(|board| board.get(name).cloned())
    }

    /// Once this returns, the webhook is shown like this.
    pub fn show(&self, name: &str, live: LiveWebhook) {
        self.with(|board| match board.get_mut(name) {
            Some(known) => *known = live,
            None => drop(board.insert(name.to_owned(), live)),
        });
    }

    /// Once this returns, the webhook is not at work.
    pub fn remove(&self, name: &str) {
        self.with(|board| board.remove(name));
    }

    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<String, LiveWebhook>) -> T) -> T {
        // Each change is one insertion or removal, so a poisoned lock is safe to use.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
