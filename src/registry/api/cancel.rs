//! Cancels runs, and steers runs in the middle of their turn. Called by the RPC layer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::request::CancelTarget;
use crate::command::{self, Cancel, Steer};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{MessageId, RunId};
use crate::kernel::run::{Outcome, RunState};
use crate::registry::{Principal, Registry};
use crate::store::tables::runs;
use crate::wire::input::PAGE_LIMIT;
use crate::wire::lifecycle::{Cancelled, CancelledRuns};

/// Maximum time that a cancel's answer waits for executors to stop.
pub(crate) const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// Maximum number of runs that one call of [`Registry::cancel_all`] names; their descendants come with them.
const CANCEL_AT_ONCE: u32 = PAGE_LIMIT;

/// The runs that are not in `seen` yet, which has them then.
fn unseen(runs: Vec<RunId>, seen: &mut BTreeSet<RunId>) -> Vec<RunId> {
    runs.into_iter().filter(|run| seen.insert(*run)).collect()
}

impl Registry {
    /// Ends a run, or all work in a session, with every open descendant. Once this returns the mark
    /// is stored and no restart continues these runs; the answer lists those that ended and those
    /// that still have an executor.
    pub async fn cancel(
        &self,
        who: &Principal,
        target: CancelTarget,
        reason: Option<String>,
    ) -> Result<Cancelled, Fault> {
        let command = Cancel {
            org: who.org.clone(),
            target,
            by: who.by(),
            by_person: who.run.is_none(),
            reason,
        };
        let done = self.inner.store.submit(command).await?;
        self.until_stopped(who, done).await
    }

    /// Cancels the oldest open runs of all orgs, at most [`CANCEL_AT_ONCE`], and reports on `earlier`, runs
    /// that an earlier call has cancelled and that do not count towards the limit. Once this returns
    /// their marks are stored.
    pub async fn cancel_all(
        &self,
        who: &Principal,
        earlier: Vec<RunId>,
        reason: Option<String>,
    ) -> Result<CancelledRuns, Fault> {
        let store = &self.inner.store;
        let known: BTreeSet<RunId> = earlier.iter().copied().collect();
        let limit = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let limit = limit.saturating_add(CANCEL_AT_ONCE);
        let open = store.read_now(|tx| {
            let mut open = Vec::new();
            for (run, org) in runs::live_ids(tx, limit)? {
                // Runs that do not stop are reported below. They must not hide later runs for ever.
                let is_marked = known.contains(&run)
                    && runs::get(tx, run)?.is_some_and(|run| run.cancel.is_some());
                if !is_marked {
                    open.push((run, org));
                }
            }
            open.truncate(CANCEL_AT_ONCE as usize);
            Ok(open)
        })?;
        let mut orgs: BTreeMap<String, command::Cancelled> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (run, org) in open {
            if seen.contains(&run) {
                continue;
            }
            let command = Cancel {
                org: org.clone(),
                target: CancelTarget::Run(run),
                by: who.by(),
                by_person: true,
                reason: reason.clone(),
            };
            // The descendants are cancelled with it.
            let done = match store.submit(command).await {
                // It was deleted after it was read.
                Err(fault) if fault.kind == Kind::NotFound => continue,
                done => done?,
            };
            let all = orgs.entry(org).or_default();
            all.cancelled.extend(unseen(done.cancelled, &mut seen));
            all.already_ended
                .extend(unseen(done.already_ended, &mut seen));
            all.stopping.extend(unseen(done.stopping, &mut seen));
        }
        for run in unseen(earlier, &mut seen) {
            if let Some(row) = store.read_now(|tx| runs::get(tx, run))? {
                orgs.entry(row.org).or_default().stopping.push(run);
            }
        }
        let waits = orgs.into_iter().map(|(org, done)| async move {
            let who = Principal { org, ..who.clone() };
            self.until_stopped(&who, done).await
        });
        let mut all = CancelledRuns::default();
        for done in futures_util::future::try_join_all(waits).await? {
            all.cancelled.extend(done.cancelled);
            all.already_ended.extend(done.already_ended);
            all.not_ended.extend(done.not_ended);
        }
        let counts = store.read_now(|tx| runs::count_live(tx, None))?;
        all.open = counts.iter().sum();
        Ok(all)
    }

    /// Waits up to [`CANCEL_WAIT`] for the executors of cancelled runs to stop.
    async fn until_stopped(
        &self,
        who: &Principal,
        done: command::Cancelled,
    ) -> Result<Cancelled, Fault> {
        let command::Cancelled {
            mut cancelled,
            mut already_ended,
            stopping,
        } = done;
        let mut not_ended = Vec::new();
        if !stopping.is_empty() {
            self.wait(who, stopping.clone(), true, CANCEL_WAIT).await?;
        }
        for id in stopping {
            let row = self.inner.store.read_now(|tx| runs::get(tx, id))?;
            match row.map(|run| run.state) {
                Some(RunState::Ended(Outcome::Cancelled)) => cancelled.push(id),
                // It ended for another reason first.
                Some(RunState::Ended(_)) | None => already_ended.push(id),
                Some(_) => not_ended.push(id),
            }
        }
        Ok(Cancelled {
            cancelled,
            already_ended,
            not_ended,
        })
    }

    /// Once this returns, the text is stored and the run's next model call sees it. Repeating a
    /// `message` id adds nothing; without one, a new id is generated and returned.
    pub async fn steer(
        &self,
        who: &Principal,
        run: RunId,
        message: Option<MessageId>,
        text: String,
    ) -> Result<MessageId, Fault> {
        let message = message.unwrap_or_else(|| MessageId(self.inner.clock.new_id()));
        let command = Steer {
            org: who.org.clone(),
            run,
            message,
            text,
        };
        self.inner.store.submit(command).await?;
        Ok(message)
    }
}
