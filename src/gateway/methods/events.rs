//! Handlers of `events.*`: subscriptions of WebSocket connections, and the serialization of events.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;

use super::convert;
use super::method::MethodsBuilder;
use crate::clock::Clock;
use crate::gateway::CallContext;
use crate::gateway::rpc::Connection;
use crate::kernel::fault::{Fault, Kind};
use crate::registry::{
    EventFilter, KindPattern, LiveSnapshot, StoredEvent, Subscribe, SubscriptionItem, TextEvent,
    TextUpdate, shown,
};
use crate::wire::events as wire;
use crate::wire::gateway::Empty;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.connected(subscribe);
    table.connected(unsubscribe);
}

async fn subscribe(
    context: Arc<CallContext>,
    connection: Arc<Connection>,
    params: wire::SubscribeEvents,
) -> Result<String, Fault> {
    let subscriptions = connection.subscriptions()?;
    let request = request(params)?;
    let place = subscriptions.reserve(context.clock.new_id().to_string())?;
    let registry = &context.registry;
    let subscription = registry.subscribe(&context.principal, request).await?;
    // No await from here on: the response with the id is sent before the first event.
    Ok(place.begin(subscription, context.clock.clone()))
}

async fn unsubscribe(
    _: Arc<CallContext>,
    connection: Arc<Connection>,
    params: wire::UnsubscribeEvents,
) -> Result<Empty, Fault> {
    if connection.subscriptions()?.end(&params.subscription) {
        return Ok(Empty {});
    }
    let fault = Fault::not_found("subscription of this connection", params.subscription);
    Err(fault.hint("a subscription that lagged has already ended"))
}

fn request(params: wire::SubscribeEvents) -> Result<Subscribe, Fault> {
    let mut kinds = Vec::with_capacity(params.kinds.len());
    for (place, text) in params.kinds.iter().enumerate() {
        let shown = crate::kernel::text::prefix(text, 80);
        kinds.push(KindPattern::parse(text).ok_or_else(|| {
            Fault::params(
                &format!("kinds[{place}]"),
                format!("{shown:?} is neither an event kind nor a prefix such as run.*"),
            )
        })?);
    }
    Ok(Subscribe {
        filter: EventFilter {
            session: params.session_key,
            run: params.run_id,
            tree: params.tree,
            kinds,
            ..EventFilter::default()
        },
        // A number beyond the cursor range is a cursor that this log has not reached.
        since: params
            .since
            .map(|since| i64::try_from(since).unwrap_or(i64::MAX)),
        store_id: params.store_id,
        deltas: params.deltas,
    })
}

/// Error for a subscription over a transport with a single response.
pub(crate) fn needs_websocket() -> Fault {
    Fault::new(
        Kind::InvalidRequest,
        "a subscription needs a WebSocket: a POST has only one response",
    )
    .hint("open a WebSocket at /, or read GET /events")
}

/// Serializes an item as a notification of the subscription `id`.
pub(crate) fn notification(id: &str, item: &SubscriptionItem, clock: &Clock) -> String {
    let text = text(item, clock);
    let method = wire::NOTIFICATION;
    format!(
        r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"subscription":"{id}","result":{text}}}}}"#
    )
}

/// Cursor with which a reader resumes after this item; `None` if the item is not stored.
pub(crate) fn cursor(item: &SubscriptionItem) -> Option<i64> {
    match item {
        SubscriptionItem::Event(event) => Some(event.event.cursor),
        SubscriptionItem::Snapshot(snapshot) => Some(snapshot.cursor),
        SubscriptionItem::Lagged { cursor, .. } => Some(*cursor),
        SubscriptionItem::Text(_) => None,
    }
}

/// Serializes an item as one line of JSON.
pub(crate) fn text<'a>(item: &'a SubscriptionItem, clock: &Clock) -> Cow<'a, str> {
    match item {
        SubscriptionItem::Event(event) => Cow::Borrowed(event.text(stored)),
        SubscriptionItem::Snapshot(snapshot) => {
            Cow::Owned(write(clock, wire::SNAPSHOT, snapshot_data(snapshot)))
        }
        SubscriptionItem::Lagged { cursor, setting } => {
            let data = wire::Lagged {
                resume_from: *cursor,
                setting: (*setting).into(),
            };
            Cow::Owned(write(clock, wire::LAGGED, data))
        }
        SubscriptionItem::Text(text) => Cow::Owned(text_event(clock, text)),
    }
}

fn stored(event: &StoredEvent) -> String {
    to_json(&shown(event))
}

fn write(clock: &Clock, kind: &str, data: impl Serialize) -> String {
    to_json(&wire::Event {
        cursor: None,
        at: clock.now(),
        kind: kind.to_owned(),
        org_id: None,
        session_key: None,
        run_id: None,
        parent_run_id: None,
        trace_id: None,
        data,
    })
}

fn snapshot_data(snapshot: &LiveSnapshot) -> wire::Snapshot {
    let runs = snapshot.runs.iter().cloned();
    let sessions = snapshot.sessions.iter().cloned();
    wire::Snapshot {
        cursor: snapshot.cursor,
        store_id: snapshot.store_id.clone(),
        sessions: sessions.map(convert::session).collect(),
        runs: runs
            .map(|run| convert::run(run, convert::RESULT_PREVIEW))
            .collect(),
        more: snapshot.more,
    }
}

fn text_event(clock: &Clock, text: &TextEvent) -> String {
    let (kind, offset, said) = match &text.what {
        TextUpdate::Partial(said) => ("message.partial", None, Some(said)),
        TextUpdate::Delta(offset, said) => ("message.delta", Some(*offset as u64), Some(said)),
        TextUpdate::Thinking(offset, said) => ("message.delta", Some(*offset as u64), Some(said)),
        TextUpdate::Reset => ("message.reset", None, None),
    };
    let channel = match &text.what {
        TextUpdate::Thinking(..) => Some("thinking"),
        TextUpdate::Partial(_) | TextUpdate::Delta(..) => Some("text"),
        TextUpdate::Reset => None,
    };
    to_json(&wire::Event {
        cursor: None,
        at: clock.now(),
        kind: kind.to_owned(),
        org_id: Some(text.org.clone()),
        session_key: Some(text.session.clone()),
        run_id: Some(text.run),
        parent_run_id: None,
        trace_id: Some(text.trace.clone()),
        data: wire::MessageText {
            run_id: text.run,
            message_id: text.message,
            channel: channel.map(str::to_owned),
            offset,
            text: said.cloned(),
        },
    })
}

fn to_json(value: &impl Serialize) -> String {
    // These types contain only strings, numbers, lists and maps with string keys.
    serde_json::to_string(value).expect("plain data has a JSON form")
}
