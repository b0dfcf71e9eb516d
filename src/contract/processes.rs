//! What the registry asks of those who start programs: that none outlives the run it was
//! started for.

use super::BoxFuture;
use crate::kernel::ids::RunId;

/// Knows every program that runs have started, and what those have started in turn.
pub trait Processes: Send + Sync + 'static {
    /// Once this resolves, nothing of what `run` has started is left, but for the processes
    /// whose numbers are given: those could not be ended. Takes two seconds at most, and no
    /// time where nothing was started.
    fn end_run(&self, run: RunId) -> BoxFuture<'static, Vec<u32>>;

    /// The same for every run.
    fn end_all(&self) -> BoxFuture<'static, Vec<u32>>;

    /// The run whose program this process is, or is below.
    fn run_of(&self, pid: u32) -> Option<RunId>;

    /// Ends what an earlier life of the daemon has started and could not end; the numbers of
    /// those that were found. Called before anything is restored.
    fn end_leftovers(&self) -> BoxFuture<'static, Vec<u32>>;
}
