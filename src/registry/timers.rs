//! Limits of runs that no drive task watches: those whose turn is over and which wait for
//! their children.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::Inner;
use crate::kernel::ids::RunId;
use crate::store::command::Conclusion;
use crate::store::{Command, Window};

/// Settling runs and when their limits pass, on the steady clock. Rebuilt from rows at start.
#[derive(Default)]
pub struct Settling {
    ends: HashMap<RunId, Option<Duration>>,
}

impl Settling {
    /// The run settles and has `left_ms` of its limit left; `None` = no limit.
    pub fn insert(&mut self, run: RunId, left_ms: Option<u64>, now: Duration) {
        let end = left_ms.map(|left| now + Duration::from_millis(left));
        self.ends.insert(run, end);
    }

    /// The run does not settle any more.
    pub fn remove(&mut self, run: RunId) {
        self.ends.remove(&run);
    }

    /// Is the run watched?
    pub fn knows(&self, run: RunId) -> bool {
        self.ends.contains_key(&run)
    }

    /// Is no run watched?
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Takes out the runs whose limit has passed.
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

/// Windows in which an outcome is waited for, and when they are over, on the steady clock.
/// Rebuilt from rows at start.
#[derive(Default)]
pub struct Windows {
    ends: HashMap<Window, Duration>,
}

impl Windows {
    /// The window is over in `left_ms`.
    pub fn insert(&mut self, window: Window, left_ms: u64, now: Duration) {
        self.ends
            .insert(window, now + Duration::from_millis(left_ms));
    }

    /// Nobody waits for the window any more.
    pub fn remove(&mut self, window: Window) {
        self.ends.remove(&window);
    }

    /// Is the window watched?
    pub fn knows(&self, window: Window) -> bool {
        self.ends.contains_key(&window)
    }

    /// Takes out the windows that are over.
    pub fn due(&mut self, now: Duration) -> Vec<Window> {
        let due: Vec<Window> = self
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

/// Tells whoever waits that the window is over. The command looks at the rows again: an
/// outcome that came meanwhile stays. What cannot be written now is found again by the next
/// comparison of rows and timers.
pub(super) fn window_over(inner: &Arc<Inner>, tasks: &TaskTracker, window: Window) {
    let inner = Arc::clone(inner);
    tasks.spawn(async move {
        let command = Command::WindowOver { window };
        if let Err(fault) = inner.store.submit_patiently(command).await {
            tracing::warn!(?window, %fault, "the end of a window was not written yet");
        }
    });
}

/// Ends a run whose limit has passed. The command looks at the row again: a run that went on
/// meanwhile, or has time left, stays as it is.
pub(super) fn time_out(inner: &Arc<Inner>, tasks: &TaskTracker, run: RunId) {
    let inner = Arc::clone(inner);
    tasks.spawn(async move {
        let command = Command::Conclude {
            run,
            why: Conclusion::TimedOut,
        };
        if let Err(fault) = inner.store.submit_patiently(command).await {
            tracing::info!(%run, %fault, "the run was not ended at its limit");
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
        let (mut settling, mut windows) = (Settling::default(), Windows::default());
        for (minutes, run) in (1..).zip(ids) {
            let left = minutes * 60_000;
            settling.insert(run, Some(left), clock.monotonic());
            let until = clock.now().plus_ms(left);
            windows.insert(
                Window::Call(run),
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
