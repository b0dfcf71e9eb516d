//! The newest events, read from the log once for all subscribers, by one task.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::super::Inner;
use crate::store::events::{self, Event, Part};

/// So many events are kept at most.
const MOST_EVENTS: usize = 4096;
/// So many bytes of their data are kept at most.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// So many events are read at once.
const PAGE: u32 = 512;
/// After a look the tail rests so long for each subscriber that it wakes, and at most so long:
/// where many listen, many events wake them some hundred times a second, not once each. A few
/// hear of an event that follows another one as soon as of the first.
const REST_EACH: Duration = Duration::from_micros(50);
const MOST_REST: Duration = Duration::from_millis(5);
/// A log that could not be read is tried again after this long.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// An event, shared by everybody who is given it.
#[derive(Debug)]
pub struct LogEvent {
    /// The event.
    pub event: Event,
    text: OnceLock<Box<str>>,
}

impl LogEvent {
    /// An event as it was read.
    pub(super) fn new(event: Event) -> Self {
        LogEvent {
            event,
            text: OnceLock::new(),
        }
    }

    /// The event as the doors write it; `write` is asked only the first time.
    pub fn text(&self, write: impl FnOnce(&Event) -> String) -> &str {
        self.text.get_or_init(|| write(&self.event).into())
    }
}

/// The newest events. It follows the log only while somebody listens.
pub struct Feed {
    ring: RwLock<Ring>,
    published: watch::Sender<i64>,
    listeners: AtomicUsize,
    wanted: Notify,
}

/// Every event above `floor` and up to `head`.
#[derive(Default)]
struct Ring {
    events: VecDeque<Arc<LogEvent>>,
    bytes: usize,
    floor: i64,
    head: i64,
}

/// What the feed has for a cursor.
pub(super) enum Taken {
    /// These events, and how far they reach.
    Events(Vec<Arc<LogEvent>>, i64),
    /// The cursor lies below what is kept: from `floor` up to `head`.
    Behind { floor: i64, head: i64 },
}

impl Default for Feed {
    fn default() -> Self {
        Feed {
            ring: RwLock::default(),
            published: watch::Sender::new(0),
            listeners: AtomicUsize::new(0),
            wanted: Notify::new(),
        }
    }
}

impl Feed {
    /// Somebody listens from now on, until [`Feed::leave`].
    pub(super) fn enter(&self) -> watch::Receiver<i64> {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        self.wanted.notify_one();
        self.published.subscribe()
    }

    /// Somebody listens no more.
    pub(super) fn leave(&self) {
        self.listeners.fetch_sub(1, Ordering::SeqCst);
    }

    /// The events after `cursor`, `most` at most.
    pub(super) fn take(&self, cursor: i64, most: usize) -> Taken {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        if cursor < ring.floor {
            return Taken::Behind {
                floor: ring.floor,
                head: ring.head,
            };
        }
        let first = ring
            .events
            .partition_point(|event| event.event.cursor <= cursor);
        let events: Vec<Arc<LogEvent>> = ring.events.range(first..).take(most).cloned().collect();
        let reaches = match events.last() {
            Some(last) if first + events.len() < ring.events.len() => last.event.cursor,
            _ => ring.head.max(cursor),
        };
        Taken::Events(events, reaches)
    }

    fn head(&self) -> i64 {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        ring.head
    }

    /// Adds what came after the head; everything up to `head` is there now.
    fn publish(&self, events: Vec<Event>, head: i64) {
        let news = !events.is_empty();
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            ring.bytes += size(&event);
            ring.events.push_back(Arc::new(LogEvent::new(event)));
        }
        while ring.events.len() > MOST_EVENTS || ring.bytes > MOST_BYTES {
            let Some(oldest) = ring.events.pop_front() else {
                break;
            };
            ring.bytes -= size(&oldest.event);
            ring.floor = oldest.event.cursor;
        }
        ring.head = head;
        drop(ring);
        if news {
            self.published.send_replace(head);
        }
    }

    /// Forgets what it has; whoever needs something from below `head` reads it in the store.
    fn skip_to(&self, head: i64) {
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        *ring = Ring {
            floor: head,
            head,
            ..Ring::default()
        };
        drop(ring);
        // Somebody may have come in meanwhile and wait for what was skipped.
        self.published.send_replace(head);
    }
}

/// What an event counts in the ring.
fn size(event: &Event) -> usize {
    event.data.get().len() + size_of::<LogEvent>()
}

/// How long the tail rests with so many listeners.
fn rest(listeners: usize) -> Duration {
    let listeners = u32::try_from(listeners).unwrap_or(u32::MAX);
    REST_EACH.saturating_mul(listeners).min(MOST_REST)
}

/// Follows the log as long as the store is open.
pub(in crate::registry) async fn tail(inner: Arc<Inner>) {
    let mut log = inner.store.head();
    loop {
        let to = *log.borrow_and_update();
        if inner.feed.listeners.load(Ordering::SeqCst) == 0 {
            inner.feed.skip_to(to);
            inner.feed.wanted.notified().await;
            continue;
        }
        if !catch_up(&inner, to).await {
            tokio::time::sleep(AGAIN_AFTER).await;
            continue;
        }
        tokio::time::sleep(rest(inner.feed.listeners.load(Ordering::SeqCst))).await;
        if log.changed().await.is_err() {
            return;
        }
    }
}

/// Reads everything up to `to` into the feed; `false`: it could not be read now.
async fn catch_up(inner: &Inner, to: i64) -> bool {
    loop {
        let cursor = inner.feed.head();
        let read = inner
            .store
            .read_first(move |tx| events::after(tx, cursor, PAGE))
            .await;
        match read {
            Ok(Part::Events(events)) => {
                let last = events.last().map_or(cursor, |event| event.cursor);
                let is_all = events.len() < PAGE as usize;
                // A number up to `to` that no event has will not get one any more.
                inner
                    .feed
                    .publish(events, if is_all { last.max(to) } else { last });
                if is_all {
                    return true;
                }
            }
            Ok(Part::Expired(oldest)) => inner.feed.skip_to(oldest),
            Err(fault) => {
                tracing::warn!(%fault, "the event log could not be read; it is tried again");
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::kernel::time::Timestamp;

    fn event(cursor: i64, bytes: usize) -> Event {
        Event {
            cursor,
            at: Timestamp(0),
            kind: "run.step".to_owned(),
            org: "default".to_owned(),
            run: None,
            circumstances: Default::default(),
            data: RawValue::from_string(format!("{:?}", "x".repeat(bytes))).unwrap(),
        }
    }

    fn cursors(feed: &Feed, cursor: i64, most: usize) -> (Vec<i64>, i64) {
        match feed.take(cursor, most) {
            Taken::Events(events, reaches) => {
                (events.iter().map(|e| e.event.cursor).collect(), reaches)
            }
            Taken::Behind { floor, .. } => panic!("behind {floor}"),
        }
    }

    #[test]
    fn events_are_taken_after_a_cursor_in_order() {
        let feed = Feed::default();
        feed.publish(vec![event(2, 1), event(5, 1), event(9, 1)], 12);
        assert_eq!(cursors(&feed, 0, 10), (vec![2, 5, 9], 12));
        assert_eq!(cursors(&feed, 0, 2), (vec![2, 5], 5));
        assert_eq!(cursors(&feed, 5, 10), (vec![9], 12));
        assert_eq!(cursors(&feed, 12, 10), (vec![], 12));
        // A snapshot may be newer than the feed.
        assert_eq!(cursors(&feed, 20, 10), (vec![], 20));
        feed.publish(vec![event(19, 1), event(21, 1)], 21);
        assert_eq!(cursors(&feed, 20, 10), (vec![21], 21));
    }

    #[test]
    fn a_few_listeners_are_not_kept_waiting_and_many_are_not_woken_for_each_event() {
        assert!(rest(1) < Duration::from_millis(1));
        assert_eq!(rest(100), MOST_REST);
        assert_eq!(rest(usize::MAX), MOST_REST);
    }

    #[test]
    fn g9_1_the_feed_is_bounded_in_number_and_in_bytes() {
        let feed = Feed::default();
        for cursor in 1..=10_000 {
            feed.publish(vec![event(cursor, 1)], cursor);
        }
        let Taken::Behind { floor, head } = feed.take(0, 1) else {
            panic!("it keeps everything");
        };
        assert_eq!((floor, head), (10_000 - MOST_EVENTS as i64, 10_000));
        assert_eq!(cursors(&feed, floor, 1), (vec![floor + 1], floor + 1));

        let feed = Feed::default();
        for cursor in 1..=100 {
            feed.publish(vec![event(cursor, 100 * 1024)], cursor);
        }
        let kept = feed.ring.read().unwrap().events.len();
        assert!((1..=MOST_BYTES / (100 * 1024)).contains(&kept), "{kept}");
    }
}
