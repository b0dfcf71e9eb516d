//! Tells the service manager how the node is doing. Without one this does nothing.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio_util::task::AbortOnDropHandle;

/// The service manager of this process, if there is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServiceManager {
    is_there: bool,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Reads the environment.
    pub(super) fn from_env() -> ServiceManager {
        ServiceManager {
            is_there: std::env::var_os("NOTIFY_SOCKET").is_some_and(|path| !path.is_empty()),
            watchdog: sd_notify::watchdog_enabled().filter(|period| !period.is_zero()),
        }
    }

    /// The node runs; it connects to its gateways.
    pub(super) fn ready(self) {
        self.notify(&[NotifyState::Ready]);
    }

    /// How the links are.
    pub(super) fn status(self, text: &str) {
        self.notify(&[NotifyState::Status(text)]);
    }

    /// The node is about to end.
    pub(super) fn stopping(self) {
        self.notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    }

    /// Sends the watchdog signal until the returned task is dropped. It runs on the runtime that
    /// the links run on, so that it fails with them.
    pub(super) fn start_watchdog(self) -> Option<AbortOnDropHandle<()>> {
        let period = self.watchdog.filter(|_| self.is_there)?;
        Some(AbortOnDropHandle::new(tokio::spawn(async move {
            let mut ticks = tokio::time::interval(period / 2);
            loop {
                ticks.tick().await;
                self.notify(&[NotifyState::Watchdog]);
            }
        })))
    }

    fn notify(self, states: &[NotifyState<'_>]) {
        if self.is_there
            && let Err(fault) = sd_notify::notify(states)
        {
            tracing::warn!(%fault, "the service manager could not be notified");
        }
    }
}
