//! Daemon start: passes every open run through the kernel's recovery. It only writes rows; their
//! effects wait until the service loop runs.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;

use crate::command::{BeginBoot, BootReport, Recover, RunAfter, SettleSalvaged};
use crate::contract::commit::{CommitEffect, MissedLog, Ticket};
use crate::contract::processes::KeptStep;
use crate::failpoint;
use crate::kernel::ages::{AgeClock, ClockTrust, SETTLES_MS};
use crate::kernel::event::EventKind;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::run::recover::Loss;
use crate::kernel::run::step::EffectClass;
use crate::kernel::run::{Run, RunState};
use crate::kernel::time::Timestamp;
use crate::registry::{Registry, RegistryInner};
use crate::store::Store;
use crate::store::tables::{events, outbox, read, runs, sends, steps};
use crate::store::tx::{DbError, Tx};
use crate::store::write::Command;
use crate::telemetry::metrics::metrics;

/// Maximum number of rows restored in one group of commits.
const AT_ONCE: usize = 256;
/// Commits within this many milliseconds before a kill may lack their log lines.
const MISSED_LOG_MS: i64 = 10_000;
/// Maximum number of events that are searched for those commits.
const MAX_MISSED_LOGS: i64 = 4096;
/// Delay before a write that failed on a full disk is retried.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Result of a restore.
#[derive(Debug, Default)]
pub struct Restored {
    /// The previous process ended uncleanly.
    pub unclean: bool,
    /// Number of open runs found.
    pub open: usize,
    /// Number of runs that were in the middle of a turn and continue.
    pub resumed: usize,
    /// Number of runs that could not be continued.
    pub closed: usize,
    /// The first effects for the service loop.
    pub effects: Vec<CommitEffect>,
}

/// The open runs of an earlier process, by what they need.
#[derive(Default)]
struct OpenRuns {
    /// Old by a clock that cannot be trusted yet: they wait until it can.
    doubted: Vec<Run>,
    /// Queued and unaffected by the kill: they need no command.
    ready: Vec<Run>,
    /// All others: the kernel decides how each is recovered.
    broken: Vec<Run>,
}

impl Registry {
    /// Once this returns, every open run is queued, paused, settling or ended, and none is assigned
    /// to an executor of an earlier process.
    pub async fn restore(&self, pid: u32) -> Result<Restored, Fault> {
        let inner = &self.inner;
        let last = inner.store.read(events::last).await?;
        let command = BeginBoot {
            boot: inner.boot,
            pid,
        };
        let BootReport { unclean, sight } = patiently(inner, command).await?;
        settle_salvaged(inner).await?;
        self.end_leftovers(unclean).await?;
        let loss = if unclean { Loss::Killed } else { Loss::Drained };
        let open = readable(&inner.store).await?;
        let mut restored = Restored {
            unclean,
            open: open.len(),
            ..Restored::default()
        };
        inner.to_restore.store(open.len() as u64, Ordering::Relaxed);
        let aged_at = self.start_age_clock(sight);
        let open = self.sort_out(open, aged_at);
        self.leave_doubted(&open.doubted, loss, &mut restored);
        self.enqueue(&open.ready, &mut restored).await?;
        self.recover_broken(open.broken, loss, aged_at, &mut restored)
            .await?;
        self.resume_waits(&mut restored).await?;
        if unclean {
            self.repeat_log_lines(last, &mut restored).await?;
        }
        super::damage::set_aside(&inner.store).await;
        inner.is_at_work.store(true, Ordering::Release);
        Ok(restored)
    }

    /// Ends what the previous process has left running, before steps are declared uncertain. The
    /// programs of open steps that are continued go on.
    async fn end_leftovers(&self, unclean: bool) -> Result<(), Fault> {
        let inner = &self.inner;
        let kept = inner.processes.kept();
        if !unclean && kept.is_empty() {
            return Ok(());
        }
        let spared = inner.store.read(move |tx| goes_on(tx, &kept)).await?;
        if !spared.is_empty() {
            tracing::info!(programs = spared.len(), "programs of runs have gone on");
        }
        let found = inner.processes.end_leftovers(spared).await;
        if !found.is_empty() {
            tracing::warn!(pids = ?found, "stopped child processes that the previous daemon process left running");
        }
        Ok(())
    }

    /// Starts the clock for age limits; returns the time by which ages count, if it is known yet.
    fn start_age_clock(&self, sight: ClockTrust) -> Option<Timestamp> {
        let inner = &self.inner;
        let settles_ms = failpoint::substituted("clock.settles").unwrap_or(SETTLES_MS);
        let now = inner.clock.moment_with_sleep();
        let ages = AgeClock::new(sight, now, inner.options().max_age_ms, settles_ms);
        *inner.ages.lock().unwrap_or_else(PoisonError::into_inner) = Some(ages);
        inner.aged_at()
    }

    fn sort_out(&self, open: Vec<Run>, aged_at: Option<Timestamp>) -> OpenRuns {
        let max_age_ms = self.inner.options().max_age_ms;
        let now = aged_at.unwrap_or(self.inner.clock.moment_with_sleep().wall);
        let mut sorted = OpenRuns::default();
        for run in open {
            let is_old = now.since(run.last_activity_at) > max_age_ms;
            let at_work = matches!(run.state, RunState::Queued | RunState::Running);
            let of_its_kind = match run.cancel.is_none() {
                true if at_work && is_old && aged_at.is_none() => &mut sorted.doubted,
                true if run.state == RunState::Queued && !is_old => &mut sorted.ready,
                _ => &mut sorted.broken,
            };
            of_its_kind.push(run);
        }
        // Runs with a pending cancel are ended first.
        sorted.broken.sort_by_key(|run| run.cancel.is_none());
        sorted
    }

    fn leave_doubted(&self, doubted: &[Run], loss: Loss, restored: &mut Restored) {
        for run in doubted {
            let keeps = CommitEffect::Paused(run.id, run.session, run.depth);
            let later = CommitEffect::AgeUnknown(run.id, loss);
            restored.effects.extend([keeps, later]);
        }
        self.count_restored(doubted.len());
    }

    async fn enqueue(&self, ready: &[Run], restored: &mut Restored) -> Result<(), Fault> {
        let in_turn = self.inner.store.read(steps::in_turn).await?;
        let in_turn: HashSet<RunId> = in_turn.into_iter().collect();
        for run in ready {
            let ticket = Ticket::of(run, in_turn.contains(&run.id));
            restored.effects.push(CommitEffect::Enqueue(ticket));
        }
        self.count_restored(ready.len());
        Ok(())
    }

    async fn recover_broken(
        &self,
        broken: Vec<Run>,
        loss: Loss,
        aged_at: Option<Timestamp>,
        restored: &mut Restored,
    ) -> Result<(), Fault> {
        for group in broken.chunks(AT_ONCE) {
            // A command fails once on a row that cannot be read; the row is then quarantined, and
            // its run has ended or can continue.
            let again = self.recover_all(group, loss, aged_at, restored).await?;
            super::damage::set_aside(&self.inner.store).await;
            for run in self.recover_all(&again, loss, aged_at, restored).await? {
                // A run that cannot be recovered must not block the others.
                tracing::error!(run = %run.id, "a run could not be restored");
            }
            self.count_restored(group.len());
        }
        Ok(())
    }

    /// Waits, exchanges and undelivered announces become effects again: their rows hold what they
    /// wait for and until when.
    async fn resume_waits(&self, restored: &mut Restored) -> Result<(), Fault> {
        let store = &self.inner.store;
        for (window, until) in store.read(read::wait_deadlines).await? {
            restored.effects.push(CommitEffect::Window(window, until));
        }
        for run in store.read(sends::due).await? {
            restored.effects.push(CommitEffect::Exchange(run));
        }
        for session in store.read(outbox::pending_targets).await? {
            restored.effects.push(CommitEffect::Deliverable(session));
        }
        Ok(())
    }

    /// Repeats the log lines of delegations that the kill may have prevented; `last` is the last
    /// event before this boot.
    async fn repeat_log_lines(&self, last: i64, restored: &mut Restored) -> Result<(), Fault> {
        let before_kill =
            move |tx: &mut dyn Tx| events::shortly_before(tx, last, MISSED_LOG_MS, MAX_MISSED_LOGS);
        for (run, kind) in self.inner.store.read(before_kill).await? {
            let missed = match kind {
                EventKind::RunEnded => MissedLog::End,
                _ => MissedLog::Begin,
            };
            restored.effects.push(CommitEffect::Untold(run, missed));
        }
        Ok(())
    }

    fn count_restored(&self, runs: usize) {
        self.inner
            .restored
            .fetch_add(runs as u64, Ordering::Relaxed);
    }

    /// Returns when the restore has found the disk full and waits for space.
    pub async fn lacks_room(&self) {
        let mut lacks = self.inner.lacks_room.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let _ = lacks.wait_for(|lacks| *lacks).await;
    }

    /// Passes these runs to recovery; returns those whose command failed.
    async fn recover_all(
        &self,
        group: &[Run],
        loss: Loss,
        aged_at: Option<Timestamp>,
        restored: &mut Restored,
    ) -> Result<Vec<Run>, Fault> {
        let inner = &self.inner;
        let commands = group.iter().map(|run| {
            let run = run.id;
            patiently(inner, Recover { run, loss, aged_at })
        });
        let mut refused = Vec::new();
        for (run, reply) in group.iter().zip(join_all(commands).await) {
            match reply {
                Ok(after) => {
                    // The end of a cancelled run is no recovery.
                    if run.cancel.is_none() {
                        metrics().recovered(loss);
                    }
                    count(restored, run, &after);
                }
                Err(fault) => {
                    tracing::warn!(run = %run.id, %fault, "a run could not be restored at the first attempt");
                    refused.push(run.clone());
                }
            }
        }
        Ok(refused)
    }
}

/// The steps among `kept` whose programs, or the results of these, belong to runs that continue.
fn goes_on(tx: &mut dyn Tx, kept: &[KeptStep]) -> Result<HashSet<StepId>, DbError> {
    let mut spared = HashSet::new();
    for KeptStep {
        run,
        step,
        is_alive,
    } in kept
    {
        let Some(row) = runs::get(tx, *run)? else {
            continue;
        };
        let is_open = !row.state.is_terminal() && row.cancel.is_none();
        let belongs = match steps::by_id(tx, *run, *step)? {
            Some(found) if found.state.is_open() => found.effect == EffectClass::Kept,
            // What it has left in the background goes on until the end of the run.
            Some(_) => *is_alive,
            None => false,
        };
        if is_open && belongs {
            spared.insert(*step);
        }
    }
    Ok(spared)
}

/// After a salvage of a damaged file, repairs the references to rows that were lost.
async fn settle_salvaged(inner: &RegistryInner) -> Result<(), Fault> {
    if let Some(unsettled) = inner.store.read(read::unsettled).await? {
        let read::Unsettled {
            broken,
            unannounced: untold,
        } = unsettled;
        patiently(inner, SettleSalvaged { broken, untold }).await?;
    }
    Ok(())
}

/// Every open run, after the unreadable ones were quarantined.
async fn readable(store: &Store) -> Result<Vec<Run>, Fault> {
    loop {
        let open = store.read(runs::live).await?;
        if !store.noticed().has_waiting() {
            return Ok(open);
        }
        super::damage::set_aside(store).await;
    }
}

/// Submits a command of the restore. Retries while the disk is full: meanwhile the daemon serves
/// reads, and the restore continues by itself once there is space.
async fn patiently<C: Command + Clone>(
    inner: &RegistryInner,
    command: C,
) -> Result<C::Reply, Fault> {
    loop {
        match inner.store.submit_waiting(command.clone()).await {
            Err(fault) if matches!(fault.kind, Kind::Unavailable | Kind::Busy) => {
                tracing::warn!(%fault, "the restore waits for the store");
                if fault.kind == Kind::Unavailable {
                    inner.lacks_room.send_replace(true);
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            done => return done,
        }
    }
}

fn count(restored: &mut Restored, before: &Run, after: &RunAfter) {
    if after.run.state.is_terminal() {
        restored.closed += 1;
    } else if before.state == RunState::Running {
        restored.resumed += 1;
    }
}
