//! The service loop: it does the work that follows each commit. RPC handlers only submit commands,
//! because a handler's future is dropped when its client disconnects.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::RegistryInner;
use super::announce::Announcer;
use super::drive::{self, DriveEnd, Hold};
use super::environment;
use super::lanes::Lanes;
use crate::command::{EndBoot, GatewayNote, NoteGateway, Recover, Touch, WarnRun};
use crate::contract::commit::CommitEffect;
use crate::contract::control::Then;
use crate::failpoint::reach;
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::run::recover::Loss;
use crate::kernel::time::Timestamp;
use crate::registry::api::agents::ReloadReason;
use crate::registry::upkeep::backups::OwnBackups;
use crate::registry::upkeep::compare::Suspects;
use crate::registry::upkeep::drain::{ActiveDrain, DrainTimer};
use crate::registry::upkeep::sweeps::Sweeper;
use crate::registry::upkeep::timers::{Settling, WaitTimers};
use crate::store::tables::runs;
use crate::telemetry::metrics::metrics;

/// Messages from the registry's tasks to the loop.
#[derive(Debug)]
pub(super) enum Signal {
    /// Liveness probe.
    Ping(oneshot::Sender<()>),
    /// A drive task has ended.
    DriveEnded(RunId, DriveEnd),
    /// The recovery of a run without an executor has finished.
    Recovered(RunId),
    /// A delivery has ended; `false` means that it failed and must be retried.
    Delivered(SessionId, bool),
    /// A failed delivery is due for its retry.
    DeliverAgain(SessionId),
    /// Open rows that were unchanged in two looks and may lack a task.
    Suspected(Suspects),
    /// The event log must get this event of the daemon.
    Note(GatewayNote),
}

/// Interval of the checks for limits and delayed starts.
const TICK: Duration = Duration::from_millis(250);
/// How often the last uses of access tokens are stored.
const TOKEN_USES: Duration = Duration::from_secs(60);
/// Delay before recovery of a run that was cut off because the store was unavailable.
const CUT_OFF_PAUSE: Duration = Duration::from_millis(500);
/// A shorter sleep of the machine is not reported.
const SLEEP: Duration = Duration::from_secs(1);

/// The service loop; it runs until a drain ends the process.
pub struct ServiceLoop {
    inner: Arc<RegistryInner>,
    effects: mpsc::UnboundedReceiver<Vec<CommitEffect>>,
    signals: mpsc::UnboundedReceiver<Signal>,
    lanes: Lanes,
    drives: HashMap<RunId, Hold>,
    tasks: TaskTracker,
    announcer: Announcer,
    settling: Settling,
    windows: WaitTimers,
    sweeper: Sweeper,
    backups: OwnBackups,
    /// Feeds the event log to subscribers, also before the rows are restored.
    _tail: AbortOnDropHandle<()>,
    /// Total machine sleep that was already reported.
    slept: Duration,
    /// Runs that the start left unchanged until their age can be determined.
    doubted: HashMap<RunId, Loss>,
}

impl ServiceLoop {
    pub(super) fn new(
        inner: Arc<RegistryInner>,
        effects: mpsc::UnboundedReceiver<Vec<CommitEffect>>,
        signals: mpsc::UnboundedReceiver<Signal>,
    ) -> Self {
        let tasks = TaskTracker::new();
        let tail = tokio::spawn(super::events::tail(Arc::clone(&inner)));
        ServiceLoop {
            _tail: AbortOnDropHandle::new(tail),
            slept: inner.clock.asleep(),
            lanes: Lanes::new(inner.options().lanes),
            announcer: Announcer::new(Arc::clone(&inner), tasks.clone()),
            inner,
            effects,
            signals,
            drives: HashMap::new(),
            tasks,
            settling: Settling::default(),
            windows: WaitTimers::default(),
            sweeper: Sweeper::new(),
            backups: OwnBackups::new(),
            doubted: HashMap::new(),
        }
    }

    /// Runs the loop until a drain that ends the process has brought all work to rest; returns what
    /// follows. Once it returns, the registry writes nothing more. `first` are the effects of the
    /// restore.
    pub async fn run(mut self, first: Vec<CommitEffect>) -> Then {
        // Effects of the restore's own commands: runs in the middle of a turn, which go before runs
        // that have not started.
        while let Ok(effects) = self.effects.try_recv() {
            self.take_all(effects);
        }
        self.take_all(first);
        // Covers runs that ended in an earlier boot.
        environment::look_at_all(&self.inner, &self.tasks);
        let mut tick = tokio::time::interval(TICK);
        let mut touch = every(self.inner.options().touch_each);
        let mut compare = every(self.inner.options().compare_each);
        let mut token_uses = every(TOKEN_USES);
        let mut orders = self.inner.drains.orders();
        // A drain order may have come during the restore.
        orders.mark_changed();
        let mut drain_timeout: Option<DrainTimer> = None;
        let mut began = Duration::ZERO;
        // The first sweep runs immediately: a deletion may have been interrupted.
        let mut sweep = tokio::time::interval(self.inner.options().retention.sweep_each);
        let inner = Arc::clone(&self.inner);
        let mut options = inner.options.subscribe();
        loop {
            if !self.inner.drains.is_under_way() {
                self.admit();
            } else if drain_timeout.is_some() && self.drives.is_empty() {
                if let Some(then) = self.inner.drains.settle() {
                    self.end().await;
                    return then;
                }
                drain_timeout = None;
                self.resumed(began);
                continue;
            }
            tokio::select! {
                biased;
                // The sender lives in `self`, so there is always a next value.
                Ok(()) = orders.changed() => {
                    let order = *orders.borrow_and_update();
                    if let Some(order) = order {
                        began = self.inner.clock.monotonic();
                        drain_timeout = Some(DrainTimer::new(&self.inner.drains, order));
                        self.draining(order);
                    }
                }
                Some(effects) = self.effects.recv() => {
                    self.take_all(effects);
                    while let Ok(effects) = self.effects.try_recv() {
                        self.take_all(effects);
                    }
                }
                Some(signal) = self.signals.recv() => self.hear(signal),
                // The sender lives in `inner`, so this branch only fires on a change.
                Ok(()) = options.changed() => {
                    let options = Arc::clone(&options.borrow_and_update());
                    self.lanes.configure(options.lanes);
                    reset(&mut touch, options.touch_each);
                    reset(&mut compare, options.compare_each);
                    reset(&mut sweep, options.retention.sweep_each);
                }
                () = DrainTimer::passed(drain_timeout.as_mut()) => self.cut_off(),
                () = inner.store.noticed().news() => crate::registry::upkeep::damage::look(&self.inner, &self.tasks),
                _ = tick.tick() => self.tick(),
                _ = touch.tick() => self.touch(),
                _ = compare.tick() => self.compare(),
                _ = token_uses.tick() => {
                    let inner = Arc::clone(&self.inner);
                    self.tasks.spawn(async move { inner.note_token_uses().await });
                }
                _ = sweep.tick() => {
                    self.sweeper.sweep(&self.inner, &self.tasks);
                    self.backups.look(&self.inner, &self.tasks);
                }
            }
        }
    }

    /// Starts every run that may start now.
    fn admit(&mut self) {
        // When disk space is low, it is reserved for runs under way.
        if self.inner.store.room().is_low() {
            return;
        }
        while let Some(ticket) = self.lanes.admit() {
            let run = ticket.run;
            let hold = Hold::default();
            self.drives.insert(run, hold.clone());
            let inner = Arc::clone(&self.inner);
            self.tasks.spawn(async move {
                let driven = AssertUnwindSafe(drive::drive(&inner, run, hold));
                let ended = driven.catch_unwind().await.unwrap_or(DriveEnd::Panicked);
                // The loop is gone only while the daemon stops; recovery then reads the rows.
                let _ = inner.signals.send(Signal::DriveEnded(run, ended));
            });
        }
    }

    fn take_all(&mut self, effects: Vec<CommitEffect>) {
        for effect in effects {
            self.take(effect);
        }
    }

    fn take(&mut self, effect: CommitEffect) {
        match effect {
            CommitEffect::AgentsChanged => {
                let inner = Arc::clone(&self.inner);
                self.tasks.spawn(async move {
                    let reloaded =
                        crate::registry::api::agents::reload(&inner, ReloadReason::Stored).await;
                    if let Err(fault) = reloaded {
                        tracing::error!(%fault, "could not reload the agents");
                    }
                });
            }
            CommitEffect::TokenChanged(token) => self.inner.access.apply(&token),
            CommitEffect::Enqueue(ticket) => {
                reach("registry.enqueue");
                self.lanes.enqueue(ticket, self.inner.clock.moment());
            }
            CommitEffect::StopExecutor(run) => {
                if let Some(hold) = self.drives.get(&run) {
                    hold.stop.cancel();
                } else {
                    self.recover(run, Loss::Executor, None);
                }
            }
            CommitEffect::Released(run) => {
                // Without a drive task, the next one reads the row.
                if let Some(hold) = self.drives.get(&run) {
                    hold.released.notify_one();
                }
            }
            CommitEffect::Settling(run, left) => {
                self.settling
                    .insert(run, left, self.inner.clock.monotonic());
            }
            CommitEffect::Paused(run, session, depth) => self.lanes.keep(run, session, depth),
            CommitEffect::Window(window, until) => {
                let left = until.since(self.inner.clock.now());
                self.windows
                    .insert(window, left, self.inner.clock.monotonic());
            }
            CommitEffect::WindowClosed(window) => self.windows.remove(window),
            CommitEffect::Exchange(run) => {
                crate::registry::announce::exchange::follow(&self.inner, &self.tasks, run)
            }
            CommitEffect::Ended(run) => {
                crate::registry::upkeep::run_cleanup::end(&self.inner, &self.tasks, run);
                self.lanes.forget(run);
                self.settling.remove(run);
                self.inner.waiters.ended(run);
            }
            CommitEffect::Carried(run) => {
                environment::until_restored(&self.inner, &self.tasks, run)
            }
            CommitEffect::Outcome(run, outcome, lived_ms) => {
                metrics().run_ended(outcome, Duration::from_millis(lived_ms));
                crate::registry::drive::trace::export(&self.inner, &self.tasks, run);
            }
            CommitEffect::DelegationBegun(told) => {
                crate::registry::drive::trace::log_start(&told, false)
            }
            CommitEffect::DelegationOver(told) => {
                crate::registry::drive::trace::log_end(&told, false)
            }
            CommitEffect::Untold(run, what) => {
                crate::registry::drive::trace::repeat_logs(&self.inner, &self.tasks, run, what);
            }
            CommitEffect::AgeUnknown(run, loss) => {
                self.doubted.insert(run, loss);
            }
            CommitEffect::Deliverable(session) => self.announcer.deliver(session),
            CommitEffect::Purge(session) => {
                self.inner.transcripts.remove(session);
                self.sweeper.purge(&self.inner, &self.tasks, session);
            }
        }
    }

    fn hear(&mut self, signal: Signal) {
        match signal {
            // The requester may have given up.
            Signal::Ping(answer) => answer.send(()).unwrap_or_default(),
            Signal::DriveEnded(run, ended) => {
                self.drives.remove(&run);
                match ended {
                    DriveEnd::Moved => self.lanes.release(run),
                    // The next start recovers what ends with the process.
                    DriveEnd::CutOff if self.inner.drains.is_ending() => self.lanes.release(run),
                    DriveEnd::CutOff => self.recover(run, Loss::CutOff, None),
                    DriveEnd::Lost(why) => {
                        tracing::error!(%run, why, "a drive task ended without changing the state of its run; the run will be recovered");
                        self.recover_failed(run, why);
                    }
                    DriveEnd::Panicked => {
                        tracing::error!(%run, "a drive task panicked; its run will be recovered");
                        self.recover_failed(run, "it panicked (see the daemon's log)".to_owned());
                    }
                }
            }
            // Only now may another turn of its session begin.
            Signal::Recovered(run) => self.lanes.release(run),
            Signal::Delivered(session, delivered) => self.announcer.over(session, delivered),
            Signal::DeliverAgain(session) => self.announcer.deliver(session),
            Signal::Suspected(suspects) => self.settle_suspects(suspects),
            Signal::Note(note) => self.note(note),
        }
    }

    /// Passes a run whose task failed to recovery; a warning on the run has the reason.
    fn recover_failed(&self, run: RunId, why: String) {
        let warning = format!("the task that drove this run failed: {why}");
        self.recover_warned(run, Loss::Executor, None, vec![warning]);
    }

    /// Passes a run without an executor to recovery. It keeps its slot and its session's turn until
    /// recovery has finished.
    fn recover(&self, run: RunId, loss: Loss, aged_at: Option<Timestamp>) {
        self.recover_warned(run, loss, aged_at, Vec::new());
    }

    fn recover_warned(
        &self,
        run: RunId,
        loss: Loss,
        aged_at: Option<Timestamp>,
        warnings: Vec<String>,
    ) {
        let inner = Arc::clone(&self.inner);
        self.tasks.spawn(async move {
            if loss == Loss::CutOff {
                // The unavailable store is tried again, but not immediately.
                tokio::select! {
                    () = tokio::time::sleep(CUT_OFF_PAUSE) => {}
                    () = inner.drained() => {}
                }
            }
            let row = inner
                .store
                .read_for_registry(move |tx| runs::get(tx, run))
                .await;
            let is_cancelled = match row {
                Ok(row) => row.is_some_and(|row| row.cancel.is_some()),
                Err(fault) => {
                    tracing::error!(%run, %fault, "a run that is recovered could not be read; if it was cancelled, its programs end after it");
                    false
                }
            };
            if is_cancelled {
                // It ends now, and nothing of it may run any more. Programs of others go on.
                inner.processes.end_run(run).await;
            }
            if !warnings.is_empty() {
                let command = WarnRun { run, warnings };
                if let Err(fault) = inner.store.submit_waiting(command).await {
                    tracing::warn!(%run, %fault, "could not store why the task of the run failed");
                }
            }
            let command = Recover { run, loss, aged_at };
            match inner.store.submit_waiting(command).await {
                // The end of a cancelled run is no recovery.
                Ok(_) if is_cancelled => {}
                Ok(_) => metrics().recovered(loss),
                // The next comparison of rows and tasks finds the run again.
                Err(fault) => tracing::error!(%run, %fault, "a run could not be recovered yet"),
            }
            let _ = inner.signals.send(Signal::Recovered(run));
        });
    }

    /// Recovers the runs that the start left unchanged, once their age can be determined.
    fn recover_doubted(&mut self) {
        if self.doubted.is_empty() || self.inner.drains.is_under_way() {
            return;
        }
        let Some(aged_at) = self.inner.aged_at() else {
            return;
        };
        for (run, loss) in std::mem::take(&mut self.doubted) {
            // A run that was started meanwhile needs no recovery.
            if !self.drives.contains_key(&run) && !self.lanes.knows(run) {
                self.recover(run, loss, Some(aged_at));
            }
        }
    }

    fn tick(&mut self) {
        self.notice_sleep();
        self.recover_doubted();
        self.inner.store.room().look();
        self.lanes.wake_delayed(self.inner.clock.moment());
        for run in self.settling.due(self.inner.clock.monotonic()) {
            crate::registry::upkeep::timers::time_out(&self.inner, &self.tasks, run);
        }
        for window in self.windows.due(self.inner.clock.monotonic()) {
            crate::registry::upkeep::timers::expire_wait(&self.inner, &self.tasks, window);
        }
    }

    /// Reports that the machine was asleep. Limits do not count that time, but the event explains
    /// the gap to users.
    fn notice_sleep(&mut self) {
        let slept = self.inner.clock.asleep();
        let away = slept.saturating_sub(self.slept);
        if away >= SLEEP {
            self.slept = slept;
            tracing::info!(?away, "the machine was asleep; work continues");
            self.note(GatewayNote::Resumed {
                after: "sleep",
                away_ms: millis(away),
            });
        }
    }

    /// Stores the heartbeat of this process while the time of a run counts.
    fn touch(&self) {
        if self.drives.is_empty() && self.settling.is_empty() {
            return;
        }
        let inner = Arc::clone(&self.inner);
        self.tasks.spawn(async move {
            let command = Touch { boot: inner.boot };
            if let Err(fault) = inner.store.submit_waiting(command).await {
                tracing::warn!(%fault, "could not store the heartbeat of this process; will retry");
            }
        });
    }

    fn compare(&self) {
        self.inner.waiters.all_look();
        environment::look_at_all(&self.inner, &self.tasks);
        crate::registry::upkeep::compare::look(Arc::clone(&self.inner), &self.tasks);
    }

    /// Repairs rows that have no task, and logs each as a defect.
    fn settle_suspects(&mut self, suspects: Suspects) {
        for (run, ticket) in suspects.queued {
            let is_doubted = self.doubted.contains_key(&run);
            if !is_doubted && !self.lanes.knows(run) && !self.drives.contains_key(&run) {
                tracing::error!(%run, "defect: a queued run was in no lane; it is queued again");
                self.lanes.enqueue(ticket, self.inner.clock.moment());
            }
        }
        for run in suspects.running {
            let is_doubted = self.doubted.contains_key(&run);
            if !is_doubted && !self.drives.contains_key(&run) && !self.lanes.knows(run) {
                tracing::error!(%run, "defect: a running run had no task; it is recovered");
                self.recover(run, Loss::Executor, None);
            }
        }
        for (run, left) in suspects.settling {
            if !self.settling.knows(run) {
                tracing::error!(%run, "defect: the time limit of a settling run had no timer; it is set now");
                self.settling
                    .insert(run, left, self.inner.clock.monotonic());
            }
        }
        for (run, session, depth) in suspects.paused {
            if !self.lanes.keeps(run) {
                tracing::error!(%run, "defect: a paused run did not keep its session's turn; corrected");
                self.lanes.keep(run, session, depth);
            }
        }
        for (window, until) in suspects.windows {
            if !self.windows.knows(window) {
                tracing::error!(
                    ?window,
                    "defect: a pending wait had no timer; it is set now"
                );
                self.take(CommitEffect::Window(window, until));
            }
        }
        // A repeat has no effect while the first one is under way.
        for run in suspects.due {
            self.take(CommitEffect::Exchange(run));
        }
        for session in suspects.undelivered {
            self.announcer.deliver(session);
        }
    }

    /// Announces a new drain, or one that now ends the process instead of resuming.
    fn draining(&self, order: ActiveDrain) {
        tracing::info!(
            then = order.then.as_str(),
            timeout = ?order.timeout,
            runs = self.drives.len(),
            "draining"
        );
        self.note(GatewayNote::Draining {
            then: order.then.as_str(),
            timeout_ms: millis(order.timeout),
        });
    }

    /// Cuts off the steps in flight after the drain's timeout.
    fn cut_off(&self) {
        tracing::warn!(
            runs = self.drives.len(),
            "the drain timeout has passed; these runs will continue at their step"
        );
        for hold in self.drives.values() {
            hold.stop.cancel();
        }
    }

    /// Announces that work is accepted again.
    fn resumed(&self, began: Duration) {
        tracing::info!("the daemon resumed after a drain");
        let away_ms = millis(self.inner.clock.monotonic().saturating_sub(began));
        let after = "drain";
        self.note(GatewayNote::Resumed { after, away_ms });
    }

    fn note(&self, note: GatewayNote) {
        let inner = Arc::clone(&self.inner);
        self.tasks.spawn(async move {
            let boot = inner.boot;
            let command = NoteGateway {
                boot,
                note: note.clone(),
            };
            if let Err(fault) = inner.store.submit_waiting(command).await {
                tracing::warn!(%fault, ?note, "could not write an event of the daemon");
            }
        });
    }

    /// Stops all processes, waits for the loop's tasks to finish their writes, and stores that this
    /// boot has ended cleanly.
    async fn end(&self) {
        let left = self.inner.processes.end_all().await;
        if !left.is_empty() {
            tracing::error!(pids = ?left, "could not stop processes of runs");
        }
        self.tasks.close();
        self.tasks.wait().await;
        self.inner.note_token_uses().await;
        let boot = self.inner.boot;
        if let Err(fault) = self.inner.store.submit_waiting(EndBoot { boot }).await {
            tracing::warn!(%fault, "the clean stop could not be stored; the next start will treat it as a crash");
        }
    }
}

/// Restarts the ticker with `period`, unless it already has that period.
fn reset(ticks: &mut tokio::time::Interval, period: Duration) {
    if ticks.period() != period {
        *ticks = every(period);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A ticker whose first tick comes after one `period`.
fn every(period: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(period);
    ticks.reset();
    ticks
}
