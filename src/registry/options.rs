//! The registry's settings, as the daemon hands them in.

use std::time::Duration;

use super::sweeps::Retention;

/// How many runs may hold a slot at once; 0 closes a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneCaps {
    /// Turns of root sessions.
    pub main: usize,
    /// Spawned work.
    pub subagent: usize,
    /// All lanes together.
    pub global: usize,
}

/// The registry's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Slots.
    pub lanes: LaneCaps,
    /// The limit of a run that names none, milliseconds; `None` = no limit.
    pub run_timeout_ms: Option<u64>,
    /// How long steps in flight may go on while the daemon drains.
    pub drain_timeout: Duration,
    /// How often open rows are compared with live tasks.
    pub compare_each: Duration,
    /// How often the used time of live runs is written.
    pub touch_each: Duration,
    /// Open runs whose last activity is older are closed at start.
    pub max_age_ms: u64,
    /// How long things are kept.
    pub retention: Retention,
    /// A subscriber that had caught up and then falls behind the event log by more numbers
    /// than this must begin anew.
    pub events_behind: i64,
}
