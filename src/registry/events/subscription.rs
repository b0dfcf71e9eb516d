//! One subscriber's position in the log: it starts at a given cursor or at a snapshot of the live
//! state, reads up to the head, and follows it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::super::{Principal, Registry, RegistryInner};
use super::feed::{FeedRead, LogEvent};
use super::filter::{Branch, EventFilter};
use super::partial::{TextEvent, TextListener};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::RunId;
use crate::registry::api::answer::{RunDetail, SessionView};
use crate::store::tables::events::LogPart;
use crate::store::tables::{events, read, runs, sessions};
use crate::store::tx::{DbError, Tx};

/// Maximum number of events per batch.
const BATCH: usize = 256;
/// Maximum number of runs in a snapshot.
const SNAPSHOT_RUNS: u32 = 200;
/// The states of a run that has not ended.
const OPEN: [&str; 4] = ["queued", "running", "paused", "settling"];
/// Delay before a failed read of the log is retried.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The parameters of a subscription.
#[derive(Clone, Debug, Default)]
pub struct Subscribe {
    /// The events to deliver.
    pub filter: EventFilter,
    /// Start after this cursor; if unset, start with a snapshot.
    pub since: Option<i64>,
    /// Id of the store that the cursor came from, if the client knows it.
    pub store_id: Option<String>,
    /// True to receive streaming text as well.
    pub deltas: bool,
}

/// An item that a subscription delivers.
#[derive(Clone, Debug)]
pub enum SubscriptionItem {
    /// The live state; the first item of a subscription without a cursor.
    Snapshot(Box<LiveSnapshot>),
    /// An event of the log.
    Event(Arc<LogEvent>),
    /// An update of a streaming answer.
    Text(Box<TextEvent>),
    /// The last item: the reader was too slow.
    Lagged {
        /// All events up to this cursor were delivered.
        cursor: i64,
        /// The setting that limits how far a reader may lag.
        setting: &'static str,
    },
}

/// The live state at one position of the log.
#[derive(Clone, Debug)]
pub struct LiveSnapshot {
    /// The position: the snapshot includes every event up to it and no later one.
    pub cursor: i64,
    /// Id of the store that the cursor belongs to.
    pub store_id: String,
    /// Open runs, newest first, and the run that was requested by its id.
    pub runs: Vec<RunDetail>,
    /// The sessions of these runs, and the session that was requested by its key.
    pub sessions: Vec<SessionView>,
    /// True if there are more runs than a snapshot holds; the list methods return all.
    pub more: bool,
}

/// A subscriber's cursor into the log, which advances as events are read.
pub struct Subscription {
    inner: Arc<RegistryInner>,
    org: String,
    filter: EventFilter,
    /// Every event up to here was delivered or filtered out.
    cursor: i64,
    /// True once it has caught up; from then on the lag limit applies.
    is_live: bool,
    is_over: bool,
    first: Option<Box<LiveSnapshot>>,
    published: watch::Receiver<i64>,
    ear: Option<TextListener>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.inner.feed.leave();
    }
}

impl Registry {
    /// Opens a subscription. With a cursor, every later event is delivered exactly once and in
    /// order; without one, a snapshot comes first, then every event after it. A `cursor_expired`
    /// fault names the oldest valid cursor.
    pub async fn subscribe(
        &self,
        who: &Principal,
        mut request: Subscribe,
    ) -> Result<Subscription, Fault> {
        let inner = &self.inner;
        if let Some(tree) = request.filter.tree {
            let below = inner.store.read(move |tx| runs::branch(tx, tree)).await?;
            request.filter.branch = Branch::of(below.unwrap_or_default());
        }
        // The order matters: events from here on are received, and those that the snapshot already
        // includes are skipped by its cursor.
        let mut subscription = Subscription {
            published: inner.feed.enter(),
            ear: request
                .deltas
                .then(|| inner.partials.listen(&who.org, &request.filter)),
            inner: Arc::clone(inner),
            org: who.org.clone(),
            filter: request.filter,
            cursor: 0,
            is_live: false,
            is_over: false,
            first: None,
        };
        match request.since {
            Some(since) => {
                self.check_cursor(since, request.store_id.as_deref())?;
                subscription.cursor = since;
            }
            None => {
                let snapshot = self.snapshot(who, &subscription.filter).await?;
                subscription.cursor = snapshot.cursor;
                subscription.first = Some(Box::new(snapshot));
            }
        }
        Ok(subscription)
    }

    fn check_cursor(&self, since: i64, store: Option<&str>) -> Result<(), Fault> {
        let inner = &self.inner;
        if store.is_some_and(|store| store != inner.store.id()) {
            return Err(Fault::new(
                Kind::CursorUnknown,
                format!(
                    "the cursor belongs to another store; this is store {}",
                    inner.store.id()
                ),
            ));
        }
        let head = *inner.store.head().borrow();
        let (last, oldest) = inner
            .store
            .read_now(|tx| Ok((events::last(tx)?, events::expired(tx)?)))?;
        // A client may have seen a commit that this process's head does not show yet.
        if since > head.max(last) {
            return Err(Fault::new(
                Kind::CursorUnknown,
                format!(
                    "there is no event {since}, the newest is {}: the cursor belongs to another store",
                    head.max(last)
                ),
            ));
        }
        if since < oldest {
            return Err(Fault::new(
                Kind::CursorExpired,
                format!("events after cursor {since} have expired"),
            )
            .with("oldest", oldest));
        }
        Ok(())
    }

    async fn snapshot(&self, who: &Principal, filter: &EventFilter) -> Result<LiveSnapshot, Fault> {
        let (org, filter) = (who.org.clone(), filter.clone());
        let (cursor, mut runs, sessions) = self
            .inner
            .store
            .read(move |tx| live(tx, &org, &filter))
            .await?;
        let more = runs.len() > SNAPSHOT_RUNS as usize;
        runs.truncate(SNAPSHOT_RUNS as usize);
        Ok(LiveSnapshot {
            cursor,
            store_id: self.inner.store.id().to_owned(),
            runs: runs.into_iter().map(|shown| self.detail(shown)).collect(),
            sessions: sessions.into_iter().map(SessionView::from).collect(),
            more,
        })
    }
}

type LiveRows = (i64, Vec<read::ShownRun>, Vec<read::ShownSession>);

/// The live state, read in one transaction.
fn live(tx: &mut dyn Tx, org: &str, filter: &EventFilter) -> Result<LiveRows, DbError> {
    let cursor = events::last(tx)?.max(events::expired(tx)?);
    let asked_for = match &filter.session {
        Some(key) => read::session(tx, org, key)?,
        None => None,
    };
    let mut runs = Vec::new();
    if filter.session.is_none() || asked_for.is_some() {
        let query = read::RunQuery {
            org: org.to_owned(),
            session: asked_for.as_ref().map(|(session, ..)| session.id),
            states: OPEN.map(str::to_owned).into(),
            tree: filter.tree,
            limit: SNAPSHOT_RUNS + 1,
            ..read::RunQuery::default()
        };
        runs = read::runs(tx, &query)?;
    }
    // A run that was requested by id is included in any state: it may have just ended.
    let asked = |id: RunId, found: &[read::ShownRun]| found.iter().all(|one| one.run.id != id);
    for id in filter.run.into_iter().chain(filter.tree) {
        if asked(id, &runs)
            && let Some(shown) = read::run(tx, id)?.filter(|shown| shown.run.org == org)
        {
            runs.insert(0, shown);
        }
    }
    if let Some(only) = filter.run {
        runs.retain(|shown| shown.run.id == only);
    }
    let mut sessions: Vec<read::ShownSession> = asked_for.into_iter().collect();
    let mut known: HashSet<_> = sessions.iter().map(|(session, ..)| session.id).collect();
    for shown in runs.iter().take(SNAPSHOT_RUNS as usize) {
        if known.insert(shown.run.session)
            && let Some(session) = sessions::by_id(tx, shown.run.session)?
        {
            sessions.push(read::session_beside(tx, session)?);
        }
    }
    Ok((cursor, runs, sessions))
}

impl Subscription {
    /// The next items, never empty; `None` after [`Item::Lagged`].
    pub async fn next(&mut self) -> Option<Vec<SubscriptionItem>> {
        if let Some(snapshot) = self.first.take() {
            return Some(vec![SubscriptionItem::Snapshot(snapshot)]);
        }
        while !self.is_over {
            // Marked as seen before the read, so that no event is missed between read and wait.
            self.published.borrow_and_update();
            let (events, is_all) = self.advance().await;
            // An answer's text is delivered before the event of its storage.
            let texts = self
                .ear
                .as_mut()
                .map(TextListener::take)
                .unwrap_or_default();
            let mut items: Vec<SubscriptionItem> = texts
                .into_iter()
                .map(|text| SubscriptionItem::Text(Box::new(text)))
                .collect();
            items.extend(events);
            if !items.is_empty() {
                return Some(items);
            }
            if is_all {
                self.changed().await;
            }
        }
        None
    }

    /// Advances the cursor; returns the selected events, and whether the feed has no more for now.
    async fn advance(&mut self) -> (Vec<SubscriptionItem>, bool) {
        match self.inner.feed.take(self.cursor, BATCH) {
            FeedRead::Events(events, reaches) => {
                self.is_live = true;
                let is_all = events.len() < BATCH;
                self.cursor = reaches;
                (self.chosen(events), is_all)
            }
            FeedRead::Behind { floor, head } => {
                let behind = head - self.cursor;
                if self.is_live && behind > self.inner.options().events_behind {
                    return (self.lagged("gateway.max_events_behind"), false);
                }
                (self.read(floor).await, false)
            }
        }
    }

    /// Reads a part of the log that the feed no longer has.
    async fn read(&mut self, floor: i64) -> Vec<SubscriptionItem> {
        let cursor = self.cursor;
        let read = self
            .inner
            .store
            .read(move |tx| events::after(tx, cursor, BATCH as u32))
            .await;
        match read {
            Ok(LogPart::Events(events)) => {
                let last = events.last().map_or(cursor, |event| event.cursor);
                // Cursor numbers up to the feed's floor without an event will never get one.
                let is_all = events.len() < BATCH;
                self.cursor = if is_all { last.max(floor) } else { last };
                let events = events.into_iter().map(LogEvent::new).map(Arc::new);
                self.chosen(events.collect())
            }
            // Retention removed the part meanwhile; the client learns that when it subscribes
            // again.
            Ok(LogPart::Expired(_)) => self.lagged("retention.events"),
            Err(fault) => {
                tracing::warn!(%fault, "could not read the event log; will retry");
                tokio::time::sleep(AGAIN_AFTER).await;
                Vec::new()
            }
        }
    }

    fn chosen(&self, events: Vec<Arc<LogEvent>>) -> Vec<SubscriptionItem> {
        events
            .into_iter()
            .filter(|event| self.filter.lets_through(&self.org, &event.event))
            .map(SubscriptionItem::Event)
            .collect()
    }

    fn lagged(&mut self, setting: &'static str) -> Vec<SubscriptionItem> {
        self.is_over = true;
        vec![SubscriptionItem::Lagged {
            cursor: self.cursor,
            setting,
        }]
    }

    /// Returns when there may be new items.
    async fn changed(&mut self) {
        let woken = async {
            match &self.ear {
                Some(ear) => ear.woken().await,
                None => std::future::pending().await,
            }
        };
        // The sender lives in `inner`, so this cannot fail.
        tokio::select! {
            _ = self.published.changed() => {}
            () = woken => {}
        }
    }
}
