//! Aggregated usage: run counts, model usage and durations. Durations are counted in logarithmic
//! buckets. The store keeps the sums; the gateway and the CLI show them.

use std::collections::BTreeMap;

use crate::kernel::run::{Outcome, Usage};
use crate::kernel::text::text_enum::text_enum;

/// Length of the windows in which usage is summed and thresholds are checked, in milliseconds.
pub const HOUR: i64 = 3_600_000;

/// Each duration below this has its own bucket, in milliseconds.
const EXACT: u64 = 16;
/// Number of buckets per power of two above that, as a power of two.
const PARTS: u32 = 3;

text_enum! {
    /// The outcome of a run, as far as sums distinguish it.
    Verdict {
        /// It has a result.
        Ok = "ok",
        /// It ended in an error, by its limit, or could not be continued.
        Failed = "failed",
        /// It was cancelled.
        Cancelled = "cancelled",
    }
}

impl Verdict {
    /// The verdict for an outcome.
    pub fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Ok => Verdict::Ok,
            Outcome::Cancelled => Verdict::Cancelled,
            Outcome::Error | Outcome::Timeout | Outcome::Interrupted => Verdict::Failed,
        }
    }
}

text_enum! {
    /// Aggregation key.
    #[schemars(rename = "By")]
    UsageBy {
        /// One sum for the whole tenant.
        Org = "org",
        /// User of the root run.
        User = "user",
        /// Agent that executed the run.
        Agent = "agent",
        /// Model that was called.
        Model = "model",
        /// Session of the run.
        Session = "session",
        /// Root run of the tree.
        Tree = "tree",
    }
}

/// The bucket of a duration of `ms` milliseconds.
pub fn bucket(ms: u64) -> u32 {
    if ms < EXACT {
        // Below 16, so it fits.
        return ms as u32;
    }
    let power = ms.ilog2();
    // One of eight parts.
    let part = (ms >> (power - PARTS)) as u32 & 7;
    16 + (power - 4) * 8 + part
}

/// The middle of a bucket in milliseconds: at most 1/16 away from any duration counted in it.
pub fn middle(bucket: u32) -> u64 {
    if u64::from(bucket) < EXACT {
        return u64::from(bucket);
    }
    let (power, part) = ((bucket - 16) / 8 + 4, (bucket - 16) % 8);
    let width = 1_u64.checked_shl(power - PARTS).unwrap_or(u64::MAX);
    let low = u64::from(8 + part).saturating_mul(width);
    low.saturating_add(width / 2)
}

/// Summed usage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Runs that ended with a result.
    pub ok: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Runs that were cancelled.
    pub cancelled: u64,
    /// Model usage.
    pub used: Usage,
    /// Number of runs by duration bucket.
    took: BTreeMap<u32, u64>,
}

impl Tally {
    /// A sum with this model usage and no ended run.
    pub fn of(used: Usage) -> Self {
        Tally {
            used,
            ..Tally::default()
        }
    }

    /// Adds `runs` ended runs with this verdict and duration bucket.
    pub fn add_runs(&mut self, verdict: Verdict, bucket: u32, runs: u64) {
        match verdict {
            Verdict::Ok => self.ok += runs,
            Verdict::Failed => self.failed += runs,
            Verdict::Cancelled => self.cancelled += runs,
        }
        *self.took.entry(bucket).or_default() += runs;
    }

    /// Adds another sum to this one.
    pub fn add(&mut self, other: &Tally) {
        self.ok += other.ok;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.used.add(other.used);
        for (bucket, runs) in &other.took {
            *self.took.entry(*bucket).or_default() += runs;
        }
    }

    /// Number of ended runs.
    pub fn calls(&self) -> u64 {
        self.ok + self.failed + self.cancelled
    }

    /// The duration within which `percent` of the runs ended, in milliseconds, accurate to 1/16;
    /// `None` without runs.
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.took.values().sum();
        let wanted = (all * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let found = self.took.iter().find(|(_, runs)| {
            seen += *runs;
            seen >= wanted
        });
        found.map(|(bucket, _)| middle(*bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_length_of_time_is_told_to_a_sixteenth(ms in 0_u64..(1 << 45)) {
            let told = middle(bucket(ms));
            prop_assert!(told.abs_diff(ms) * 16 <= ms, "{ms}: {told}");
            prop_assert!(bucket(ms) <= bucket(ms + 1));
        }

        #[test]
        fn percentiles_are_those_of_the_runs_themselves(
            mut took in proptest::collection::vec(0_u64..1_000_000, 1..200),
            percent in 1_u64..=100,
        ) {
            let mut tally = Tally::default();
            for ms in &took {
                tally.add_runs(Verdict::Ok, bucket(*ms), 1);
            }
            took.sort_unstable();
            let place = (took.len() * usize::try_from(percent).unwrap()).div_ceil(100).max(1);
            let exact = took[place - 1];
            let told = tally.percentile(percent).unwrap();
            prop_assert!(told.abs_diff(exact) * 16 <= exact, "{exact}: {told}");
        }
    }

    #[test]
    fn sums_add_up() {
        let mut one = Tally::default();
        one.add_runs(Verdict::Ok, 3, 2);
        let mut other = Tally::default();
        other.add_runs(Verdict::Failed, 5, 1);
        other.add_runs(Verdict::Cancelled, 5, 1);
        one.add(&other);
        assert_eq!(
            (one.calls(), one.ok, one.failed, one.cancelled),
            (4, 2, 1, 1)
        );
        assert_eq!(one.percentile(50), Some(3));
        assert_eq!(one.percentile(95), Some(5));
        assert_eq!(Tally::default().percentile(50), None);
    }
}
