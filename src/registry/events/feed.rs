//! The newest events, read from the log once for all subscribers by one task.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::super::RegistryInner;
use crate::store::tables::events;
use crate::store::tables::events::{Event, LogPart};

/// Maximum number of events in the ring.
const MOST_EVENTS: usize = 4096;
/// Maximum bytes of event data in the ring.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// Number of events per read of the log.
const PAGE: u32 = 512;
/// After each read the tail pauses for this long per listener, up to the maximum. With many
/// listeners a burst of events then wakes them a few hundred times a second, not once per event;
/// with few listeners the delay is negligible.
const REST_EACH: Duration = Duration::from_micros(50);
const MAX_PAUSE: Duration = Duration::from_millis(5);
/// Delay before a failed read of the log is retried.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// An event of the log, shared by all subscribers that receive it.
#[derive(Debug)]
pub struct LogEvent {
    /// The stored event.
    pub event: Event,
    text: OnceLock<Box<str>>,
}

impl LogEvent {
    /// Wraps an event as read from the log.
    pub(super) fn new(event: Event) -> Self {
        LogEvent {
            event,
            text: OnceLock::new(),
        }
    }

    /// The serialized event; `write` is called only the first time and its text is reused.
    pub fn text(&self, write: impl FnOnce(&Event) -> String) -> &str {
        self.text.get_or_init(|| write(&self.event).into())
    }
}

/// Ring buffer of the newest events. It follows the log only while there are listeners.
pub struct Feed {
    ring: RwLock<Ring>,
    published: watch::Sender<i64>,
    listeners: AtomicUsize,
    wanted: Notify,
}

/// Every event with a cursor above `floor` and up to `head`.
#[derive(Default)]
struct Ring {
    events: VecDeque<Arc<LogEvent>>,
    bytes: usize,
    floor: i64,
    head: i64,
}

/// Result of reading the feed at a cursor.
pub(super) enum FeedRead {
    /// The events after the cursor, and the cursor up to which they are complete.
    Events(Vec<Arc<LogEvent>>, i64),
    /// The cursor is older than the ring, which covers `floor` to `head`.
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
    /// Registers a listener until [`Feed::leave`].
    pub(super) fn enter(&self) -> watch::Receiver<i64> {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        self.wanted.notify_one();
        self.published.subscribe()
    }

    /// Unregisters a listener.
    pub(super) fn leave(&self) {
        self.listeners.fetch_sub(1, Ordering::SeqCst);
    }

    /// Up to `most` events after `cursor`.
    pub(super) fn take(&self, cursor: i64, most: usize) -> FeedRead {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        if cursor < ring.floor {
            return FeedRead::Behind {
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
        FeedRead::Events(events, reaches)
    }

    fn head(&self) -> i64 {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        ring.head
    }

    /// Appends the events after the head; the ring is then complete up to `head`.
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

    /// Empties the ring; readers of older events must read them from the store.
    fn skip_to(&self, head: i64) {
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        *ring = Ring {
            floor: head,
            head,
            ..Ring::default()
        };
        drop(ring);
        // A listener may have registered meanwhile and be waiting for a skipped event.
        self.published.send_replace(head);
    }
}

/// Bytes that an event counts for in the ring.
fn size(event: &Event) -> usize {
    event.data.get().len() + size_of::<LogEvent>()
}

/// Pause of the tail with this number of listeners.
fn rest(listeners: usize) -> Duration {
    let listeners = u32::try_from(listeners).unwrap_or(u32::MAX);
    REST_EACH.saturating_mul(listeners).min(MAX_PAUSE)
}

/// Follows the log until the store closes.
pub(in crate::registry) async fn tail(inner: Arc<RegistryInner>) {
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

/// Reads everything up to `to` into the feed; `false` if the log could not be read.
async fn catch_up(inner: &RegistryInner, to: i64) -> bool {
    loop {
        let cursor = inner.feed.head();
        let read = inner
            .store
            .read_for_registry(move |tx| events::after(tx, cursor, PAGE))
            .await;
        match read {
            Ok(LogPart::Events(events)) => {
                let last = events.last().map_or(cursor, |event| event.cursor);
                let is_all = events.len() < PAGE as usize;
                // Cursor numbers up to `to` without an event will never get one.
                inner
                    .feed
                    .publish(events, if is_all { last.max(to) } else { last });
                if is_all {
                    return true;
                }
            }
            Ok(LogPart::Expired(oldest)) => inner.feed.skip_to(oldest),
            Err(fault) => {
                tracing::warn!(%fault, "could not read the event log; will retry");
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
            FeedRead::Events(events, reaches) => {
                (events.iter().map(|e| e.event.cursor).collect(), reaches)
            }
            FeedRead::Behind { floor, .. } => panic!("behind {floor}"),
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
        assert_eq!(rest(100), MAX_PAUSE);
        assert_eq!(rest(usize::MAX), MAX_PAUSE);
    }

    #[test]
    fn g9_1_the_feed_is_bounded_in_number_and_in_bytes() {
        let feed = Feed::default();
        for cursor in 1..=10_000 {
            feed.publish(vec![event(cursor, 1)], cursor);
        }
        let FeedRead::Behind { floor, head } = feed.take(0, 1) else {
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
