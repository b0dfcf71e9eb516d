//! Decides when a changed file replaces the valid version read before: once it is unchanged for a
//! while. Called by `walk`.

use std::time::Duration;

use crate::kernel::time::Timestamp;
use crate::skill::entries::FileStamp;

/// A change that is not taken over until it settles.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingChange {
    /// The file's new state; `None` if it is gone.
    pub state: Option<FileStamp>,
    /// When this state was first seen (monotonic).
    since: Duration,
    /// When the file began to change (monotonic).
    began: Duration,
}

/// A file that keeps changing for this long is taken over as it is then, if it is valid.
const LONGEST: Duration = Duration::from_secs(2);

/// The time of a scan, and how long a file must be unchanged before it replaces a valid version.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::skill) struct Now {
    /// Wall clock time, comparable with file times.
    pub wall: Timestamp,
    /// Monotonic time.
    pub steady: Duration,
    /// How long a file must be unchanged.
    pub settle: Duration,
}

impl Now {
    /// The pending change to remember if the file has not settled yet; `None` if it has.
    pub(super) fn unsettled(
        &self,
        state: Option<FileStamp>,
        before: Option<PendingChange>,
    ) -> Option<PendingChange> {
        let same = before.filter(|next| next.state == state);
        let since = same.map_or(self.steady, |next| next.since);
        let began = before.map_or(self.steady, |next| next.began);
        let passed = |from: Duration| self.steady.saturating_sub(from);
        let wall = i64::try_from(self.settle.as_millis()).unwrap_or(i64::MAX);
        let is_still = state.is_some_and(|state| self.wall.0 - state.changed_ms() >= wall)
            || passed(since) >= self.settle
            || passed(began) >= LONGEST.max(self.settle);
        (!is_still).then_some(PendingChange {
            state,
            since,
            began,
        })
    }
}
