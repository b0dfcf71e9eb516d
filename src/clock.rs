//! The only place that reads time and mints ids, so that tests can hold both.

#![expect(
    clippy::disallowed_methods,
    reason = "this is the place that the ban points to"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use uuid::Uuid;

use crate::kernel::time::{Moment, Timestamp};

/// Reads time and mints ids. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System { start: Instant },
    Test { ms: Arc<AtomicI64> },
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Clock(Source::System {
            start: Instant::now(),
        })
    }

    /// A clock that stands at `start` until [`Clock::advance`] moves it.
    pub fn test(start: Timestamp) -> Self {
        Clock(Source::Test {
            ms: Arc::new(AtomicI64::new(start.0)),
        })
    }

    /// Wall-clock time, for rows and people. It may jump.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System { .. } => {
                let since = SystemTime::now()
                    .duration_since(SystemTime::UNIX_EPOCH)
                    .unwrap_or_default();
                Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            Source::Test { ms } => Timestamp(ms.load(Ordering::Relaxed)),
        }
    }

    /// Time since this clock was made. It never jumps: limits are measured with it.
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            Source::System { start } => start.elapsed(),
            Source::Test { ms } => {
                Duration::from_millis(u64::try_from(ms.load(Ordering::Relaxed)).unwrap_or(0))
            }
        }
    }

    /// Both clocks at once.
    pub fn moment(&self) -> Moment {
        let steady = i64::try_from(self.monotonic().as_millis()).unwrap_or(i64::MAX);
        Moment {
            wall: self.now(),
            steady: Timestamp(steady),
        }
    }

    /// A new id, larger than every one minted before by this process.
    pub fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    /// Moves a test clock; the system clock stands above such orders.
    pub fn advance(&self, by: Duration) {
        if let Source::Test { ms } = &self.0 {
            ms.fetch_add(
                i64::try_from(by.as_millis()).unwrap_or(i64::MAX),
                Ordering::Relaxed,
            );
        }
    }
}
