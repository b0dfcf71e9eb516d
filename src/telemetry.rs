//! The daemon's log on stderr: lines for users on a terminal, JSON lines otherwise. Metrics are in
//! [`metrics`], traces in [`spans`], the masking of secrets in [`hidden`].

pub mod metrics;
mod otlp;
pub mod redaction;
pub mod spans;

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

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
        .with_writer(redaction::Lines);
    let started = if std::io::stderr().is_terminal() {
        builder.with_target(false).try_init()
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
