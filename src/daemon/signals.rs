//! SIGTERM and SIGINT: the first begins the drain, a second ends its patience.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;

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
