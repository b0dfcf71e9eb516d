//! The daemon's log: lines for people on a terminal, JSON lines otherwise, always on stderr.
//! Its numbers are in [`metrics`], its traces in [`spans`], what it does not say is in [`hidden`].

pub mod hidden;
pub mod metrics;
mod otlp;
pub mod spans;

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts the log. `ABIDE_LOG` filters it (`info`, `abide=debug`, …); a filter that cannot be
/// read is an error and not a silent default.
pub fn start() -> Result<(), String> {
    let filter = match std::env::var("ABIDE_LOG") {
        Ok(text) if !text.is_empty() => {
            EnvFilter::try_new(&text).map_err(|fault| format!("ABIDE_LOG={text}: {fault}"))?
        }
        _ => EnvFilter::new("info,rmcp=warn"),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(hidden::Lines);
    let started = if std::io::stderr().is_terminal() {
        builder.with_target(false).try_init()
    } else {
        builder.json().flatten_event(true).try_init()
    };
    started.map_err(|fault| format!("the log cannot be started: {fault}"))
}

/// Once this returns, spans go to the collector at `endpoint`. Called in a runtime.
pub fn trace_to(endpoint: &str) -> Result<(), String> {
    otlp::start(endpoint)
}
