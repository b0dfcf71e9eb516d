//! All processes that the daemon has started, for the registry to end: programs of runs and tool
//! servers.

use std::collections::HashSet;

use crate::contract::BoxFuture;
use crate::contract::processes::{self, KeptStep};
use crate::kernel::ids::{RunId, StepId};
use crate::process::Processes;
use crate::tool::McpServers;

/// Programs and tool servers.
pub struct ManagedProcesses {
    /// All processes.
    pub processes: Processes,
    /// The tool servers among them.
    pub servers: McpServers,
}

impl processes::ProcessTracker for ManagedProcesses {
    fn end_run(&self, run: RunId) -> BoxFuture<'static, Vec<u32>> {
        self.processes.end_run(run)
    }

    fn end_all(&self) -> BoxFuture<'static, Vec<u32>> {
        let (processes, servers) = (self.processes.clone(), self.servers.clone());
        Box::pin(async move {
            // Ended first, so that no server counts as failed.
            servers.end().await;
            processes.end_all().await
        })
    }

    fn of_run(&self, run: RunId) -> BoxFuture<'static, Vec<u32>> {
        self.processes.of_run(run)
    }

    fn origin(&self, pid: Option<u32>) -> processes::ProcessOrigin {
        self.processes.origin(pid)
    }

    fn kept(&self) -> Vec<KeptStep> {
        self.processes.kept()
    }

    fn kept_by_newer(&self) -> Vec<StepId> {
        self.processes.kept_by_newer()
    }

    fn step_stored(&self, step: StepId) {
        self.processes.step_stored(step);
    }

    fn run_stored(&self, run: RunId) {
        self.processes.run_stored(run);
    }

    fn end_leftovers(&self, spared: HashSet<StepId>) -> BoxFuture<'static, Vec<u32>> {
        self.processes.end_leftovers(spared)
    }
}
