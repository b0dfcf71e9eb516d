//! What the registry asks of those who start programs: that none outlives the run it was
//! started for.

use super::BoxFuture;
use crate::kernel::ids::RunId;

/// Where a process comes from, as far as the system proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Neither it nor any of its ancestors was started by the daemon.
    Outside,
    /// It, or an ancestor, was started for this run.
    Run(RunId),
    /// It, or an ancestor, is a tool server: the daemon started it, and models decide what it does.
    Service,
    /// The daemon started an ancestor that is gone, so its run is unknown.
    Stray,
    /// It has ended, it cannot be looked into, or its ancestors are hidden.
    Unproven,
}

/// Knows every program that runs have started, and what those have started in turn.
pub trait Processes: Send + Sync + 'static {
    /// Once this resolves, nothing of what `run` has started is left, but for the processes
    /// whose numbers are given: those could not be ended. Takes two seconds at most, and no
    /// time where nothing was started.
    fn end_run(&self, run: RunId) -> BoxFuture<'static, Vec<u32>>;

    /// The same for every run.
    fn end_all(&self) -> BoxFuture<'static, Vec<u32>>;

    /// The processes that carry the marks of `run`, and what is below them, as the system shows
    /// them now.
    fn of_run(&self, run: RunId) -> BoxFuture<'static, Vec<u32>>;

    /// Where the process `pid` comes from; `None`: it has no number in this namespace. Reads
    /// the process table, which can block. Before the first program was started since the boot,
    /// a process that cannot be proved to be outside counts as outside.
    fn origin(&self, pid: Option<u32>) -> Origin;

    /// Ends what an earlier life of the daemon has started and could not end; the numbers of
    /// those that were found. Called before anything is restored.
    fn end_leftovers(&self) -> BoxFuture<'static, Vec<u32>>;
}
