//! Rate limit for unsolicited input of a server. Above the limit, reading pauses until the current
//! second is over, so that a server keeps neither a CPU nor a log busy. Used by `wire` for messages
//! and by `pipes` for lines that are no messages.

use std::time::Duration;

use crate::clock::Clock;

/// The maximum number of items accepted within [`SPAN`].
const LIMIT: u32 = 1000;
const SPAN: Duration = Duration::from_secs(1);

/// Counts the items of the current second.
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

    /// Counts one more item.
    pub(super) fn count(&mut self) {
        if self.left().is_zero() {
            self.since = self.clock.monotonic();
            self.count = 0;
        }
        self.count += 1;
    }

    /// Resolves once more items may be read. Cancel-safe.
    pub(super) async fn wait(&self) {
        let left = self.left();
        if self.count >= LIMIT && !left.is_zero() {
            tokio::time::sleep(left).await;
        }
    }

    /// The remaining time of the current second.
    fn left(&self) -> Duration {
        let passed = self.clock.monotonic().saturating_sub(self.since);
        SPAN.saturating_sub(passed)
    }
}
