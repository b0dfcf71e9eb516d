//! SIGTERM and SIGINT: the first begins the drain, a second ends its patience. SIGXCPU, which
//! says that little processor time is left, counts like them. SIGHUP: the configuration is read
//! again. SIGXFSZ, SIGUSR1 and SIGUSR2 would end the process without a word, and do nothing here:
//! a write past the limit on file sizes fails, as on a full disk.
//!
//! They are caught and not ignored: programs that the daemon starts get back what the system does.

use std::sync::Arc;

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;
use super::phase::Process;
use crate::contract::control::{Change, Control};

/// The signals that end the daemon, caught from the moment this is made.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    processor_time: Signal,
}

impl Signals {
    /// Catches them. Made before anybody can know of the daemon: a signal that comes right
    /// after "ready" must drain and not kill.
    pub fn catch() -> Result<Self, Failure> {
        let watch = |kind| {
            signal(kind)
                .map_err(|fault| Failure::System("signals cannot be received".to_owned(), fault))
        };
        for unused in [Number::XFSZ, Number::USR1, Number::USR2] {
            // Caught for as long as the process lives, whether anybody listens or not.
            watch(SignalKind::from_raw(unused.as_raw())).map(drop)?;
        }
        Ok(Signals {
            terminate: watch(SignalKind::terminate())?,
            interrupt: watch(SignalKind::interrupt())?,
            processor_time: watch(SignalKind::from_raw(Number::XCPU.as_raw()))?,
        })
    }

    /// Returns at the next one.
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
