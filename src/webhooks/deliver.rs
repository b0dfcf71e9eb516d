//! The loop of one webhook: it reads events, has attempts made, and stores its progress in batches. What
//! is not stored yet when the process is killed is sent again, with the same ids.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::WebhookParts;
use super::lanes::{Lanes, Message};
use super::read::{self, Page};
use super::send::{self, AT_ONCE, Answer, Sender};
use crate::config::WebhookTable;
use crate::contract::webhooks::{LiveWebhook, RefusedLetter, WebhookRecord, WebhookState};
use crate::doors::signature::SigningSecret;
use crate::failpoint::reach;
use crate::kernel::fault::Fault;
use crate::kernel::text;
use crate::kernel::time::Timestamp;
use crate::kernel::webhook::{DeadLetter, Selection, Tries, Webhook, wait_after};
use crate::telemetry::metrics::metrics;

/// The log is not read further while this many events are unfinished.
const WINDOW: usize = 1000;
/// Progress is stored this long after its first change.
const STORE_AFTER: Duration = Duration::from_millis(50);
/// The same, if only events were read that it does not select.
const STORE_PLACE_AFTER: Duration = Duration::from_secs(1);
/// Progress is stored again this long after that failed.
const STORE_AGAIN: Duration = Duration::from_secs(1);
/// After this many failures in a row one attempt is made at a time, until one succeeds.
const SLOW_AFTER: u32 = 8;
/// Secrets are read again after this long.
const KEYS_LAST: Duration = Duration::from_secs(5);
/// Number of dead letters that are read at a time.
const LETTERS: u32 = 100;
/// Time limit for attempts under way when the webhook ends.
const LAST_ATTEMPTS: Duration = Duration::from_secs(1);
/// Maximum number of characters of a stored failure.
const FAILURE: usize = 500;

/// What an attempt was for.
enum Subject {
    Event(Arc<Message>, Tries),
    /// A dead letter that is delivered again.
    Letter(Box<DeadLetter>),
}

type Attempt = BoxFuture<'static, (Subject, Answer)>;

/// Progress that is being stored.
struct Saving {
    done: BoxFuture<'static, Result<bool, Fault>>,
    /// The number of entries in each list of the record.
    counts: [usize; 4],
    /// Whether the record has the stop.
    stopped: bool,
}

/// The secrets, or why they cannot be used.
struct Keys {
    read: Result<Arc<[SigningSecret]>, String>,
    /// Until then, on the monotonic clock.
    until: Duration,
}

/// One webhook at work.
pub(super) struct Delivery {
    parts: WebhookParts,
    table: WebhookTable,
    selection: Selection,
    sender: Result<Arc<Sender>, String>,
    keys: Option<Keys>,
    lanes: Lanes,
    /// What the next record has.
    record: WebhookRecord,
    /// When it is to be stored, on the monotonic clock; `None`: nothing has changed.
    store_at: Option<Duration>,
    failures_in_row: u32,
    /// The receiver asked for no attempts before.
    hold: Option<Tries>,
    is_stopped: bool,
    /// Whether the stop is stored: until then a kill would undo it, and it is not shown.
    is_stop_stored: bool,
    /// Nothing more may be sent before an event is due again.
    waits_for_due: bool,
    /// Nothing can be sent before the secrets can be read.
    waits_for_keys: bool,
    /// Dead letters to deliver again.
    letters: VecDeque<DeadLetter>,
    /// Events of dead letters that were read, until what became of them is stored.
    known_letters: BTreeSet<i64>,
    letter_in_flight: bool,
    has_more_letters: bool,
}

impl Delivery {
    /// A webhook that continues from its row.
    pub(super) async fn new(
        parts: WebhookParts,
        table: WebhookTable,
        row: Webhook,
    ) -> Result<Delivery, Fault> {
        let cursors: Vec<i64> = row.open.0.keys().copied().collect();
        let found = parts.registry.log_at(cursors).await?;
        let (mut lanes, now) = (Lanes::default(), parts.clock.now());
        let mut lost: BTreeSet<i64> = row.open.0.keys().copied().collect();
        for event in &found {
            lost.remove(&event.cursor);
            let tries = row.open.0.get(&event.cursor).copied().unwrap_or_default();
            let message = read::message(parts.registry.store_id(), event);
            lanes.add(Arc::new(message), tries, now);
        }
        let store_at = (!lost.is_empty()).then(|| parts.clock.monotonic());
        Ok(Delivery {
            sender: Sender::new(&table).map(Arc::new),
            keys: None,
            lanes,
            record: WebhookRecord {
                name: row.name,
                read_to: row.read_to,
                delivered: row.delivered,
                failed: row.failed,
                delivered_at: row.delivered_at,
                stopped: row.stopped_at.is_some(),
                lost: lost.into_iter().collect(),
                ..WebhookRecord::default()
            },
            store_at,
            failures_in_row: 0,
            hold: None,
            is_stopped: row.stopped_at.is_some(),
            is_stop_stored: row.stopped_at.is_some(),
            waits_for_due: false,
            waits_for_keys: false,
            letters: VecDeque::new(),
            known_letters: BTreeSet::new(),
            letter_in_flight: false,
            has_more_letters: true,
            selection: row.selection,
            parts,
            table,
        })
    }

    /// Delivers until `stop` is cancelled, or until the row is gone. Once this returns, its progress
    /// is stored.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let (pages, mut received) = mpsc::channel(1);
        let reading = AbortOnDropHandle::new(tokio::spawn(read::follow(
            self.parts.registry.clone(),
            self.selection.clone(),
            self.record.read_to,
            pages,
        )));
        let mut replays = self.parts.registry.replays();
        let mut attempts: FuturesUnordered<Attempt> = FuturesUnordered::new();
        let mut saving: Option<Saving> = None;
        loop {
            reach("webhook.turn");
            self.read_letters().await;
            self.begin(&mut attempts);
            self.show();
            if saving.is_none() && self.store_at.is_some_and(|at| at <= self.monotonic()) {
                saving = Some(self.save());
            }
            let wake = self.wake(saving.is_some());
            tokio::select! {
                () = stop.cancelled() => break,
                Some((subject, answer)) = attempts.next(), if !attempts.is_empty() => {
                    self.ended(subject, answer);
                    while let Some(Some((subject, answer))) = attempts.next().now_or_never() {
                        self.ended(subject, answer);
                    }
                }
                page = received.recv(), if self.lanes.len() < WINDOW => match page {
                    Some(page) => self.add(page),
                    // The reader panicked: the webhook is started again.
                    None => break,
                },
                Ok(()) = replays.changed() => {
                    // Those that were not sent may have been dropped: they are read again.
                    for letter in self.letters.drain(..) {
                        self.known_letters.remove(&letter.cursor);
                    }
                    self.has_more_letters = true;
                }
                stored = stored(&mut saving) => if !self.saved(&mut saving, stored) {
                    break;
                },
                () = tokio::time::sleep(wake) => {}
            }
        }
        drop((reading, received));
        let last = async {
            while let Some((subject, answer)) = attempts.next().await {
                self.ended(subject, answer);
            }
        };
        // What takes longer is sent again at the next start.
        let _ = tokio::time::timeout(LAST_ATTEMPTS, last).await;
        if saving.is_some() {
            let stored = stored(&mut saving).await;
            self.saved(&mut saving, stored);
        }
        if self.store_at.is_some() {
            let mut last = Some(self.save());
            let stored = stored(&mut last).await;
            self.saved(&mut last, stored);
        }
    }

    fn monotonic(&self) -> Duration {
        self.parts.clock.monotonic()
    }

    /// Begins the attempts that may be made now.
    fn begin(&mut self, attempts: &mut FuturesUnordered<Attempt>) {
        let now = self.parts.clock.now();
        self.waits_for_due = false;
        self.waits_for_keys = false;
        if self.is_stopped || self.hold.is_some_and(|hold| !hold.are_due(now)) {
            return;
        }
        if self.lanes.len() == 0 && self.letters.is_empty() {
            return;
        }
        let keys = self.keys();
        self.waits_for_keys = keys.is_err();
        let (Ok(sender), Ok(keys)) = (&self.sender, keys) else {
            return;
        };
        let most = if self.failures_in_row < SLOW_AFTER {
            AT_ONCE
        } else {
            1
        };
        if !self.letter_in_flight
            && attempts.len() < most
            && let Some(letter) = self.letters.pop_front()
        {
            self.letter_in_flight = true;
            let id = read::id(self.parts.registry.store_id(), letter.cursor, letter.at);
            let (sender, keys) = (Arc::clone(sender), Arc::clone(&keys));
            attempts.push(Box::pin(async move {
                let body = letter.body.clone();
                let answer = sender.attempt(&keys, &id, body, now).await;
                (Subject::Letter(Box::new(letter)), answer)
            }));
        }
        while attempts.len() < most {
            let Some((message, tries)) = self.lanes.take(now) else {
                self.waits_for_due = true;
                break;
            };
            let (sender, keys) = (Arc::clone(sender), Arc::clone(&keys));
            attempts.push(Box::pin(async move {
                let body = message.body.clone();
                let answer = sender.attempt(&keys, &message.id, body, now).await;
                (Subject::Event(message, tries), answer)
            }));
        }
    }

    /// The secrets, as they were a few seconds ago at most.
    fn keys(&mut self) -> Result<Arc<[SigningSecret]>, String> {
        let now = self.monotonic();
        if let Some(keys) = self.keys.as_ref().filter(|keys| keys.until > now) {
            return keys.read.clone();
        }
        let keys = Keys {
            read: send::keys(&self.table).map(Arc::from),
            until: now + KEYS_LAST,
        };
        let read = keys.read.clone();
        self.keys = Some(keys);
        read
    }

    /// Why nothing can be sent; `None` if something can.
    fn blocked(&self) -> Option<&str> {
        let sender = self.sender.as_ref().err();
        let keys = || self.keys.as_ref()?.read.as_ref().err();
        sender.or_else(keys).map(String::as_str)
    }

    /// Adds a page of the log.
    fn add(&mut self, page: Page) {
        let now = self.parts.clock.now();
        let soon = match page.messages.is_empty() {
            true => STORE_PLACE_AFTER,
            false => STORE_AFTER,
        };
        for message in page.messages {
            self.lanes.add(message, Tries::default(), now);
        }
        self.record.read_to = page.read_to;
        self.store_within(soon);
    }

    /// Reads dead letters that are to be delivered again, if there may be some.
    async fn read_letters(&mut self) {
        if !self.has_more_letters || !self.letters.is_empty() || self.letter_in_flight {
            return;
        }
        let known = u32::try_from(self.known_letters.len()).unwrap_or(u32::MAX);
        let limit = LETTERS.saturating_add(known);
        let registry = &self.parts.registry;
        let found = registry.queued_letters(&self.record.name, 0, limit).await;
        match found {
            Ok(found) => {
                self.has_more_letters = found.len() >= limit as usize;
                for letter in found {
                    if self.known_letters.insert(letter.cursor) {
                        self.letters.push_back(letter);
                    }
                }
            }
            Err(fault) => {
                // The next request to deliver some again reads them, and so does the next start.
                self.has_more_letters = false;
                let name = &self.record.name;
                tracing::warn!(webhook = name, %fault, "dead letters could not be read");
            }
        }
    }

    /// Notes how an attempt ended.
    fn ended(&mut self, subject: Subject, answer: Answer) {
        let now = self.parts.clock.now();
        reach("webhook.answered");
        match &answer {
            Answer::Delivered => {
                self.record.delivered += 1;
                self.record.delivered_at = Some(now);
                if self.failures_in_row >= SLOW_AFTER {
                    // The receiver is back: what failed only because it was away goes on at once.
                    self.lanes.hurry();
                }
                self.failures_in_row = 0;
            }
            Answer::Failed { why, retry_after } => {
                self.record.failed += 1;
                self.record.failure = Some((now, text::preview(why, FAILURE)));
                self.failures_in_row = self.failures_in_row.saturating_add(1);
                if let Some(wait) = retry_after {
                    let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                    // An attempt that began before neither ends nor shortens the wait.
                    let asked = Tries {
                        attempts: 1,
                        next_at: Some(now.plus_ms(wait)),
                    };
                    let known = self.hold.filter(|known| !known.are_due(now));
                    self.hold = known
                        .filter(|known| known.next_at > asked.next_at)
                        .or(Some(asked));
                }
            }
            Answer::Gone => {
                let why = "the receiver answered 410 Gone; nothing more is sent until the \
                           webhook's table changes";
                self.record.failure = Some((now, why.to_owned()));
                self.record.stopped = true;
                self.is_stopped = true;
                let name = &self.record.name;
                tracing::warn!(webhook = name, "{why}");
            }
        }
        match subject {
            Subject::Event(message, tries) => self.event_ended(&message, tries, answer, now),
            Subject::Letter(letter) => self.letter_ended(*letter, answer),
        }
        self.store_within(STORE_AFTER);
    }

    fn event_ended(&mut self, message: &Message, tries: Tries, answer: Answer, now: Timestamp) {
        let why = match answer {
            Answer::Delivered => {
                metrics().webhook_attempt(true, false);
                self.lanes.done(message, now);
                return;
            }
            Answer::Gone => {
                self.lanes.put_back(message, tries, now);
                return;
            }
            Answer::Failed { why, .. } => why,
        };
        let attempts = tries.attempts + 1;
        let is_last = attempts >= self.table.attempts;
        metrics().webhook_attempt(false, is_last);
        let name = &self.record.name;
        if is_last {
            tracing::warn!(
                webhook = name,
                event = message.cursor,
                attempts,
                why,
                "an event is given up"
            );
            self.record.dead.push(DeadLetter {
                webhook: name.clone(),
                cursor: message.cursor,
                at: message.at,
                kind: message.kind.clone(),
                session_key: message.session_key.clone(),
                run: message.run,
                attempts,
                failure: text::preview(&why, FAILURE),
                died_at: now,
                replay: None,
                body: message.body.clone(),
            });
            self.lanes.done(message, now);
            return;
        }
        if self.failures_in_row == 1 {
            tracing::warn!(
                webhook = name,
                event = message.cursor,
                why,
                "a webhook fails; it is retried"
            );
        }
        let first = u64::try_from(self.table.retry_wait.as_millis()).unwrap_or(u64::MAX);
        let wait = wait_after(attempts, first, fastrand::f64());
        let tries = Tries {
            attempts,
            next_at: Some(now.plus_ms(wait)),
        };
        self.lanes.put_back(message, tries, now);
    }

    fn letter_ended(&mut self, letter: DeadLetter, answer: Answer) {
        self.letter_in_flight = false;
        let why = match answer {
            Answer::Delivered => {
                metrics().webhook_attempt(true, false);
                self.record.replayed.push(letter.cursor);
                return;
            }
            Answer::Failed { why, .. } => {
                metrics().webhook_attempt(false, false);
                why
            }
            Answer::Gone => "the receiver answered 410 Gone".to_owned(),
        };
        let why = text::preview(&why, FAILURE);
        self.record.refused.push(RefusedLetter {
            cursor: letter.cursor,
            request: letter.replay,
            attempts: letter.attempts + 1,
            failure: why,
        });
    }

    /// Begins to store the progress.
    fn save(&mut self) -> Saving {
        self.store_at = None;
        self.record.open = self.lanes.open();
        let record = self.record.clone();
        let counts = [
            record.lost.len(),
            record.dead.len(),
            record.replayed.len(),
            record.refused.len(),
        ];
        let registry = self.parts.registry.clone();
        Saving {
            stopped: record.stopped,
            done: Box::pin(async move { registry.record_webhook(record).await }),
            counts,
        }
    }

    /// The progress was stored or not; false if the row is gone.
    fn saved(&mut self, saving: &mut Option<Saving>, stored: Result<bool, Fault>) -> bool {
        let Some(Saving {
            counts, stopped, ..
        }) = saving.take()
        else {
            return true;
        };
        let name = &self.record.name;
        match stored {
            Ok(true) => {
                self.is_stop_stored = stopped;
                let [lost, dead, replayed, refused] = counts;
                self.record.lost.drain(..lost);
                self.record.dead.drain(..dead);
                for cursor in self.record.replayed.drain(..replayed) {
                    self.known_letters.remove(&cursor);
                }
                for letter in self.record.refused.drain(..refused) {
                    self.known_letters.remove(&letter.cursor);
                    // Another request may have come meanwhile.
                    self.has_more_letters = true;
                }
                true
            }
            Ok(false) => {
                tracing::warn!(
                    webhook = name,
                    "the row of a webhook is gone; it starts anew"
                );
                self.store_at = None;
                false
            }
            Err(fault) => {
                tracing::warn!(webhook = name, %fault, "progress could not be stored; it is tried again");
                self.store_at = Some(self.monotonic() + STORE_AGAIN);
                true
            }
        }
    }

    fn store_within(&mut self, wait: Duration) {
        let at = self.monotonic() + wait;
        self.store_at = Some(self.store_at.map_or(at, |known| known.min(at)));
    }

    /// How long nothing happens by itself.
    fn wake(&self, is_saving: bool) -> Duration {
        let (now, monotonic) = (self.parts.clock.now(), self.monotonic());
        let until = |at: Timestamp| Duration::from_millis(at.since(now).max(1));
        let held = self.hold.and_then(|hold| hold.next_at);
        let held = held.filter(|at| !self.is_stopped && *at > now);
        let due = held.or_else(|| self.lanes.next_due().filter(|_| self.waits_for_due));
        let due = due.map(until);
        let keys = self.keys.as_ref().filter(|_| self.waits_for_keys);
        let keys = keys.map(|keys| keys.until.saturating_sub(monotonic));
        let store = self.store_at.filter(|_| !is_saving);
        let store = store.map(|at| at.saturating_sub(monotonic));
        // The wall clock may be set forward.
        let longest = Duration::from_secs(60);
        [due, keys, store]
            .into_iter()
            .flatten()
            .fold(longest, Duration::min)
    }

    /// Shows its state.
    fn show(&self) {
        let blocked = self.blocked().map(str::to_owned);
        let state = match &blocked {
            _ if self.is_stop_stored => WebhookState::Stopped,
            Some(_) => WebhookState::Blocked,
            None if self.failures_in_row > 0 => WebhookState::Failing,
            None => WebhookState::Active,
        };
        let live = LiveWebhook {
            url: self
                .table
                .url
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            state,
            waiting: self.lanes.len() as u64,
            blocked,
        };
        self.parts.board.show(&self.record.name, live);
    }
}

/// Resolves when the progress is stored; never if none is being stored.
async fn stored(saving: &mut Option<Saving>) -> Result<bool, Fault> {
    match saving {
        Some(saving) => saving.done.as_mut().await,
        None => std::future::pending().await,
    }
}
