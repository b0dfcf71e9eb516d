//! Sends spans to a collector over OTLP/HTTP (JSON). In builds with the feature `otlp` alone;
//! nobody waits for it, and what a collector does not take is left out.

use std::sync::OnceLock;
use std::time::Duration;

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use tokio::sync::mpsc;

use super::spans::{Attribute, Span};
use crate::outbound;

/// So many groups of spans may wait to be sent.
const WAITING: usize = 1000;
/// So many spans go in one request, about.
const BATCH: usize = 500;
/// A collector may take this long.
const PATIENCE: Duration = Duration::from_secs(10);

static QUEUE: OnceLock<mpsc::Sender<Vec<Span>>> = OnceLock::new();

/// Are spans sent anywhere?
pub fn is_on() -> bool {
    QUEUE.get().is_some()
}

/// Hands spans over; they are left out where too many wait already.
pub fn send(spans: Vec<Span>) {
    if let Some(queue) = QUEUE.get()
        && queue.try_send(spans).is_err()
    {
        tracing::warn!("the collector is too slow: spans of a run are left out");
    }
}

/// Once this returns, spans go to the collector at `endpoint`, such as
/// `http://127.0.0.1:4318/v1/traces`. Called in a runtime.
pub fn start(endpoint: &str) -> Result<(), String> {
    let client = outbound::client(endpoint)
        .timeout(PATIENCE)
        .build()
        .map_err(|fault| fault.to_string())?;
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(Protocol::HttpJson)
        .with_timeout(PATIENCE)
        .with_endpoint(endpoint)
        .build()
        .map_err(|fault| fault.to_string())?;
    let service = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder_empty()
        .with_service_name(env!("CARGO_PKG_NAME"))
        .with_attribute(service);
    exporter.set_resource(&resource.build());
    let (queue, waiting) = mpsc::channel(WAITING);
    if QUEUE.set(queue).is_ok() {
        tokio::spawn(send_all(exporter, waiting));
    }
    Ok(())
}

async fn send_all(exporter: SpanExporter, mut waiting: mpsc::Receiver<Vec<Span>>) {
    while let Some(mut batch) = waiting.recv().await {
        while batch.len() < BATCH
            && let Ok(more) = waiting.try_recv()
        {
            batch.extend(more);
        }
        let data = batch.iter().filter_map(data).collect();
        if let Err(fault) = exporter.export(data).await {
            tracing::warn!(%fault, spans = batch.len(), "the collector took no spans");
        }
    }
}

fn data(span: &Span) -> Option<SpanData> {
    let context = SpanContext::new(
        TraceId::from_hex(&span.trace).ok()?,
        SpanId::from_bytes(span.id.to_be_bytes()),
        TraceFlags::SAMPLED,
        false,
        TraceState::NONE,
    );
    let parent = span.parent.map_or(SpanId::INVALID, |parent| {
        SpanId::from_bytes(parent.to_be_bytes())
    });
    let attributes = span.attributes.iter().map(|(name, value)| match value {
        Attribute::Text(text) => KeyValue::new(*name, text.clone()),
        Attribute::Number(number) => KeyValue::new(*name, *number),
    });
    Some(SpanData {
        span_context: context,
        parent_span_id: parent,
        parent_span_is_remote: false,
        span_kind: match span.is_client {
            true => SpanKind::Client,
            false => SpanKind::Internal,
        },
        name: span.name.clone().into(),
        start_time: span.start.into(),
        end_time: span.end.into(),
        attributes: attributes.collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: match &span.error {
            Some(error) => Status::error(error.clone()),
            None => Status::Unset,
        },
        instrumentation_scope: InstrumentationScope::builder("abide").build(),
    })
}
