//! The only place that reads the time and generates ids, so that tests can control both.

#![expect(
    clippy::disallowed_methods,
    reason = "this is the place that the ban points to"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use uuid::Uuid;

use crate::kernel::ages::HostBoot;
use crate::kernel::time::{Moment, Timestamp};

/// Source of time and ids. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(TimeSource);

#[derive(Clone, Debug)]
enum TimeSource {
    System {
        start: Instant,
        /// `CLOCK_BOOTTIME` or its equivalent at `start`; it also counts while the machine sleeps.
        start_with_sleep: Duration,
    },
    Test {
        /// Time while the machine is awake.
        ms: Arc<AtomicI64>,
        asleep_ms: Arc<AtomicI64>,
    },
}

impl Clock {
    /// The system clock.
    pub fn system() -> Self {
        Clock(TimeSource::System {
            start: Instant::now(),
            start_with_sleep: boottime(),
        })
    }

    /// A test clock that stays at `start` until [`Clock::advance`] or [`Clock::sleep`] moves it.
    pub fn test(start: Timestamp) -> Self {
        Clock(TimeSource::Test {
            ms: Arc::new(AtomicI64::new(start.0)),
            asleep_ms: Arc::default(),
        })
    }

    /// Wall-clock time, for stored rows and display. It may jump.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            TimeSource::System { .. } => {
                let since = SystemTime::now()
                    .duration_since(SystemTime::UNIX_EPOCH)
                    .unwrap_or_default();
                let now = Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
                set_otherwise(now)
            }
            TimeSource::Test { ms, asleep_ms } => {
                Timestamp(ms.load(Ordering::Relaxed) + asleep_ms.load(Ordering::Relaxed))
            }
        }
    }

    /// Time since this clock was created, excluding machine sleep. It never jumps; timeouts are
    /// measured with it.
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            TimeSource::System { start, .. } => start.elapsed(),
            TimeSource::Test { ms, .. } => millis(ms),
        }
    }

    /// How long the machine has slept since this clock was created, which [`Clock::monotonic`]
    /// excludes. Precise to a few milliseconds.
    pub fn asleep(&self) -> Duration {
        let asleep = match &self.0 {
            TimeSource::System {
                start,
                start_with_sleep,
            } => boottime()
                .saturating_sub(*start_with_sleep)
                .saturating_sub(start.elapsed()),
            TimeSource::Test { asleep_ms, .. } => millis(asleep_ms),
        };
        match crate::failpoint::substituted("clock.asleep") {
            Some(ms) => Duration::from_millis(ms),
            None => asleep,
        }
    }

    /// The machine's boot id and uptime; `None` if the system provides no boot id.
    pub fn machine(&self) -> Option<HostBoot> {
        if let TimeSource::Test { .. } = &self.0 {
            return None;
        }
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let boot = match crate::failpoint::substituted("clock.machine_boot") {
            Some(other) => other.to_string(),
            None => boot.trim().to_owned(),
        };
        let up_ms = u64::try_from(boottime().as_millis()).unwrap_or(u64::MAX);
        Some(HostBoot { boot, up_ms })
    }

    /// Wall-clock and monotonic time, the latter including machine sleep.
    pub fn moment_with_sleep(&self) -> Moment {
        let moment = self.moment();
        let asleep = u64::try_from(self.asleep().as_millis()).unwrap_or(u64::MAX);
        Moment {
            steady: moment.steady.plus_ms(asleep),
            ..moment
        }
    }

    /// Wall-clock and monotonic time, read together.
    pub fn moment(&self) -> Moment {
        let steady = i64::try_from(self.monotonic().as_millis()).unwrap_or(i64::MAX);
        Moment {
            wall: self.now(),
            steady: Timestamp(steady),
        }
    }

    /// A new UUID version 7, larger than every id this process generated before.
    pub fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    /// Advances a test clock; no effect on the system clock.
    pub fn advance(&self, by: Duration) {
        if let TimeSource::Test { ms, .. } = &self.0 {
            add(ms, by);
        }
    }

    /// Simulates machine sleep on a test clock; no effect on the system clock.
    pub fn sleep(&self, by: Duration) {
        if let TimeSource::Test { asleep_ms, .. } = &self.0 {
            add(asleep_ms, by);
        }
    }
}

/// Applies the wall-clock offset that a test has set.
fn set_otherwise(now: Timestamp) -> Timestamp {
    let ahead = crate::failpoint::substituted("clock.ahead").unwrap_or(0);
    let behind = crate::failpoint::substituted("clock.behind").unwrap_or(0);
    now.plus_ms(ahead).minus_ms(behind)
}

fn add(ms: &AtomicI64, by: Duration) {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    ms.fetch_add(by, Ordering::Relaxed);
}

fn millis(ms: &AtomicI64) -> Duration {
    Duration::from_millis(u64::try_from(ms.load(Ordering::Relaxed)).unwrap_or(0))
}

/// A clock that never jumps and counts while the machine sleeps. `Instant` does not count then.
fn boottime() -> Duration {
    // On Darwin the monotonic clock counts sleep, and `Instant` uses a different clock.
    #[cfg(not(target_vendor = "apple"))]
    let id = rustix::time::ClockId::Boottime;
    #[cfg(target_vendor = "apple")]
    let id = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(id);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_moves_the_wall_clock_and_no_limit() {
        let clock = Clock::test(Timestamp(1000));
        clock.advance(Duration::from_secs(1));
        clock.sleep(Duration::from_secs(3600));
        assert_eq!(clock.now(), Timestamp(3_602_000));
        assert_eq!(clock.moment().steady, Timestamp(2000));
        assert_eq!(clock.asleep(), Duration::from_secs(3600));
    }

    #[test]
    fn a_machine_that_is_awake_has_not_slept() {
        let clock = Clock::system();
        std::thread::yield_now();
        assert!(clock.asleep() < Duration::from_secs(1));
    }
}
