//! Ends the processes of a run, or of the whole daemon, so that none outlives it. The registry
//! calls this through `contract::processes`.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::keeper::{Keepers, discard};
use super::marks::MarkFilter;
use super::running::{Processes, ProcessesInner, numbers};
use super::table::ProcessIdentity;
use super::tree::{self, ProcessQuery};
use crate::contract::BoxFuture;
use crate::contract::processes::{self, KeptStep, ProcessOrigin};
use crate::kernel::ids::{RunId, StepId};

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
            let keepers = shared.keepers.as_ref();
            let wanted = ProcessQuery {
                keepers: keepers.map(|all| all.of_run(run)).unwrap_or_default(),
                spared: keepers.map(|all| all.newer_keepers()).unwrap_or_default(),
                known,
                since,
                ..ProcessQuery::marked(MarkFilter::Run(run, shared.marks.state.clone()))
            };
            numbers(&tree::end(wanted, shared.grace, &shared.clock).await)
        })
    }

    fn end_all(&self) -> BoxFuture<'static, Vec<u32>> {
        let all = std::mem::take(&mut *self.0.lock());
        let steps = all.runs.into_values().flat_map(HashMap::into_values);
        let mut known: HashSet<ProcessIdentity> = steps.flatten().collect();
        let keepers = self.0.all_keepers();
        known.retain(|one| !keepers.contains(one));
        known.extend(all.services.into_values().flatten());
        if known.is_empty() {
            return Box::pin(std::future::ready(Vec::new()));
        }
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let whose = MarkFilter::All(shared.marks.state.clone());
            let wanted = ProcessQuery {
                known,
                spared: keepers,
                ..ProcessQuery::marked(whose)
            };
            numbers(&tree::end(wanted, shared.grace, &shared.clock).await)
        })
    }

    fn kept(&self) -> Vec<KeptStep> {
        let keepers = self.0.keepers.as_ref();
        keepers.map(|all| all.all()).unwrap_or_default()
    }

    fn kept_by_newer(&self) -> Vec<StepId> {
        let keepers = self.0.keepers.as_ref();
        keepers.map(|all| all.all_newer()).unwrap_or_default()
    }

    fn step_stored(&self, step: StepId) {
        let Some(keepers) = &self.0.keepers else {
            return;
        };
        // What it has left in the background belongs to its run now.
        let known = keepers.uses().get(&step).copied();
        if known.is_some_and(|known| !known.is_detached) {
            remove(keepers, vec![step]);
        }
    }

    fn run_stored(&self, run: RunId) {
        let Some(keepers) = &self.0.keepers else {
            return;
        };
        let mut steps: Vec<StepId> = Vec::new();
        for (step, known) in keepers.uses().iter() {
            if known.run == run {
                steps.push(*step);
            }
        }
        if !steps.is_empty() {
            remove(keepers, steps);
        }
    }

    fn of_run(&self, run: RunId) -> BoxFuture<'static, Vec<u32>> {
        let known = self.0.lock().runs.get(&run).cloned().unwrap_or_default();
        let mut wanted = ProcessQuery {
            known: known.into_values().flatten().collect(),
            ..ProcessQuery::marked(MarkFilter::Run(run, self.0.marks.state.clone()))
        };
        Box::pin(async move { numbers(&tree::look(&mut wanted).await) })
    }

    fn origin(&self, pid: Option<u32>) -> ProcessOrigin {
        self.0.origin(pid)
    }

    fn end_leftovers(&self, spared: HashSet<StepId>) -> BoxFuture<'static, Vec<u32>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let whose = MarkFilter::All(shared.marks.state.clone());
            let mut wanted = ProcessQuery::marked(whose);
            let mut unspared = Vec::new();
            if let Some(keepers) = &shared.keepers {
                wanted.spared = keepers.alive(&spared);
                wanted.spared.extend(keepers.newer_keepers());
                for (step, known) in keepers.uses().iter() {
                    if !spared.contains(step) {
                        unspared.push(*step);
                        // Found by its lock where marks cannot be read.
                        let alive = known.keeper.filter(|_| keepers.is_alive(*step));
                        wanted.known.extend(alive);
                    }
                }
            }
            shared.forget(&unspared);
            let found = tree::look(&mut wanted).await;
            if !found.is_empty() {
                let left = tree::end(wanted, shared.grace, &shared.clock).await;
                if !left.is_empty() {
                    tracing::error!(pids = ?numbers(&left), "processes of the previous daemon process could not be ended");
                }
            }
            if let Some(keepers) = &shared.keepers {
                remove(keepers, unspared);
            }
            numbers(&found)
        })
    }
}

/// Removes the folders of these steps: their names at once, their files on another thread.
fn remove(keepers: &Arc<Keepers>, steps: Vec<StepId>) {
    let removed: Vec<PathBuf> = steps
        .into_iter()
        .filter_map(|step| match keepers.take_away(step) {
            Ok(removed) => removed,
            Err(fault) => {
                tracing::warn!(%fault, %step, "the folder of an ended program could not be removed; the next start tries again");
                None
            }
        })
        .collect();
    if !removed.is_empty() {
        tokio::task::spawn_blocking(move || removed.iter().for_each(|path| discard(path)));
    }
}

impl ProcessesInner {
    /// The keepers that are alive, those of newer versions included.
    fn all_keepers(&self) -> HashSet<ProcessIdentity> {
        let Some(keepers) = &self.keepers else {
            return HashSet::new();
        };
        let steps = keepers.uses().keys().copied().collect();
        let mut alive = keepers.alive(&steps);
        alive.extend(keepers.newer_keepers());
        alive
    }

    /// The processes of these steps no longer count as known.
    fn forget(&self, steps: &[StepId]) {
        let mut known = self.lock();
        for own in known.runs.values_mut() {
            own.retain(|step, _| !steps.contains(step));
        }
        known.runs.retain(|_, own| !own.is_empty());
    }
}
