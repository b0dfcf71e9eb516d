//! How much a server may send unasked: beyond a number each second it is read no further until
//! that second is over, so that it keeps neither a processor nor a log busy. Called by `wire` for
//! messages and by `pipes` for lines that are none.

use std::time::Duration;

use crate::clock::Clock;

/// The most that is taken within [`SPAN`].
const LIMIT: u32 = 1000;
const SPAN: Duration = Duration::from_secs(1);

/// What came within the present second.
pub(super) struct Flood {
    clock: Clock,
    since: Duration,
    count: u32,
}

impl Flood {
    pub(super) fn new(clock: Clock) -> Flood {
        Flood {
            since: clock.monotonic(),
            count: 0,
            clock,
        }
    }

    /// One more has come.
    pub(super) fn count(&mut self) {
        if self.left().is_zero() {
            self.since = self.clock.monotonic();
            self.count = 0;
        }
        self.count += 1;
    }

    /// Resolves once more may be taken. May be dropped and asked again.
    pub(super) async fn wait(&self) {
        let left = self.left();
        if self.count >= LIMIT && !left.is_zero() {
            tokio::time::sleep(left).await;
        }
    }

    /// How long the present second still lasts.
    fn left(&self) -> Duration {
        let passed = self.clock.monotonic().saturating_sub(self.since);
        SPAN.saturating_sub(passed)
    }
}
