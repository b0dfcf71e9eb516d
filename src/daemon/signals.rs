//! SIGTERM and SIGINT: the first begins the drain, a second ends its patience. SIGHUP: the
//! configuration is read again.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;
use super::phase::Process;
use crate::contract::control::{Change, Control};

/// The signals that end the daemon, caught from the moment this is made.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Catches them. Made before anybody can know of the daemon: a signal that comes right
    /// after "ready" must drain and not kill.
    pub fn catch() -> Result<Self, Failure> {
        let watch = |kind| {
            signal(kind)
                .map_err(|fault| Failure::System("signals cannot be received".to_owned(), fault))
        };
        Ok(Signals {
            terminate: watch(SignalKind::terminate())?,
            interrupt: watch(SignalKind::interrupt())?,
        })
    }

    /// Returns at the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Hang-ups, caught from now on.
pub fn hangups() -> Result<Signal, Failure> {
    signal(SignalKind::hangup())
        .map_err(|fault| Failure::System("signals cannot be received".to_owned(), fault))
}

/// Reads the configuration again at each hang-up, and says in the log what that changed.
pub async fn reload_at_hangups(mut hangups: Signal, process: Arc<Process>) {
    while hangups.recv().await.is_some() {
        match process.reload().await {
            Ok(reloaded) => {
                tracing::info!(
                    applied = keys(&reloaded.applied),
                    needs_restart = keys(&reloaded.needs_restart),
                    "the configuration was read again"
                );
                for warning in reloaded.warnings {
                    tracing::warn!("{warning}");
                }
            }
            Err(fault) => tracing::error!(%fault, "the configuration was not taken"),
        }
    }
}

fn keys(changes: &[Change]) -> String {
    let keys: Vec<&str> = changes.iter().map(|change| &*change.key).collect();
    keys.join(", ")
}
