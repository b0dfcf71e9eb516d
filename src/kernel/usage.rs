//! What was done, and what it took and cost: how lengths of time are counted, and the sums that
//! people are shown. The store keeps them, the doors show them.

use std::collections::BTreeMap;

use super::run::{Outcome, Usage};
use super::text_enum::text_enum;

/// The length of the windows in which use is summed, and thresholds are watched, milliseconds.
pub const HOUR: i64 = 3_600_000;

/// Below this each length of time has a bucket of its own.
const EXACT: u64 = 16;
/// Parts of each power of two above it, as a power of two.
const PARTS: u32 = 3;

text_enum! {
    /// How a run ended, as far as sums tell.
    Verdict {
        /// It has a result.
        Ok = "ok",
        /// It ended in an error, by its limit, or could not be carried on.
        Failed = "failed",
        /// Somebody asked for it.
        Cancelled = "cancelled",
    }
}

impl Verdict {
    /// Of an outcome.
    pub fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Ok => Verdict::Ok,
            Outcome::Cancelled => Verdict::Cancelled,
            Outcome::Error | Outcome::Timeout | Outcome::Interrupted => Verdict::Failed,
        }
    }
}

text_enum! {
    /// By what use is summed.
    UsageBy {
        /// All of a tenant.
        Org = "org",
        /// The user of the root run.
        User = "user",
        /// Who did it.
        Agent = "agent",
        /// With which model.
        Model = "model",
        /// In which session.
        Session = "session",
        /// Below which root run.
        Tree = "tree",
    }
}

/// The bucket in which so many milliseconds are counted.
pub fn bucket(ms: u64) -> u32 {
    if ms < EXACT {
        // Below 16.
        return ms as u32;
    }
    let power = ms.ilog2();
    // Of eight parts.
    let part = (ms >> (power - PARTS)) as u32 & 7;
    16 + (power - 4) * 8 + part
}

/// The middle of a bucket, milliseconds: at most 1/16 away from anything counted there.
pub fn middle(bucket: u32) -> u64 {
    if u64::from(bucket) < EXACT {
        return u64::from(bucket);
    }
    let (power, part) = ((bucket - 16) / 8 + 4, (bucket - 16) % 8);
    let width = 1_u64.checked_shl(power - PARTS).unwrap_or(u64::MAX);
    let low = u64::from(8 + part).saturating_mul(width);
    low.saturating_add(width / 2)
}

/// Sums of use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Runs that ended with a result.
    pub ok: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Runs that were cancelled.
    pub cancelled: u64,
    /// Model use.
    pub used: Usage,
    /// How many runs took how long, by bucket.
    took: BTreeMap<u32, u64>,
}

impl Tally {
    /// This use of models, and no run that ended.
    pub fn of(used: Usage) -> Self {
        Tally {
            used,
            ..Tally::default()
        }
    }

    /// So many more runs ended so, and took so long.
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

    /// Runs that ended.
    pub fn calls(&self) -> u64 {
        self.ok + self.failed + self.cancelled
    }

    /// How long at most the quicker `percent` of the runs took, milliseconds, to a sixteenth.
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
