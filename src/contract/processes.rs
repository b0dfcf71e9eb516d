//! Control over the programs that runs have started, so that none outlives its run. Called by the
//! registry.

use std::collections::HashSet;

use super::BoxFuture;
use crate::kernel::ids::{RunId, StepId};

/// A program of a step that goes on while the daemon is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptStep {
    /// The run.
    pub run: RunId,
    /// The step.
    pub step: StepId,
    /// The process that keeps the program is alive.
    pub is_alive: bool,
}

/// The origin of a process, as far as the system proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessOrigin {
    /// Neither the process nor any of its ancestors was started by the daemon.
    Outside,
    /// The process or an ancestor was started for this run.
    Run(RunId),
    /// The process or an ancestor is a tool server: started by the daemon, and acting as models
    /// direct.
    Service,
    /// The daemon started an ancestor that is gone, so its run is unknown.
    Stray,
    /// The process has ended, cannot be inspected, or its ancestors are hidden.
    Unproven,
}

/// Tracks every program that runs have started, with their descendants.
pub trait ProcessTracker: Send + Sync + 'static {
    /// Once this resolves, every process that `run` has started has ended, except those whose pids
    /// are returned: they could not be ended. Takes at most two seconds, and no time if nothing was
    /// started. What is stored about its programs stays for the recovery of its steps.
    fn end_run(&self, run: RunId) -> BoxFuture<'static, Vec<u32>>;

    /// Ends all processes that the daemon has started, like [`ProcessTracker::end_run`], but not the
    /// programs that go on while the daemon is down.
    fn end_all(&self) -> BoxFuture<'static, Vec<u32>>;

    /// The programs that go on while the daemon is down, and those of which a result is kept.
    fn kept(&self) -> Vec<KeptStep>;

    /// The steps whose programs have keepers of a newer version: they are left alone.
    fn kept_by_newer(&self) -> Vec<StepId>;

    /// The outcome of the step is stored, so what is kept about its program is removed.
    fn step_stored(&self, step: StepId);

    /// The end of the run is stored and its processes have ended, so all that is kept about its
    /// programs is removed.
    fn run_stored(&self, run: RunId);

    /// The processes that carry the marks of `run`, and their descendants, as the system shows them
    /// now.
    fn of_run(&self, run: RunId) -> BoxFuture<'static, Vec<u32>>;

    /// The origin of process `pid`; `None` if it has no pid in this namespace. Reads the process
    /// table, which can block. Until the first program is started after a boot, a process that
    /// cannot be proved to be outside counts as outside.
    fn origin(&self, pid: Option<u32>) -> ProcessOrigin;

    /// Ends processes that an earlier boot of the daemon has started, and removes what is kept about
    /// its programs, except the programs of the steps in `spared`. Returns the pids of those that
    /// were found. Called before anything is restored.
    fn end_leftovers(&self, spared: HashSet<StepId>) -> BoxFuture<'static, Vec<u32>>;
}
