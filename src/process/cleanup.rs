//! Ends the processes of a run, or of the whole daemon, so that none outlives it. The registry
//! calls this through `contract::processes`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::marks::MarkFilter;
use super::running::{Processes, ProcessesInner, numbers};
use super::table::ProcessIdentity;
use super::tree::{self, ProcessQuery};
use crate::contract::BoxFuture;
use crate::contract::processes::{self, ProcessOrigin};
use crate::kernel::ids::RunId;

impl processes::ProcessTracker for Processes {
    fn end_run(&self, run: RunId) -> BoxFuture<'static, Vec<u32>> {
        let Some(steps) = self.0.lock().runs.remove(&run) else {
            return Box::pin(std::future::ready(Vec::new()));
        };
        let known: HashSet<ProcessIdentity> = steps.into_values().flatten().collect();
        if known.is_empty() {
            return Box::pin(std::future::ready(Vec::new()));
        }
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let since = known.iter().map(|one| one.start).min().unwrap_or(0);
            shared.end(MarkFilter::Run(run), known, since).await
        })
    }

    fn end_all(&self) -> BoxFuture<'static, Vec<u32>> {
        let all = std::mem::take(&mut *self.0.lock());
        if all.is_empty() {
            return Box::pin(std::future::ready(Vec::new()));
        }
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let steps = all.runs.into_values().flat_map(HashMap::into_values);
            let every = steps.chain(all.services.into_values());
            let whose = MarkFilter::All(shared.marks.state.clone());
            shared.end(whose, every.flatten().collect(), 0).await
        })
    }

    fn of_run(&self, run: RunId) -> BoxFuture<'static, Vec<u32>> {
        let known = self.0.lock().runs.get(&run).cloned().unwrap_or_default();
        let mut wanted = ProcessQuery {
            known: known.into_values().flatten().collect(),
            session: None,
            whose: MarkFilter::Run(run),
            since: 0,
        };
        Box::pin(async move { numbers(&tree::look(&mut wanted).await) })
    }

    fn origin(&self, pid: Option<u32>) -> ProcessOrigin {
        self.0.origin(pid)
    }

    fn end_leftovers(&self) -> BoxFuture<'static, Vec<u32>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let mut wanted = ProcessQuery {
                known: HashSet::new(),
                session: None,
                whose: MarkFilter::All(shared.marks.state.clone()),
                since: 0,
            };
            let found = tree::look(&mut wanted).await;
            if found.is_empty() {
                return Vec::new();
            }
            let left = tree::end(wanted, shared.grace, &shared.clock).await;
            if !left.is_empty() {
                tracing::error!(pids = ?numbers(&left), "processes of the previous daemon process could not be ended");
            }
            numbers(&found)
        })
    }
}

impl ProcessesInner {
    async fn end(
        &self,
        whose: MarkFilter,
        known: HashSet<ProcessIdentity>,
        since: u64,
    ) -> Vec<u32> {
        let wanted = ProcessQuery {
            known,
            session: None,
            whose,
            since,
        };
        numbers(&tree::end(wanted, self.grace, &self.clock).await)
    }
}
