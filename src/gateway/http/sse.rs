//! `GET /events`: the event log as server-sent events, for readers without JSON-RPC. It is
//! `events.subscribe` with its parameters in the query string, and delivers the same events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Interval;
use tokio_util::sync::CancellationToken;

use crate::gateway::methods::events;
use crate::gateway::rpc::subscriptions::{ServedSubscription, Subscriptions};
use crate::gateway::rpc::{Connection, Dispatcher, RpcAnswer};
use crate::kernel::fault::Fault;
use crate::registry::Principal;

/// Interval of comments that keep the connection alive.
const COMMENT: Duration = Duration::from_secs(15);
/// Delay before a disconnected reader reconnects, in milliseconds.
const RETRY_MS: u32 = 2000;
/// Header with the last event id that a reconnecting reader received.
const LAST_EVENT_ID: &str = "last-event-id";

/// Result of the request.
pub(crate) enum SseOutcome {
    /// Event stream, which continues until the daemon stops.
    Stream(Response<UnsyncBoxBody<Bytes, Infallible>>),
    /// JSON-RPC error code and response text.
    Refused(i64, String),
}

#[derive(Deserialize)]
struct ErrorReply {
    error: Code,
}

#[derive(Deserialize)]
struct Code {
    code: i64,
}

/// Subscribes with the parameters of the query string.
pub(crate) async fn open(
    dispatcher: &Arc<Dispatcher>,
    who: &Arc<Principal>,
    shutdown: &CancellationToken,
    query: &str,
    headers: &HeaderMap,
) -> Result<SseOutcome, Fault> {
    let message = json!({
        "jsonrpc": "2.0", "id": null, "method": "events.subscribe",
        "params": params(query, headers)?,
    });
    let subscriptions = Subscriptions::new(1);
    let connection = Arc::new(Connection::with(Arc::clone(&subscriptions)));
    let answer = match dispatcher.answer(&connection, who, &message.to_string()) {
        RpcAnswer::Later(answer) => answer.await,
        RpcAnswer::Now(text) => text,
        RpcAnswer::None => String::new(),
    };
    match subscriptions.take_begun().pop() {
        Some(served) => {
            let (who, shutdown) = (Arc::clone(who), shutdown.child_token());
            Ok(SseOutcome::Stream(stream(served, who, shutdown)))
        }
        None => {
            let refusal: ErrorReply = serde_json::from_str(&answer).map_err(Fault::internal)?;
            Ok(SseOutcome::Refused(refusal.error.code, answer))
        }
    }
}

/// Parameters of the subscription from the query string. `Last-Event-ID` of a reconnecting reader
/// replaces `since`, because it is newer than the one of its first request.
fn params(query: &str, headers: &HeaderMap) -> Result<Map<String, Value>, Fault> {
    let mut params = Map::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let value = match name.as_ref() {
            "since" => number("since", &value)?,
            "deltas" => match value.as_ref() {
                "true" | "1" => Value::Bool(true),
                "false" | "0" => Value::Bool(false),
                _ => return Err(Fault::params("deltas", "true or false is expected")),
            },
            "kinds" => {
                let mut kinds = match params.remove("kinds") {
                    Some(Value::Array(kinds)) => kinds,
                    _ => Vec::new(),
                };
                kinds.extend(value.split(',').map(Value::from));
                Value::Array(kinds)
            }
            _ => Value::from(value.into_owned()),
        };
        params.insert(name.into_owned(), value);
    }
    if let Some(last) = headers.get(LAST_EVENT_ID) {
        let text = last.to_str().unwrap_or_default();
        params.insert("since".to_owned(), number("Last-Event-ID", text)?);
    }
    Ok(params)
}

fn number(name: &str, text: &str) -> Result<Value, Fault> {
    text.trim()
        .parse::<u64>()
        .map(Value::from)
        .map_err(|_| Fault::params(name, "a cursor is a whole number"))
}

/// State of an event stream.
struct Streaming {
    /// `None` once the stream has ended.
    served: Option<ServedSubscription>,
    comment: Interval,
    who: Arc<Principal>,
    shutdown: CancellationToken,
    ready: VecDeque<Bytes>,
}

fn stream(
    served: ServedSubscription,
    who: Arc<Principal>,
    shutdown: CancellationToken,
) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let mut comment = tokio::time::interval(COMMENT);
    comment.reset();
    comment.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let streaming = Streaming {
        served: Some(served),
        comment,
        who,
        shutdown,
        ready: VecDeque::from([Bytes::from(format!("retry: {RETRY_MS}\n\n"))]),
    };
    let chunks = stream::unfold(streaming, async |mut streaming| {
        let chunk = streaming.next().await?;
        Some((Ok(Frame::data(chunk)), streaming))
    });
    let mut response = Response::new(StreamBody::new(chunks).boxed_unsync());
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl Streaming {
    /// The next chunk. It is polled only after the previous one was sent, so that nothing
    /// accumulates for a reader that does not read.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(chunk) = self.ready.pop_front() {
            return Some(chunk);
        }
        let served = self.served.as_mut()?;
        let items = tokio::select! {
            biased;
            _ = self.who.ended() => None,
            () = self.shutdown.cancelled() => None,
            items = served.items() => items,
            _ = self.comment.tick() => return Some(Bytes::from_static(b": keep-alive\n\n")),
        };
        let Some(items) = items else {
            self.served = None;
            return None;
        };
        let mut chunk = String::new();
        for item in &items {
            if let Some(cursor) = events::cursor(item) {
                chunk.push_str(&format!("id: {cursor}\n"));
            }
            let text = events::text(item, served.clock());
            chunk.push_str(&format!("data: {text}\n\n"));
        }
        Some(chunk.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_as_parameters() {
        let read = |query: &str| Value::from(params(query, &HeaderMap::new()).unwrap());
        assert_eq!(
            read("since=5&kinds=run.*,tool.*&kinds=message.added&deltas=true&runId=x&other=%20"),
            json!({
                "since": 5, "kinds": ["run.*", "tool.*", "message.added"], "deltas": true,
                "runId": "x", "other": " ",
            })
        );
        assert_eq!(read(""), json!({}));
        for bad in ["since=x", "since=-1", "deltas=perhaps"] {
            assert!(params(bad, &HeaderMap::new()).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_last_item_that_a_reader_had_goes_before_its_first_request() {
        let mut headers = HeaderMap::new();
        headers.insert(LAST_EVENT_ID, HeaderValue::from_static("17"));
        let read = params("since=5", &headers).unwrap();
        assert_eq!(read["since"], 17);
    }
}
