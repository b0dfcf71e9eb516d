//! Timers without a drive task: time limits of settling runs, and deadlines of waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::command::{Conclude, Conclusion, WindowOver};
use crate::contract::commit::PendingWait;
use crate::kernel::ids::RunId;
use crate::registry::RegistryInner;

/// Settling runs with the monotonic time at which their limits pass. Rebuilt from rows at start.
#[derive(Default)]
pub struct Settling {
    ends: HashMap<RunId, Option<Duration>>,
}

impl Settling {
    /// Watches a settling run with `left_ms` of its limit left; `None` means no limit.
    pub fn insert(&mut self, run: RunId, left_ms: Option<u64>, now: Duration) {
        let end = left_ms.map(|left| now + Duration::from_millis(left));
        self.ends.insert(run, end);
    }

    /// Stops watching the run.
    pub fn remove(&mut self, run: RunId) {
        self.ends.remove(&run);
    }

    /// True if the run is watched.
    pub fn knows(&self, run: RunId) -> bool {
        self.ends.contains_key(&run)
    }

    /// True if no run is watched.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Removes and returns the runs whose limit has passed.
    pub fn due(&mut self, now: Duration) -> Vec<RunId> {
        let due: Vec<RunId> = self
            .ends
            .iter()
            .filter(|(_, end)| end.is_some_and(|end| end <= now))
            .map(|(run, _)| *run)
            .collect();
        for run in &due {
            self.ends.remove(run);
        }
        due
    }
}

/// Pending waits with the monotonic time of their deadlines. Rebuilt from rows at start.
#[derive(Default)]
pub struct WaitTimers {
    ends: HashMap<PendingWait, Duration>,
}

impl WaitTimers {
    /// Watches a wait whose deadline passes in `left_ms`.
    pub fn insert(&mut self, window: PendingWait, left_ms: u64, now: Duration) {
        self.ends
            .insert(window, now + Duration::from_millis(left_ms));
    }

    /// Stops watching the wait.
    pub fn remove(&mut self, window: PendingWait) {
        self.ends.remove(&window);
    }

    /// True if the wait is watched.
    pub fn knows(&self, window: PendingWait) -> bool {
        self.ends.contains_key(&window)
    }

    /// Removes and returns the waits whose deadline has passed.
    pub fn due(&mut self, now: Duration) -> Vec<PendingWait> {
        let due: Vec<PendingWait> = self
            .ends
            .iter()
            .filter(|(_, end)| **end <= now)
            .map(|(window, _)| *window)
            .collect();
        for window in &due {
            self.ends.remove(window);
        }
        due
    }
}

/// Ends a wait whose deadline has passed. The command checks the rows again: an outcome that came
/// meanwhile is kept. If the write fails, the next comparison of rows and timers finds the wait
/// again.
pub(crate) fn expire_wait(inner: &Arc<RegistryInner>, tasks: &TaskTracker, window: PendingWait) {
    let inner = Arc::clone(inner);
    tasks.spawn(async move {
        let command = WindowOver { window };
        if let Err(fault) = inner.store.submit_waiting(command).await {
            tracing::warn!(?window, %fault, "could not store that a wait timed out; will retry");
        }
    });
}

/// Ends a run whose limit has passed. The command checks the row again: a run that continued
/// meanwhile, or has time left, is unchanged.
pub(crate) fn time_out(inner: &Arc<RegistryInner>, tasks: &TaskTracker, run: RunId) {
    let inner = Arc::clone(inner);
    tasks.spawn(async move {
        let command = Conclude {
            run,
            why: Conclusion::TimedOut,
        };
        if let Err(fault) = inner.store.submit_waiting(command).await {
            tracing::info!(%run, %fault, "the run could not be ended at its time limit");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::kernel::time::Timestamp;

    #[test]
    fn nothing_is_due_all_at_once_after_a_sleep_of_the_machine() {
        let clock = Clock::test(Timestamp(1_000_000));
        let ids = (1..=3_u128).map(|number| RunId(uuid::Uuid::from_u128(number)));
        let (mut settling, mut windows) = (Settling::default(), WaitTimers::default());
        for (minutes, run) in (1..).zip(ids) {
            let left = minutes * 60_000;
            settling.insert(run, Some(left), clock.monotonic());
            let until = clock.now().plus_ms(left);
            windows.insert(
                PendingWait::Call(run),
                until.since(clock.now()),
                clock.monotonic(),
            );
        }
        clock.sleep(Duration::from_secs(3600));
        assert!(settling.due(clock.monotonic()).is_empty());
        assert!(windows.due(clock.monotonic()).is_empty());
        clock.advance(Duration::from_secs(60));
        assert_eq!(settling.due(clock.monotonic()).len(), 1);
        assert_eq!(windows.due(clock.monotonic()).len(), 1);
    }
}
