//! Follows the event log for one webhook: pages of the events that it selects, as messages. Reads use
//! the pool of long reads, so the writer is never waited for, and only one page is read ahead.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::lanes::Message;
use crate::failpoint::reach;
use crate::kernel::time::Timestamp;
use crate::kernel::webhook::Selection;
use crate::registry::{LogPart, Registry, StoredEvent, shown};
use crate::wire::events::Event;

/// Number of events per page.
const PAGE: u32 = 256;
/// Pause after a page that reached the end of the log: a burst is then read in a few pages, and not
/// event by event.
const REST: Duration = Duration::from_millis(2);
/// Delay before a failed read is retried.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// A part of the log.
pub(super) struct Page {
    /// The selected events, in order.
    pub(super) messages: Vec<Arc<Message>>,
    /// Every event up to here was read.
    pub(super) read_to: i64,
}

/// The body of a message.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    timestamp: Timestamp,
    data: Event<&'a RawValue>,
}

/// The id of a message, the same for each attempt and after each restart. A store that was restored
/// from a backup may use a cursor a second time, for another event: hence the time.
pub(super) fn id(store: &str, cursor: i64, at: Timestamp) -> String {
    format!("evt_{}_{cursor}_{}", store.replace('-', ""), at.0)
}

/// The message with an event.
pub(super) fn message(store: &str, event: &StoredEvent) -> Message {
    let body = Body {
        kind: &event.kind,
        timestamp: event.at,
        data: shown(event),
    };
    Message {
        id: id(store, event.cursor, event.at),
        cursor: event.cursor,
        at: event.at,
        kind: event.kind.clone(),
        session_key: event.circumstances.session_key.clone(),
        run: event.run,
        // Such data contains only strings, numbers, lists and maps with string keys.
        body: serde_json::to_string(&body).expect("plain data has a JSON form"),
    }
}

/// Sends the pages after `cursor` until nothing receives them any more.
pub(super) async fn follow(
    registry: Registry,
    selection: Selection,
    mut cursor: i64,
    pages: mpsc::Sender<Page>,
) {
    let store = registry.store_id().to_owned();
    let mut head = registry.log_head();
    loop {
        let to = *head.borrow_and_update();
        if to <= cursor {
            // The sender lives as long as the store.
            if head.changed().await.is_err() {
                return;
            }
            continue;
        }
        let events = match registry.log_after(cursor, PAGE).await {
            Ok(LogPart::Events(events)) => events,
            // Retention has removed what comes next, and has counted what this webhook selects of it.
            Ok(LogPart::Expired(oldest)) => {
                cursor = oldest;
                continue;
            }
            Err(fault) => {
                tracing::warn!(%fault, "a webhook could not read the event log; it will retry");
                tokio::time::sleep(AGAIN_AFTER).await;
                continue;
            }
        };
        let is_all = events.len() < PAGE as usize;
        let last = events.last().map_or(cursor, |event| event.cursor);
        // Cursor numbers up to `to` without an event will never get one.
        cursor = if is_all { last.max(to) } else { last };
        reach("webhook.read");
        let selected = events.iter().filter(|event| {
            let session = event.circumstances.session_key.as_deref();
            selection.selects(&event.org, &event.kind, session)
        });
        let page = Page {
            messages: selected
                .map(|event| Arc::new(message(&store, event)))
                .collect(),
            read_to: cursor,
        };
        if pages.send(page).await.is_err() {
            return;
        }
        if is_all {
            tokio::time::sleep(REST).await;
        }
    }
}
