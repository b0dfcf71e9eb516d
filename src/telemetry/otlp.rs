//! Sends spans to a collector over OTLP/HTTP, as JSON
//! (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>). No work waits for it, and spans that the
//! collector does not accept are dropped.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::spans::{Attribute, TraceSpan};
use crate::kernel::time::Timestamp;
use crate::outbound;

/// Maximum number of span groups that may wait to be sent.
const WAITING: usize = 1000;
/// Approximate maximum number of spans per request.
const BATCH: usize = 500;
/// Timeout of a request to the collector.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Values of the OTLP enums `SpanKind` and `StatusCode`.
const INTERNAL: u8 = 1;
const CLIENT: u8 = 3;
const ERROR: u8 = 2;

static QUEUE: OnceLock<mpsc::Sender<Vec<TraceSpan>>> = OnceLock::new();

/// Are spans sent to a collector?
pub fn is_on() -> bool {
    QUEUE.get().is_some()
}

/// Queues spans; they are dropped if the queue is full.
pub fn send(spans: Vec<TraceSpan>) {
    if let Some(queue) = QUEUE.get()
        && queue.try_send(spans).is_err()
    {
        tracing::warn!("the collector is too slow: spans of a run are dropped");
    }
}

/// Once this returns, spans are sent to the collector at `endpoint`, such as
/// `http://127.0.0.1:4318/v1/traces`. Must be called within a Tokio runtime.
pub fn start(endpoint: &str) -> Result<(), String> {
    let client = outbound::client(endpoint)
        .timeout(TIMEOUT)
        .build()
        .map_err(|fault| fault.to_string())?;
    let (queue, waiting) = mpsc::channel(WAITING);
    if QUEUE.set(queue).is_ok() {
        tokio::spawn(send_all(client, endpoint.to_owned(), waiting));
    }
    Ok(())
}

async fn send_all(client: Client, endpoint: String, mut waiting: mpsc::Receiver<Vec<TraceSpan>>) {
    while let Some(mut batch) = waiting.recv().await {
        while batch.len() < BATCH
            && let Ok(more) = waiting.try_recv()
        {
            batch.extend(more);
        }
        let request = client
            .post(&endpoint)
            .header(CONTENT_TYPE, "application/json")
            .body(request(&batch).to_string());
        let answer = request.send().await.and_then(|it| it.error_for_status());
        if let Err(fault) = answer.map_err(reqwest::Error::without_url) {
            tracing::warn!(%fault, spans = batch.len(), "the collector did not accept the spans");
        }
    }
}

/// The JSON body of an `ExportTraceServiceRequest`.
fn request(batch: &[TraceSpan]) -> Value {
    let spans: Vec<Value> = batch.iter().map(span).collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": [
            attribute("service.name", &Attribute::from(env!("CARGO_PKG_NAME"))),
            attribute("service.version", &Attribute::from(env!("CARGO_PKG_VERSION"))),
        ] },
        "scopeSpans": [{ "scope": { "name": "abide" }, "spans": spans }],
    }] })
}

/// OTLP/JSON encoding: ids are hexadecimal, enums are numbers, and 64-bit numbers are strings.
fn span(span: &TraceSpan) -> Value {
    let id = |id: u64| format!("{id:016x}");
    let attributes = span.attributes.iter();
    let attributes: Vec<Value> = attributes
        .map(|(name, value)| attribute(name, value))
        .collect();
    let mut data = json!({
        "traceId": span.trace,
        "spanId": id(span.id),
        "name": span.name,
        "kind": if span.is_client { CLIENT } else { INTERNAL },
        "startTimeUnixNano": nanoseconds(span.start),
        "endTimeUnixNano": nanoseconds(span.end),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent {
        data["parentSpanId"] = id(parent).into();
    }
    if let Some(error) = &span.error {
        data["status"] = json!({ "code": ERROR, "message": error });
    }
    data
}

fn attribute(name: &str, value: &Attribute) -> Value {
    let value = match value {
        Attribute::Text(text) => json!({ "stringValue": text }),
        Attribute::Number(number) => json!({ "intValue": number.to_string() }),
    };
    json!({ "key": name, "value": value })
}

fn nanoseconds(at: Timestamp) -> String {
    (i128::from(at.0.max(0)) * 1_000_000).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_written_as_the_protocol_has_it() {
        let given = TraceSpan {
            trace: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
            id: 0x00f0_67aa_0ba9_02b7,
            parent: Some(1),
            name: "chat offline/search".to_owned(),
            is_client: true,
            start: Timestamp(1_764_400_000_123),
            end: Timestamp(1_764_400_000_124),
            error: Some("it failed".to_owned()),
            attributes: vec![("a", "text".into()), ("n", 7_u64.into())],
        };
        let written = request(&[given]);
        assert_eq!(
            written["resourceSpans"][0]["scopeSpans"][0]["spans"][0],
            json!({
                "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
                "spanId": "00f067aa0ba902b7",
                "parentSpanId": "0000000000000001",
                "name": "chat offline/search",
                "kind": 3,
                "startTimeUnixNano": "1764400000123000000",
                "endTimeUnixNano": "1764400000124000000",
                "attributes": [
                    { "key": "a", "value": { "stringValue": "text" } },
                    { "key": "n", "value": { "intValue": "7" } },
                ],
                "status": { "code": 2, "message": "it failed" },
            })
        );
    }
}
