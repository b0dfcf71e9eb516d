//! Signal handling. SIGTERM and SIGINT: the first starts a drain, a second cuts it short; SIGXCPU,
//! a warning of the processor time limit, counts like them. SIGHUP reloads the configuration.
//! SIGXFSZ, SIGUSR1 and SIGUSR2 would kill the process and do nothing here: a write past the file
//! size limit fails, as on a full disk.
//!
//! They are caught and not ignored, so that programs started by the daemon get the default actions.

use std::sync::Arc;

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;

use super::DaemonFailure;
use super::control::Process;
use crate::contract::control::{Control, SettingChange};

/// The signals that the daemon handles, caught from the moment this is created.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    processor_time: Signal,
    hangups: Signal,
}

impl Signals {
    /// Installs the handlers. Called before clients can find the daemon: a signal right after
    /// "ready" must drain and not kill.
    pub fn catch() -> Result<Self, DaemonFailure> {
        let watch = |kind| {
            signal(kind).map_err(|fault| {
                DaemonFailure::System("signals cannot be received".to_owned(), fault)
            })
        };
        for unused in [Number::XFSZ, Number::USR1, Number::USR2] {
            // The handler stays installed for the life of the process, even without a listener.
            watch(SignalKind::from_raw(unused.as_raw())).map(drop)?;
        }
        Ok(Signals {
            terminate: watch(SignalKind::terminate())?,
            interrupt: watch(SignalKind::interrupt())?,
            processor_time: watch(SignalKind::from_raw(Number::XCPU.as_raw()))?,
            hangups: watch(SignalKind::hangup())?,
        })
    }

    /// Once this returns, signals drain and end the process until it is gone, and reload the
    /// configuration until the returned task is dropped.
    pub fn handle(self, process: &Arc<Process>) -> AbortOnDropHandle<()> {
        let Signals {
            mut terminate,
            mut interrupt,
            mut processor_time,
            hangups,
        } = self;
        let ended = Arc::clone(process);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                    _ = processor_time.recv() => {
                        tracing::error!("the limit on processor time (ulimit -t) is near: draining");
                    }
                }
                ended.terminate();
            }
        });
        let reloads = reload_at_hangups(hangups, Arc::clone(process));
        AbortOnDropHandle::new(tokio::spawn(reloads))
    }
}

/// Reloads the configuration at each SIGHUP and logs the changes.
async fn reload_at_hangups(mut hangups: Signal, process: Arc<Process>) {
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

fn keys(changes: &[SettingChange]) -> String {
    let keys: Vec<&str> = changes.iter().map(|change| &*change.key).collect();
    keys.join(", ")
}
