//! Control over the programs that runs have started, so that none outlives its run. Called by the
//! registry.

use super::BoxFuture;
use crate::kernel::ids::RunId;

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
    /// started.
    fn end_run(&self, run: RunId) -> BoxFuture<'static, Vec<u32>>;

    /// Ends the processes of all runs and tool servers, like [`Processes::end_run`].
    fn end_all(&self) -> BoxFuture<'static, Vec<u32>>;

    /// The processes that carry the marks of `run`, and their descendants, as the system shows them
    /// now.
    fn of_run(&self, run: RunId) -> BoxFuture<'static, Vec<u32>>;

    /// The origin of process `pid`; `None` if it has no pid in this namespace. Reads the process
    /// table, which can block. Until the first program is started after a boot, a process that
    /// cannot be proved to be outside counts as outside.
    fn origin(&self, pid: Option<u32>) -> ProcessOrigin;

    /// Ends processes that an earlier boot of the daemon has started and could not end; returns the
    /// pids of those that were found. Called before anything is restored.
    fn end_leftovers(&self) -> BoxFuture<'static, Vec<u32>>;
}
