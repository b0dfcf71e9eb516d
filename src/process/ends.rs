//! The ends of runs and of the daemon: nothing that was started outlives them. The registry asks
//! through `contract::processes`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::marks::{RUN_ID, SERVICE_ID, STATE_DIR, Whose};
use super::running::{Processes, Shared, numbers};
use super::table::{self, Identity};
use super::tree::{self, Wanted};
use crate::contract::BoxFuture;
use crate::contract::processes::{self, StartedFor};
use crate::kernel::ids::{RunId, StepId};

/// So many levels above a process are looked at.
const DEEPEST: usize = 64;

impl processes::Processes for Processes {
    fn end_run(&self, run: RunId) -> BoxFuture<'static, Vec<u32>> {
        let Some(steps) = self.0.lock().runs.remove(&run) else {
            return Box::pin(std::future::ready(Vec::new()));
        };
        let known: HashSet<Identity> = steps.into_values().flatten().collect();
        if known.is_empty() {
            return Box::pin(std::future::ready(Vec::new()));
        }
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let since = known.iter().map(|one| one.start).min().unwrap_or(0);
            shared.end(Whose::Run(run), known, since).await
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
            let whose = Whose::All(shared.marks.state.clone());
            shared.end(whose, every.flatten().collect(), 0).await
        })
    }

    fn of_run(&self, run: RunId) -> BoxFuture<'static, Vec<u32>> {
        let known = self.0.lock().runs.get(&run).cloned().unwrap_or_default();
        let mut wanted = Wanted {
            known: known.into_values().flatten().collect(),
            session: None,
            whose: Whose::Run(run),
            since: 0,
        };
        Box::pin(async move { numbers(&tree::look(&mut wanted).await) })
    }

    fn started_for(&self, pid: u32) -> Option<StartedFor> {
        // Mostly nothing runs, and then nobody is anybody's.
        if self.0.lock().is_empty() {
            return None;
        }
        let me = std::process::id();
        let mut pid = pid;
        for _ in 0..DEEPEST {
            if pid <= 1 || pid == me {
                return None;
            }
            let row = table::one(pid)?;
            let known = self.0.known_for(row.id);
            if let Some(found) = known.or_else(|| self.0.marked_for(pid)) {
                return Some(found);
            }
            pid = row.parent;
        }
        None
    }

    fn end_leftovers(&self) -> BoxFuture<'static, Vec<u32>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let mut wanted = Wanted {
                known: HashSet::new(),
                session: None,
                whose: Whose::All(shared.marks.state.clone()),
                since: 0,
            };
            let found = tree::look(&mut wanted).await;
            if found.is_empty() {
                return Vec::new();
            }
            let left = tree::end(wanted, shared.grace, &shared.clock).await;
            if !left.is_empty() {
                tracing::error!(pids = ?numbers(&left), "what an earlier life left could not be ended");
            }
            numbers(&found)
        })
    }
}

impl Shared {
    /// For whom this process is known to have been started.
    fn known_for(&self, process: Identity) -> Option<StartedFor> {
        let known = self.lock();
        let holds = |steps: &HashMap<StepId, HashSet<Identity>>| {
            steps.values().any(|alive| alive.contains(&process))
        };
        if known
            .services
            .values()
            .any(|alive| alive.contains(&process))
        {
            return Some(StartedFor::Service);
        }
        let run = known.runs.iter().find(|(_, steps)| holds(steps));
        run.map(|(run, _)| StartedFor::Run(*run))
    }

    /// For whom a process was started by its marks.
    fn marked_for(&self, pid: u32) -> Option<StartedFor> {
        let state = table::variable(pid, STATE_DIR)?;
        if state != self.marks.state.as_os_str() {
            return None;
        }
        if table::variable(pid, SERVICE_ID).is_some() {
            return Some(StartedFor::Service);
        }
        let run = table::variable(pid, RUN_ID)?;
        run.to_str()?.parse().ok().map(StartedFor::Run)
    }

    async fn end(&self, whose: Whose, known: HashSet<Identity>, since: u64) -> Vec<u32> {
        let wanted = Wanted {
            known,
            session: None,
            whose,
            since,
        };
        numbers(&tree::end(wanted, self.grace, &self.clock).await)
    }
}
