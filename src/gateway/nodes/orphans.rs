//! Calls that a node knows and that have no caller: after a restart of the gateway, and after the
//! end of a run. [`Calls`](super::calls::Calls) cancels or keeps them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::contract::nodes::StepOfCall;
use crate::kernel::ids::CallId;

/// Maximum number of calls per node.
pub(super) const ORPHANS_LIMIT: usize = 4096;
/// A call that no caller has asked for is released after this time. A client asks for its call
/// within this time.
pub(super) const ORPHAN_AGE: Duration = Duration::from_secs(24 * 3600);

/// The calls of one node without callers.
#[derive(Default)]
pub(super) struct Orphans(HashMap<CallId, Orphan>);

struct Orphan {
    /// When it was first seen.
    since: Duration,
    /// It belongs to no step of a run.
    is_of_client: bool,
    /// The node has answered that it does not know how the call ended.
    is_uncertain: bool,
}

impl Orphans {
    /// Adds a call, if there is room.
    pub(super) fn add(&mut self, id: CallId, now: Duration) {
        if self.0.len() < ORPHANS_LIMIT {
            self.0.entry(id).or_insert(Orphan {
                since: now,
                is_of_client: false,
                is_uncertain: false,
            });
        }
    }

    /// The node does not know how the call ended.
    pub(super) fn note_uncertain(&mut self, id: CallId) {
        if let Some(orphan) = self.0.get_mut(&id) {
            orphan.is_uncertain = true;
        }
    }

    /// Removes a call; returns whether it was there.
    pub(super) fn remove(&mut self, id: CallId) -> bool {
        self.0.remove(&id).is_some()
    }

    /// Removes what the node does not know.
    pub(super) fn keep_known(&mut self, known: &HashSet<CallId>) {
        self.0.retain(|id, _| known.contains(id));
    }

    /// Removes and returns the calls that no caller has asked for in time.
    pub(super) fn take_old(&mut self, now: Duration) -> Vec<CallId> {
        let is_old = |orphan: &Orphan| now.saturating_sub(orphan.since) >= ORPHAN_AGE;
        let old = self.0.extract_if(|_, orphan| is_old(orphan));
        old.map(|(id, _)| id).collect()
    }

    /// The calls that may belong to steps.
    pub(super) fn maybe_of_steps(&self) -> Vec<CallId> {
        let calls = self.0.iter().filter(|(_, orphan)| !orphan.is_of_client);
        calls.map(|(id, _)| *id).collect()
    }

    /// Takes what was found of the `asked` calls: those of steps are in `steps`. Returns the calls
    /// that no step will ask for.
    pub(super) fn identified(
        &mut self,
        asked: &[CallId],
        steps: &HashMap<CallId, StepOfCall>,
    ) -> Vec<CallId> {
        let mut unwanted = Vec::new();
        for id in asked {
            let Some(orphan) = self.0.get_mut(id) else {
                continue;
            };
            match steps.get(id) {
                None => orphan.is_of_client = true,
                Some(StepOfCall::Ended) => unwanted.push(*id),
                // If a person decides that it has not happened, it begins anew.
                Some(StepOfCall::InReview) if orphan.is_uncertain => unwanted.push(*id),
                Some(StepOfCall::InReview | StepOfCall::Open) => {}
            }
        }
        unwanted
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
