//! The registry's settings, as the daemon hands them in.

use std::collections::BTreeMap;
use std::time::Duration;

use super::sweeps::Retention;
use crate::kernel::policy::Policy;
use crate::kernel::run::Lane;
use crate::kernel::secret::Given;

/// How many runs may hold a slot at once; 0 closes a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneCaps {
    /// Turns of root sessions.
    pub main: usize,
    /// Spawned work.
    pub subagent: usize,
    /// Answers to other sessions.
    pub nested: usize,
    /// All lanes together.
    pub global: usize,
}

impl LaneCaps {
    /// How many runs of this lane may hold a slot at once.
    pub fn of(&self, lane: Lane) -> usize {
        match lane {
            Lane::Main => self.main,
            Lane::Subagent => self.subagent,
            Lane::Nested => self.nested,
        }
    }

    /// Why no run of this lane gets a slot: which setting closes it.
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
pub struct Options {
    /// Slots.
    pub lanes: LaneCaps,
    /// What sessions may do with each other.
    pub policy: Policy,
    /// The limit of a run that names none, milliseconds; `None` = no limit.
    pub run_timeout_ms: Option<u64>,
    /// How long a call may take that another agent carries out, where neither its link nor the
    /// agent says otherwise, milliseconds.
    pub delegation_timeout_ms: u64,
    /// So many tokens of its long-term memory a model is given by itself; 0 = none.
    pub memory_budget: u64,
    /// How long a person's leave for a call is waited for, milliseconds.
    pub approval_ms: u64,
    /// How long steps in flight may go on while the daemon drains.
    pub drain_timeout: Duration,
    /// How often open rows are compared with live tasks.
    pub compare_each: Duration,
    /// How often it is stored that the process lives, while the time of a run counts.
    pub touch_each: Duration,
    /// Open runs whose last activity is older are closed at start.
    pub max_age_ms: u64,
    /// How long things are kept.
    pub retention: Retention,
    /// A subscriber that had caught up and then falls behind the event log by more numbers
    /// than this must begin anew.
    pub events_behind: i64,
    /// What the settings give to the environment of runs that have a skill, by its name or key.
    pub skills: BTreeMap<String, SkillEnvironment>,
}

/// What the settings give to the environment of runs that have a skill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillEnvironment {
    /// By name.
    pub env: BTreeMap<String, Given>,
    /// For the name that the skill calls its primary one.
    pub api_key: Option<Given>,
}
