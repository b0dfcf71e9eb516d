//! Areas 9 and 14, events: a subscriber gets each event once and in order, whatever happens to the
//! daemon, and a reader that does not read does not affect the others.

mod filters;
mod follow;
mod slow;
mod stalled;
mod streams;
pub(crate) mod text;

use abide::client::EventSubscription;
use abide::wire::events::Event;
use serde_json::{Value, json};

use crate::harness::{Link, StoreRows};

/// The next item of a subscription.
pub(crate) async fn next(events: &mut EventSubscription) -> Event {
    let next = tokio::time::timeout(crate::harness::TEST_TIMEOUT, events.next());
    next.await.unwrap().unwrap().unwrap()
}

/// The items up to and including the first for which `is_last` holds.
async fn until(events: &mut EventSubscription, is_last: impl Fn(&Event) -> bool) -> Vec<Event> {
    let mut seen = Vec::new();
    loop {
        let event = next(events).await;
        let last = is_last(&event);
        seen.push(event);
        if last {
            return seen;
        }
    }
}

/// Creates a session with this key, whose event marks a position in the log; returns the key.
async fn mark(client: &Link, key: &str) -> String {
    let params = json!({ "owner": "client", "key": key });
    let made = client.call("sessions.create", params).await;
    made["session"]["key"].as_str().unwrap().to_owned()
}

/// Is it the creation event of that session?
fn is_mark(event: &Event, key: &str) -> bool {
    event.kind == "session.created" && event.session_key.as_deref() == Some(key)
}

/// Cursor and kind of the stored events.
fn stored_events(events: &[Event]) -> Vec<(i64, String)> {
    let stored = events.iter().filter_map(|event| {
        let cursor = event.cursor?;
        Some((cursor, event.kind.clone()))
    });
    stored.collect()
}

/// Cursor and kind of the logged events after `above`, up to and including `up_to`.
fn logged(book: &StoreRows, above: i64, up_to: i64) -> Vec<(i64, String)> {
    let events = book.events.range(above + 1..=up_to);
    events
        .map(|(cursor, event)| (*cursor, event.kind.clone()))
        .collect()
}

/// The data of a snapshot event.
fn snapshot(event: &Event) -> &Value {
    assert_eq!(event.kind, "snapshot");
    &event.data
}
