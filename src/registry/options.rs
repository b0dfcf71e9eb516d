//! The registry's settings, passed in by the daemon.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kernel::policy::Policy;
use crate::kernel::run::Lane;
use crate::kernel::secret::GivenValue;
use crate::registry::upkeep::sweeps::Retention;
use crate::store::BackupPolicy;

/// Maximum number of runs that may hold a slot at once; 0 closes a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneCaps {
    /// For turns of root sessions.
    pub main: usize,
    /// For spawned runs.
    pub subagent: usize,
    /// For answers to other sessions.
    pub nested: usize,
    /// For all lanes together.
    pub global: usize,
}

impl LaneCaps {
    /// The limit of this lane.
    pub fn of(&self, lane: Lane) -> usize {
        match lane {
            Lane::Main => self.main,
            Lane::Subagent => self.subagent,
            Lane::Nested => self.nested,
        }
    }

    /// Why no run of this lane gets a slot: the setting that closes it; `None` if it is open.
    pub fn closed(&self, lane: Lane) -> Option<String> {
        let name = match (self.global, self.of(lane)) {
            (0, _) => "global",
            (_, 0) => lane.as_str(),
            _ => return None,
        };
        Some(format!("lane {name} is closed (lanes.{name} = 0)"))
    }
}

/// The registry's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryOptions {
    /// Slot limits.
    pub lanes: LaneCaps,
    /// What sessions may do with each other.
    pub policy: Policy,
    /// Default time limit of a run, in milliseconds; `None` means no limit.
    pub run_timeout_ms: Option<u64>,
    /// Default time limit of a delegated call, in milliseconds; a limit of the link or the agent
    /// takes precedence.
    pub delegation_timeout_ms: u64,
    /// Token budget for memories that are recalled automatically into a model call; 0 disables it.
    pub memory_budget: u64,
    /// The daemon's own backups.
    pub backups: BackupPolicy,
    /// Time until an open approval expires, in milliseconds.
    pub approval_ms: u64,
    /// Time that steps in flight get during a drain.
    pub drain_timeout: Duration,
    /// Interval of the comparison of open rows with live tasks.
    pub compare_each: Duration,
    /// Interval at which the process's heartbeat is stored while a run's time counts.
    pub touch_each: Duration,
    /// At start, open runs whose last activity is older than this many milliseconds are closed.
    pub max_age_ms: u64,
    /// Retention limits.
    pub retention: Retention,
    /// Maximum lag, in cursor numbers, of a subscriber that had caught up; beyond it the
    /// subscription ends and the client must subscribe again.
    pub events_behind: i64,
    /// Environment from the settings for runs that have a skill, by skill name or key.
    pub skills: BTreeMap<String, SkillEnvironment>,
}

/// Environment from the settings for runs that have a skill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillEnvironment {
    /// Values by variable name.
    pub env: BTreeMap<String, GivenValue>,
    /// The value of the variable that the skill declares as its primary one.
    pub api_key: Option<GivenValue>,
}
