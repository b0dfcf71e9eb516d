//! An event subscription that survives lost connections and restarts of the daemon: it resumes from
//! the last cursor. Used by everything that follows events.

use serde_json::Value;

use super::discover::Where;
use crate::cli::common::failure::Failure;
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::client::EventSubscription;
use crate::wire::events::{Event, LAGGED, Lagged, SNAPSHOT, Snapshot, SubscribeEvents};

/// A subscription and its connection.
pub(crate) struct EventWatch<'a> {
    /// The connection, also for other calls; replaced after the daemon was gone.
    pub(crate) link: DaemonLink,
    place: &'a Where,
    request: SubscribeEvents,
    events: EventSubscription,
    /// The setting whose limit ended the last subscription because it was read too slowly.
    lagged: Option<String>,
}

/// A position in the event log, from which a subscription can resume.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogPosition {
    since: Option<u64>,
    store_id: Option<String>,
}

impl LogPosition {
    /// The subscription `request`, resumed from this position.
    pub(crate) fn onward(self, request: SubscribeEvents) -> SubscribeEvents {
        SubscribeEvents {
            since: self.since,
            store_id: self.store_id,
            ..request
        }
    }
}

/// An item of a watch.
pub(crate) enum WatchItem {
    /// A snapshot of the live state: the first item without a cursor, and again if the log after
    /// the cursor is no longer kept.
    Picture(Box<Snapshot>, Value),
    /// An event.
    Event(Box<Event>),
}

impl<'a> EventWatch<'a> {
    /// Subscribes. A connection that is lost in this moment is restored, as it is later.
    pub(crate) async fn open(
        mut link: DaemonLink,
        place: &'a Where,
        request: SubscribeEvents,
        say: impl Fn(&str),
    ) -> Result<EventWatch<'a>, Failure> {
        let mut is_announced = false;
        let events = loop {
            match link.subscribe(&request).await {
                Ok(events) => break events,
                Err(lost) if link::is_broken(&lost) => {
                    link = link::reconnect(place, lost, &say).await?;
                }
                Err(failure) if failure.kind == "unavailable" => {
                    on_its_way(&mut is_announced, &say).await;
                }
                Err(failure) => return Err(failure),
            }
        };
        Ok(EventWatch {
            link,
            place,
            request,
            events,
            lagged: None,
        })
    }

    /// The current position in the log.
    pub(crate) fn position(&self) -> LogPosition {
        LogPosition {
            since: self.request.since,
            store_id: self.request.store_id.clone(),
        }
    }

    /// The next item. A lost connection is restored, with notes to `say`.
    pub(crate) async fn next(&mut self, say: impl Fn(&str)) -> Result<WatchItem, Failure> {
        loop {
            match self.seen().await? {
                Some(seen) => return Ok(seen),
                None => {
                    if let Some(setting) = self.lagged.take() {
                        say(&format!(
                            "this client was too slow; it resumes where it was. The limit of its \
                             backlog: {setting}"
                        ));
                    }
                    self.come_back(&say).await?;
                }
            }
        }
    }

    /// The next item of this subscription; `None`: it has ended, and [`Watch::come_back`] must be
    /// called. Cancel-safe.
    pub(crate) async fn seen(&mut self) -> Result<Option<WatchItem>, Failure> {
        let Some(event) = self.events.next().await else {
            return Ok(None);
        };
        let event = event.map_err(|error| self.link.failure(error))?;
        Ok(match event.kind.as_str() {
            LAGGED => {
                let lagged: Lagged = link::read(&event.data)?;
                self.request.since = u64::try_from(lagged.resume_from).ok();
                self.lagged = Some(lagged.setting.into_owned()).filter(|name| !name.is_empty());
                None
            }
            SNAPSHOT => {
                let picture: Snapshot = link::read(&event.data)?;
                self.request.since = u64::try_from(picture.cursor).ok();
                self.request.store_id = Some(picture.store_id.clone());
                let whole = serde_json::to_value(&event).map_err(|error| {
                    Failure::local("an event cannot be converted to JSON", error)
                })?;
                Some(WatchItem::Picture(Box::new(picture), whole))
            }
            _ => {
                if let Some(cursor) = event.cursor {
                    self.request.since = u64::try_from(cursor).ok();
                }
                Some(WatchItem::Event(Box::new(event)))
            }
        })
    }

    /// Replaces the connection if a daemon answers already, so that no note is needed.
    pub(crate) async fn relink(&mut self) {
        if let Ok(link) = DaemonLink::open(self.place).await {
            self.link = link;
        }
    }

    /// Subscribes again from the last position, to the daemon that answers then.
    pub(crate) async fn come_back(&mut self, mut say: impl FnMut(&str)) -> Result<(), Failure> {
        let mut is_announced = false;
        loop {
            match self.link.subscribe(&self.request).await {
                Ok(events) => {
                    self.events = events;
                    return Ok(());
                }
                Err(lost) if link::is_broken(&lost) => {
                    self.link = link::reconnect(self.place, lost, &mut say).await?;
                    say("the daemon is back");
                }
                Err(failure) if failure.kind == "unavailable" => {
                    on_its_way(&mut is_announced, &mut say).await;
                }
                Err(failure) if failure.kind.starts_with("cursor_") => {
                    say("events of the meantime are no longer kept; showing the current state");
                    self.request.since = None;
                    self.request.store_id = None;
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}

/// Waits while the daemon starts or stops; the first wait is announced.
async fn on_its_way(is_announced: &mut bool, mut say: impl FnMut(&str)) {
    if !std::mem::replace(is_announced, true) {
        say("the daemon is starting or stopping; waiting for it");
    }
    tokio::time::sleep(link::RETRY).await;
}
