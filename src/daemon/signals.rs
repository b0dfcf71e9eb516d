//! Signal handling. SIGTERM and SIGINT: the first starts a drain, a second cuts it short; SIGXCPU,
//! a warning of the processor time limit, counts like them. SIGHUP reloads the configuration.
//! SIGXFSZ, SIGUSR1 and SIGUSR2 would kill the process and do nothing here: a write past the file
//! size limit fails, as on a full disk.
//!
//! They are caught and not ignored, so that programs started by the daemon get the default actions.

use std::sync::Arc;

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;
use super::phase::Process;
use crate::contract::control::{Change, Control};

/// The signals that end the daemon, caught from the moment this is created.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    processor_time: Signal,
}

impl Signals {
    /// Installs the handlers. Called before clients can find the daemon: a signal right after
    /// "ready" must drain and not kill.
    pub fn catch() -> Result<Self, Failure> {
        let watch = |kind| {
            signal(kind)
                .map_err(|fault| Failure::System("signals cannot be received".to_owned(), fault))
        };
        for unused in [Number::XFSZ, Number::USR1, Number::USR2] {
            // The handler stays installed for the life of the process, even without a listener.
            watch(SignalKind::from_raw(unused.as_raw())).map(drop)?;
        }
        Ok(Signals {
            terminate: watch(SignalKind::terminate())?,
            interrupt: watch(SignalKind::interrupt())?,
            processor_time: watch(SignalKind::from_raw(Number::XCPU.as_raw()))?,
        })
    }

    /// Returns at the next of these signals.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.processor_time.recv() => {
                tracing::error!("the limit on processor time (ulimit -t) is near: draining");
            }
        }
    }
}

/// Catches SIGHUP from now on.
pub fn hangups() -> Result<Signal, Failure> {
    signal(SignalKind::hangup())
        .map_err(|fault| Failure::System("signals cannot be received".to_owned(), fault))
}

/// Reloads the configuration at each SIGHUP and logs the changes.
pub async fn reload_at_hangups(mut hangups: Signal, process: Arc<Process>) {
    while hangups.recv().await.is_some() {
        match process.reload().await {
            Ok(reloaded) => {
                tracing::info!(
                    applied = keys(&reloaded.applied),
                    needs_restart = keys(&reloaded.needs_restart),
                    "the configuration was reloaded"
                );
                for warning in reloaded.warnings {
                    tracing::warn!("{warning}");
                }
            }
            Err(fault) => {
                tracing::error!(%fault, "the configuration was not reloaded; the settings in force are unchanged")
            }
        }
    }
}

fn keys(changes: &[Change]) -> String {
    let keys: Vec<&str> = changes.iter().map(|change| &*change.key).collect();
    keys.join(", ")
}
