//! One subscriber's way through the log: from where it was, or from a picture of what is
//! live, up to the head and on.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::super::answer::{RunDetail, SessionView};
use super::super::{Inner, Principal, Registry};
use super::feed::{LogEvent, Taken};
use super::filter::{Branch, EventFilter};
use super::partial::{Ear, TextEvent};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::RunId;
use crate::store::events::{self, Part};
use crate::store::tx::{DbError, Tx};
use crate::store::{read, runs, sessions};

/// So many events are given at once at most.
const BATCH: usize = 256;
/// So many runs are in a snapshot at most.
const SNAPSHOT_RUNS: u32 = 200;
/// The states of a run that has not ended.
const OPEN: [&str; 4] = ["queued", "running", "paused", "settling"];
/// A log that could not be read is tried again after this long.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// What somebody subscribes to.
#[derive(Clone, Debug, Default)]
pub struct Subscribe {
    /// Which events.
    pub filter: EventFilter,
    /// Everything after this cursor; a snapshot if unset.
    pub since: Option<i64>,
    /// The store that the cursor is from, if the caller knows.
    pub store_id: Option<String>,
    /// Answers while they come, too.
    pub deltas: bool,
}

/// What a subscription gives.
#[derive(Clone, Debug)]
pub enum Item {
    /// What is live; the first item of a subscription without a cursor.
    Snapshot(Box<Snapshot>),
    /// An event of the log.
    Event(Arc<LogEvent>),
    /// Something about an answer that is coming.
    Text(Box<TextEvent>),
    /// The last item: the reader was too slow.
    Lagged {
        /// Everything up to it was given.
        cursor: i64,
        /// The setting that bounds how slow a reader may be.
        setting: &'static str,
    },
}

/// What is live at one moment of the log.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// That moment: every event up to it is in this picture, every later one follows it.
    pub cursor: i64,
    /// The store that the cursor is from.
    pub store_id: String,
    /// Open runs, newest first, and the one that was asked for by its id.
    pub runs: Vec<RunDetail>,
    /// The sessions of these runs, and the one that was asked for by its key.
    pub sessions: Vec<SessionView>,
    /// There are more of them; lists have all.
    pub more: bool,
}

/// A cursor into the log that moves on as it is read.
pub struct Subscription {
    inner: Arc<Inner>,
    org: String,
    filter: EventFilter,
    /// Everything up to here was given or filtered out.
    cursor: i64,
    /// It has caught up once: from then on it must keep up.
    is_live: bool,
    is_over: bool,
    first: Option<Box<Snapshot>>,
    published: watch::Receiver<i64>,
    ear: Option<Ear>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.inner.feed.leave();
    }
}

impl Registry {
    /// Subscribes. With a cursor everything after it follows, exactly once and in order;
    /// without one a snapshot, then everything after that. `cursor_expired` names the oldest
    /// cursor that is still good.
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
        // In this order: what happens from here on is heard, and what the snapshot has
        // already is skipped by its cursor.
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
                    "this is store {}, and the cursor is another's",
                    inner.store.id()
                ),
            ));
        }
        let head = *inner.store.head().borrow();
        let (last, oldest) = inner
            .store
            .read_now(|tx| Ok((events::last(tx)?, events::expired(tx)?)))?;
        // A commit that somebody has seen already may not be known here yet.
        if since > head.max(last) {
            return Err(Fault::new(
                Kind::CursorUnknown,
                format!(
                    "there is no event {since} yet, the newest is {}: the cursor is another store's",
                    head.max(last)
                ),
            ));
        }
        if since < oldest {
            return Err(Fault::new(
                Kind::CursorExpired,
                format!("events after cursor {since} are not kept any more"),
            )
            .with("oldest", oldest));
        }
        Ok(())
    }

    async fn snapshot(&self, who: &Principal, filter: &EventFilter) -> Result<Snapshot, Fault> {
        let (org, filter) = (who.org.clone(), filter.clone());
        let (cursor, mut runs, sessions) = self
            .inner
            .store
            .read(move |tx| live(tx, &org, &filter))
            .await?;
        let more = runs.len() > SNAPSHOT_RUNS as usize;
        runs.truncate(SNAPSHOT_RUNS as usize);
        Ok(Snapshot {
            cursor,
            store_id: self.inner.store.id().to_owned(),
            runs: runs.into_iter().map(|shown| self.detail(shown)).collect(),
            sessions: sessions.into_iter().map(SessionView::from).collect(),
            more,
        })
    }
}

type Live = (i64, Vec<read::Shown>, Vec<read::ShownSession>);

/// What is live, in one moment of the log.
fn live(tx: &mut dyn Tx, org: &str, filter: &EventFilter) -> Result<Live, DbError> {
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
    // A run that was asked for by its id is shown in any state: it may have ended just now.
    let asked = |id: RunId, found: &[read::Shown]| found.iter().all(|one| one.run.id != id);
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
    /// What comes next, never empty; `None`: the last item was [`Item::Lagged`].
    pub async fn next(&mut self) -> Option<Vec<Item>> {
        if let Some(snapshot) = self.first.take() {
            return Some(vec![Item::Snapshot(snapshot)]);
        }
        while !self.is_over {
            // Before the look, so that nothing falls between the look and the wait.
            self.published.borrow_and_update();
            let (events, is_all) = self.advance().await;
            // An answer's text is heard before the event that it is stored.
            let texts = self.ear.as_mut().map(Ear::take).unwrap_or_default();
            let mut items: Vec<Item> = texts
                .into_iter()
                .map(|text| Item::Text(Box::new(text)))
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

    /// Moves the cursor on; the events on the way, and whether that was all for now.
    async fn advance(&mut self) -> (Vec<Item>, bool) {
        match self.inner.feed.take(self.cursor, BATCH) {
            Taken::Events(events, reaches) => {
                self.is_live = true;
                let is_all = events.len() < BATCH;
                self.cursor = reaches;
                (self.chosen(events), is_all)
            }
            Taken::Behind { floor, head } => {
                let behind = head - self.cursor;
                if self.is_live && behind > self.inner.options().events_behind {
                    return (self.lagged("gateway.max_events_behind"), false);
                }
                (self.read(floor).await, false)
            }
        }
    }

    /// Reads a part of the log that the feed does not have any more.
    async fn read(&mut self, floor: i64) -> Vec<Item> {
        let cursor = self.cursor;
        let read = self
            .inner
            .store
            .read(move |tx| events::after(tx, cursor, BATCH as u32))
            .await;
        match read {
            Ok(Part::Events(events)) => {
                let last = events.last().map_or(cursor, |event| event.cursor);
                // Numbers up to the feed's floor that no event has now will not get one.
                let is_all = events.len() < BATCH;
                self.cursor = if is_all { last.max(floor) } else { last };
                let events = events.into_iter().map(LogEvent::new).map(Arc::new);
                self.chosen(events.collect())
            }
            // It was deleted while it was being read: whoever comes back is told.
            Ok(Part::Expired(_)) => self.lagged("retention.events"),
            Err(fault) => {
                tracing::warn!(%fault, "the event log could not be read; it is tried again");
                tokio::time::sleep(AGAIN_AFTER).await;
                Vec::new()
            }
        }
    }

    fn chosen(&self, events: Vec<Arc<LogEvent>>) -> Vec<Item> {
        events
            .into_iter()
            .filter(|event| self.filter.lets_through(&self.org, &event.event))
            .map(Item::Event)
            .collect()
    }

    fn lagged(&mut self, setting: &'static str) -> Vec<Item> {
        self.is_over = true;
        vec![Item::Lagged {
            cursor: self.cursor,
            setting,
        }]
    }

    /// Returns when there may be something new.
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
