//! What the registry asks of those who start programs: that none outlives the run it was
//! started for.

use super::BoxFuture;
use crate::kernel::ids::RunId;

/// For whom a program was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartedFor {
    /// This run.
    Run(RunId),
    /// The daemon itself, which talks with it: whoever calls it, it speaks for nobody.
    Service,
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

    /// For whom this process, or one above it, was started.
    fn started_for(&self, pid: u32) -> Option<StartedFor>;

    /// Ends what an earlier life of the daemon has started and could not end; the numbers of
    /// those that were found. Called before anything is restored.
    fn end_leftovers(&self) -> BoxFuture<'static, Vec<u32>>;
}
