//! The daemon's log on stderr: lines for users on a terminal, JSON lines otherwise. Metrics are in
//! [`metrics`], traces in [`spans`], the masking of secrets in [`hidden`].

mod live;
pub mod metrics;
mod otlp;
mod process;
pub mod redaction;
pub mod spans;

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format;

use crate::kernel::text::visible;

/// Starts the log. `ABIDE_LOG` filters it (`info`, `abide=debug`, …); an invalid filter is an error
/// and not replaced by the default.
pub fn start() -> Result<(), String> {
    let filter = match std::env::var("ABIDE_LOG") {
        Ok(text) if !text.is_empty() => {
            EnvFilter::try_new(&text).map_err(|fault| format!("ABIDE_LOG={text}: {fault}"))?
        }
        _ => EnvFilter::new("info,rmcp=warn"),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(redaction::RedactedStderr);
    let started = if std::io::stderr().is_terminal() {
        // The fields are made visible here, in the one spelling for all texts.
        let fields = format::debug_fn(|writer, field, value| {
            let mut text = visible(&format!("{value:?}"));
            if text.starts_with('"') {
                // What a text has quoted and written out itself stays as it is.
                text = text.replace("\\\"", "\"").replace("\\\\", "\\");
            }
            match field.name() {
                "message" => write!(writer, "{text}"),
                name => write!(writer, "{name}={text}"),
            }
        });
        builder
            .with_target(false)
            .with_ansi_sanitization(false)
            .fmt_fields(fields.delimited(" "))
            .try_init()
    } else {
        builder.json().flatten_event(true).try_init()
    };
    started.map_err(|fault| format!("the log cannot be started: {fault}"))
}

/// Once this returns, spans are sent to the collector at `endpoint`. Must be called within a Tokio
/// runtime.
pub fn trace_to(endpoint: &str) -> Result<(), String> {
    otlp::start(endpoint)
}
