//! Communication with the supervisor. systemd is notified over `NOTIFY_SOCKET`; any other
//! supervisor sets `ABIDE_SUPERVISOR`, so that restarts go through it. `ABIDE_STOP_TIMEOUT` is how
//! long the supervisor waits before it kills. Sockets that it passes (`LISTEN_FDS`) are taken over in
//! `listen/passed.rs`.

use std::convert::Infallible;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio_util::task::AbortOnDropHandle;

use super::DaemonFailure;
use crate::contract::control::Then;
use crate::registry::Registry;

/// Drain timeout if neither settings nor supervisor set one.
const DRAIN: Duration = Duration::from_secs(20);
/// The part of the supervisor's stop timeout that is reserved for the end after the drain: last
/// answers and the write-ahead log.
const AFTER_DRAIN: Duration = Duration::from_secs(10);
/// Timeout extension requested from systemd during long operations.
const EXTENSION: Duration = Duration::from_secs(60);
/// Interval of progress reports during the start.
const PROGRESS: Duration = Duration::from_millis(250);

/// The supervisor of this process, if there is one.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    notified: bool,
    activated: bool,
    watchdog: Option<Duration>,
    named: bool,
    stop_timeout: Option<Duration>,
}

impl Supervisor {
    /// Reads the environment.
    pub fn from_env() -> Result<Self, DaemonFailure> {
        let text = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let stop_timeout = text("ABIDE_STOP_TIMEOUT")
            .map(|text| {
                humantime::parse_duration(&text).map_err(|fault| {
                    DaemonFailure::Config(format!("ABIDE_STOP_TIMEOUT={text}: {fault}; write 90s"))
                })
            })
            .transpose()?;
        Ok(Supervisor {
            notified: text("NOTIFY_SOCKET").is_some(),
            activated: text("LISTEN_PID").is_some_and(|pid| pid == std::process::id().to_string()),
            watchdog: sd_notify::watchdog_enabled().filter(|period| !period.is_zero()),
            named: text("ABIDE_SUPERVISOR").is_some(),
            stop_timeout,
        })
    }

    /// Will a supervisor start the daemon again? One that passed sockets does: they cannot be passed
    /// on to a program that this process would start.
    pub fn is_present(&self) -> bool {
        self.notified || self.named || self.activated
    }

    /// How long running steps may continue: as configured, but short enough that the supervisor
    /// does not kill before the end.
    pub fn drain_timeout(&self, configured: Option<Duration>) -> Duration {
        let most = self
            .stop_timeout
            .map(|limit| limit.saturating_sub(AFTER_DRAIN).max(limit / 2));
        match (configured, most) {
            (Some(configured), Some(most)) => configured.min(most),
            (one, other) => one.or(other).unwrap_or(DRAIN),
        }
    }

    /// Reports the progress of the start until dropped. More time is requested only while there is
    /// progress: a start that hangs is left to the supervisor to end.
    pub async fn report_progress(&self, progress: impl Fn() -> (u64, u64)) -> Infallible {
        if !self.notified {
            return std::future::pending().await;
        }
        let mut told = None;
        let mut ticks = tokio::time::interval(PROGRESS);
        loop {
            ticks.tick().await;
            let (done, total) = progress();
            if told != Some((done, total)) {
                told = Some((done, total));
                let text = format!("restoring: {done} of {total} open runs");
                self.notify(&[NotifyState::Status(&text), extension(EXTENSION)]);
            }
        }
    }

    /// Reports that the store is being opened, which can take a while after an upgrade.
    pub fn opening(&self) {
        self.notify(&[
            NotifyState::Status("opening the store"),
            extension(EXTENSION),
        ]);
    }

    /// Reports that work is accepted and `restored` open runs continue.
    pub fn ready(&self, restored: usize) {
        let text = format!("ready; {restored} open runs were restored");
        self.notify(&[NotifyState::Ready, NotifyState::Status(&text)]);
    }

    /// Reports ready on a full disk, so that the supervisor does not end the start.
    pub fn full(&self) {
        self.notify(&[
            NotifyState::Ready,
            NotifyState::Status("the disk is full: work waits for free space"),
        ]);
    }

    /// Reports that work is accepted again after a drain.
    pub fn resumed(&self) {
        self.notify(&[NotifyState::Status("ready")]);
    }

    /// Reports a drain and requests time for it. Once this returns, no more time is requested: by
    /// then the process should be gone.
    pub async fn draining(&self, then: Then, timeout: Duration) {
        let text = match then {
            Then::Stop => "draining, then stopping",
            Then::Restart => "draining, then restarting",
            Then::Resume => "draining, then ready again",
        };
        if then == Then::Resume {
            return self.notify(&[NotifyState::Status(text)]);
        }
        self.notify(&[NotifyState::Stopping, NotifyState::Status(text)]);
        if !self.notified {
            return;
        }
        let mut left = timeout + AFTER_DRAIN;
        while !left.is_zero() {
            let step = left.min(EXTENSION);
            self.notify(&[extension(step)]);
            // Half a step early, so that two extensions overlap.
            tokio::time::sleep(step / 2).await;
            left = left
                .saturating_sub(step / 2)
                .saturating_sub(Duration::from_millis(1));
        }
    }

    /// Sends the watchdog signal at half the watchdog period while `answers` completes in time.
    /// Returns at once if no watchdog is set.
    async fn send_watchdog<F>(&self, answers: impl Fn() -> F)
    where
        F: Future<Output = ()>,
    {
        let Some(period) = self.watchdog.filter(|_| self.notified) else {
            return;
        };
        let mut ticks = tokio::time::interval(period / 2);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match tokio::time::timeout(period / 2, answers()).await {
                Ok(()) => self.notify(&[NotifyState::Watchdog]),
                Err(_) => {
                    tracing::error!(waited = ?period / 2, "the store or the registry does not answer");
                    self.notify(&[NotifyState::Status(
                        "the store or the registry does not answer",
                    )]);
                }
            }
        }
    }

    /// Sends the watchdog signal while the registry answers, until the returned task is dropped.
    pub fn start_watchdog(&self, registry: &Registry) -> AbortOnDropHandle<()> {
        let (supervisor, registry) = (self.clone(), registry.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            supervisor.send_watchdog(|| registry.answers()).await;
        }))
    }

    fn notify(&self, states: &[NotifyState<'_>]) {
        if self.notified
            && let Err(fault) = sd_notify::notify(states)
        {
            tracing::warn!(%fault, "the service manager could not be notified");
        }
    }
}

fn extension(time: Duration) -> NotifyState<'static> {
    NotifyState::ExtendTimeoutUsec(u32::try_from(time.as_micros()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_never_outlasts_the_supervisors_patience() {
        let seconds = Duration::from_secs;
        let with = |limit: Option<u64>| Supervisor {
            stop_timeout: limit.map(seconds),
            ..Supervisor::default()
        };
        for (limit, configured, expected) in [
            (None, None, 20),
            (None, Some(300), 300),
            (Some(90), None, 80),
            (Some(90), Some(30), 30),
            (Some(90), Some(300), 80),
            (Some(10), None, 5),
        ] {
            let found = with(limit).drain_timeout(configured.map(seconds));
            assert_eq!(found, seconds(expected), "{limit:?} {configured:?}");
        }
    }
}
