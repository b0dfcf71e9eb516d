//! The circuit breaker of delegation: an agent that fails repeatedly is not called for a while.
//! Decided from the outcomes of its last calls, so that a restart changes nothing. Pure; the store
//! checks it at the start and the end of each call.

use crate::kernel::time::Timestamp;

/// Maximum number of past outcomes that are considered.
pub const MOST_ENDS: u32 = 100;

/// The settings of the circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// Number of consecutive failures within the window that open it; 0 = never.
    pub failures: u32,
    /// The window for these failures, in milliseconds.
    pub window_ms: u64,
    /// How long it stays open after the last failure, in milliseconds. Then calls are tried again,
    /// and one failure opens it immediately.
    pub cool_off_ms: u64,
}

/// The end of one call of an agent. Cancelled calls say nothing about the agent and are not
/// included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEnd {
    /// When the call ended.
    pub at: Timestamp,
    /// True if the call failed.
    pub failed: bool,
}

impl BreakerPolicy {
    /// The policy that never opens.
    pub const OFF: BreakerPolicy = BreakerPolicy {
        failures: 0,
        window_ms: 0,
        cool_off_ms: 0,
    };

    /// Until when calls of an agent with these ends are refused; `None` if they are allowed. `ends`
    /// has the latest first.
    pub fn open_until(&self, ends: &[CallEnd], now: Timestamp) -> Option<Timestamp> {
        let last = ends.first()?;
        let until = last.at.plus_ms(self.cool_off_ms);
        (until > now && self.has_tripped(ends)).then_some(until)
    }

    /// True if it has opened since the last successful call.
    pub fn has_tripped(&self, ends: &[CallEnd]) -> bool {
        let Some(count) = usize::try_from(self.failures)
            .ok()
            .filter(|count| *count > 0)
        else {
            return false;
        };
        let failed = ends.iter().take_while(|end| end.failed).count();
        // Trial calls after it opened may be further apart than the window, so any group counts.
        ends[..failed]
            .windows(count)
            .any(|some| some[0].at.since(some[count - 1].at) <= self.window_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: BreakerPolicy = BreakerPolicy {
        failures: 3,
        window_ms: 100,
        cool_off_ms: 1000,
    };

    /// Reverses the list, so that the latest end comes first.
    fn ends(all: &[(i64, bool)]) -> Vec<CallEnd> {
        let end = |(at, failed): &(i64, bool)| CallEnd {
            at: Timestamp(*at),
            failed: *failed,
        };
        all.iter().rev().map(end).collect()
    }

    fn open(all: &[(i64, bool)], now: i64) -> Option<i64> {
        let until = POLICY.open_until(&ends(all), Timestamp(now));
        until.map(|until| until.0)
    }

    #[test]
    fn b4_failures_in_a_row_open_it_for_a_while() {
        let three = [(10, true), (20, true), (110, true)];
        assert_eq!(open(&three, 111), Some(1110));
        assert_eq!(open(&three, 1110), None, "it is tried again");
        assert_eq!(open(&three[..2], 21), None, "two are not enough");
        let apart = [(10, true), (20, true), (111, true)];
        assert_eq!(open(&apart, 112), None, "not within the window");
        let mended = [(10, true), (20, false), (30, true), (40, true)];
        assert_eq!(open(&mended, 41), None, "one between them went well");
        assert_eq!(open(&[], 5), None);
    }

    #[test]
    fn b4_a_trial_that_fails_opens_it_again_and_one_that_does_not_closes_it() {
        let again = [(10, true), (20, true), (30, true), (2000, true)];
        assert_eq!(open(&again, 2001), Some(3000));
        let well = [(10, true), (20, true), (30, true), (2000, false)];
        assert_eq!(open(&well, 2001), None);
        assert!(!POLICY.has_tripped(&ends(&well)));
    }

    #[test]
    fn off_is_off() {
        let off = BreakerPolicy {
            failures: 0,
            ..POLICY
        };
        let many = ends(&[(1, true); 50]);
        assert_eq!(off.open_until(&many, Timestamp(2)), None);
        assert!(!off.has_tripped(&many));
    }
}
