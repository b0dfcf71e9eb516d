//! The daemon's log: lines on standard error, for a terminal, a file or a supervisor. Started
//! once, by `abide serve`.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// Sends the log to standard error. `ABIDE_LOG` chooses what is in it (`debug`,
/// `abide::store=trace`, …); else everything from `info` on, on a terminal from `warn` on.
pub fn start() {
    let terminal = io::stderr().is_terminal();
    let usual = if terminal { "warn" } else { "info" };
    let chosen = EnvFilter::try_from_env("ABIDE_LOG").unwrap_or_else(|_| EnvFilter::new(usual));
    let log = tracing_subscriber::fmt()
        .with_env_filter(chosen)
        .with_ansi(terminal && std::env::var_os("NO_COLOR").is_none())
        .with_writer(io::stderr);
    // A second start keeps the first log.
    let _ = log.try_init();
}
