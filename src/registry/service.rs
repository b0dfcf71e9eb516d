//! The registry's own loop: it does what follows a commit. Handlers only submit commands,
//! since a handler's future is dropped when its client leaves.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Inner;
use super::announce::Announcer;
use super::compare::Suspects;
use super::drive::{self, Ended};
use super::lanes::Lanes;
use super::timers::Settling;
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::recover::Loss;
use crate::store::{Command, Effect};
use crate::telemetry::metrics::metrics;

/// What the registry's tasks tell the loop.
#[derive(Debug)]
pub(super) enum Signal {
    /// A drive task is over.
    DriveEnded(RunId, Ended),
    /// A run without an executor was given to recovery.
    Recovered(RunId),
    /// A delivery is over; `false`: it failed and must be tried again.
    Delivered(SessionId, bool),
    /// It is time to try a delivery again.
    DeliverAgain(SessionId),
    /// Open rows and live tasks differ in these runs, seen twice.
    Suspected(Suspects),
}

/// How often limits and delayed starts are looked at.
const TICK: Duration = Duration::from_millis(250);

/// The loop; it lives until it is told to drain.
pub struct Service {
    inner: Arc<Inner>,
    effects: mpsc::UnboundedReceiver<Vec<Effect>>,
    signals: mpsc::UnboundedReceiver<Signal>,
    lanes: Lanes,
    drives: HashMap<RunId, CancellationToken>,
    tasks: TaskTracker,
    announcer: Announcer,
    settling: Settling,
}

impl Service {
    pub(super) fn new(
        inner: Arc<Inner>,
        effects: mpsc::UnboundedReceiver<Vec<Effect>>,
        signals: mpsc::UnboundedReceiver<Signal>,
    ) -> Self {
        let tasks = TaskTracker::new();
        Service {
            lanes: Lanes::new(inner.options().lanes),
            announcer: Announcer::new(Arc::clone(&inner), tasks.clone()),
            inner,
            effects,
            signals,
            drives: HashMap::new(),
            tasks,
            settling: Settling::default(),
        }
    }

    /// Works until a drain begins and every run is parked or the drain's time is over. Once
    /// it returns, nothing of the registry writes any more. `first` is what a restore left to
    /// be done.
    pub async fn run(mut self, first: Vec<Effect>) {
        // What the restore's own commands have left: runs in the middle of a turn, which go
        // before those that have not begun.
        while let Ok(effects) = self.effects.try_recv() {
            self.take_all(effects);
        }
        self.take_all(first);
        let mut tick = tokio::time::interval(TICK);
        let mut touch = every(self.inner.options().touch_each);
        let mut compare = every(self.inner.options().compare_each);
        let inner = Arc::clone(&self.inner);
        let mut options = inner.options.subscribe();
        let drained = inner.drained();
        tokio::pin!(drained);
        loop {
            self.admit();
            tokio::select! {
                biased;
                () = &mut drained => break,
                Some(effects) = self.effects.recv() => {
                    self.take_all(effects);
                    while let Ok(effects) = self.effects.try_recv() {
                        self.take_all(effects);
                    }
                }
                Some(signal) = self.signals.recv() => self.hear(signal),
                // The sender lives in `inner`, so a change is all that can be told.
                Ok(()) = options.changed() => {
                    let options = *options.borrow_and_update();
                    self.lanes.configure(options.lanes);
                    reset(&mut touch, options.touch_each);
                    reset(&mut compare, options.compare_each);
                }
                _ = tick.tick() => self.tick(),
                _ = touch.tick() => self.touch(),
                _ = compare.tick() => self.compare(),
            }
        }
        self.drain().await;
    }

    /// Starts whoever may run now.
    fn admit(&mut self) {
        while let Some(ticket) = self.lanes.admit() {
            let run = ticket.run;
            let stop = CancellationToken::new();
            self.drives.insert(run, stop.clone());
            let inner = Arc::clone(&self.inner);
            self.tasks.spawn(async move {
                let driven = AssertUnwindSafe(drive::drive(&inner, run, stop));
                let ended = driven.catch_unwind().await.unwrap_or(Ended::Panicked);
                // The loop is gone when the daemon stops; recovery reads the rows.
                let _ = inner.signals.send(Signal::DriveEnded(run, ended));
            });
        }
    }

    fn take_all(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.take(effect);
        }
    }

    fn take(&mut self, effect: Effect) {
        match effect {
            Effect::Enqueue(ticket) => self.lanes.enqueue(ticket, self.inner.clock.moment()),
            Effect::StopExecutor(run) => {
                if let Some(stop) = self.drives.get(&run) {
                    stop.cancel();
                } else {
                    self.recover(run);
                }
            }
            Effect::Settling(run, left) => {
                self.settling
                    .insert(run, left, self.inner.clock.monotonic());
            }
            Effect::Ended(run) => {
                self.lanes.forget(run);
                self.settling.remove(run);
                self.inner.waiters.ended(run);
            }
            Effect::Outcome(_, outcome, lived_ms) => {
                metrics().run_ended(outcome, Duration::from_millis(lived_ms));
            }
            Effect::Deliverable(session) => self.announcer.deliver(session),
        }
    }

    fn hear(&mut self, signal: Signal) {
        match signal {
            Signal::DriveEnded(run, ended) => {
                self.drives.remove(&run);
                match ended {
                    Ended::Moved => self.lanes.release(run),
                    Ended::Lost(why) => {
                        tracing::error!(%run, why, "a drive task ended without moving its run; it is recovered");
                        self.recover(run);
                    }
                    Ended::Panicked => {
                        tracing::error!(%run, "a drive task panicked; its run is recovered");
                        self.recover(run);
                    }
                }
            }
            // Only now may another turn of its session begin.
            Signal::Recovered(run) => self.lanes.release(run),
            Signal::Delivered(session, delivered) => self.announcer.over(session, delivered),
            Signal::DeliverAgain(session) => self.announcer.deliver(session),
            Signal::Suspected(suspects) => self.settle_suspects(suspects),
        }
    }

    /// Gives a run without an executor to recovery; it keeps its slot, and its session its
    /// turn, until that is done.
    fn recover(&self, run: RunId) {
        let inner = Arc::clone(&self.inner);
        self.tasks.spawn(async move {
            let loss = Loss::Executor;
            let command = Command::Recover { run, loss };
            if let Err(fault) = inner.store.submit_patiently(command).await {
                // The next comparison of rows and tasks finds it again.
                tracing::error!(%run, %fault, "a run could not be recovered yet");
            }
            let _ = inner.signals.send(Signal::Recovered(run));
        });
    }

    fn tick(&mut self) {
        self.lanes.wake_delayed(self.inner.clock.moment());
        for run in self.settling.due(self.inner.clock.monotonic()) {
            super::timers::time_out(&self.inner, &self.tasks, run);
        }
    }

    fn touch(&self) {
        let mut runs: Vec<RunId> = self.drives.keys().copied().collect();
        runs.extend(self.settling.runs());
        if runs.is_empty() {
            return;
        }
        let inner = Arc::clone(&self.inner);
        self.tasks.spawn(async move {
            if let Err(fault) = inner.store.submit_patiently(Command::Touch { runs }).await {
                tracing::warn!(%fault, "used time was not written; the next write does it");
            }
        });
    }

    fn compare(&self) {
        self.inner.waiters.all_look();
        super::compare::look(Arc::clone(&self.inner), &self.tasks);
    }

    /// Rows that no task cares for are picked up, and said to be a defect.
    fn settle_suspects(&mut self, suspects: Suspects) {
        for (run, ticket) in suspects.queued {
            if !self.lanes.knows(run) && !self.drives.contains_key(&run) {
                tracing::error!(%run, "defect: a queued run was in no lane; it is queued again");
                self.lanes.enqueue(ticket, self.inner.clock.moment());
            }
        }
        for run in suspects.running {
            if !self.drives.contains_key(&run) && !self.lanes.knows(run) {
                tracing::error!(%run, "defect: a running run had no task; it is recovered");
                self.recover(run);
            }
        }
        for (run, left) in suspects.settling {
            if !self.settling.knows(run) {
                tracing::error!(%run, "defect: nobody watched a settling run's limit");
                self.settling
                    .insert(run, left, self.inner.clock.monotonic());
            }
        }
        for session in suspects.untold {
            self.announcer.deliver(session);
        }
    }

    /// Nothing new starts; steps in flight get the drain's time, then what is left is
    /// recovered by the next start.
    async fn drain(mut self) {
        self.inner.waiters.all_look();
        self.tasks.close();
        let inner = Arc::clone(&self.inner);
        let over = async {
            tokio::select! {
                () = tokio::time::sleep(inner.options().drain_timeout) => {}
                () = inner.hurried.cancelled() => {}
            }
        };
        tokio::pin!(over);
        loop {
            if self.drives.is_empty() {
                break;
            }
            tokio::select! {
                Some(signal) = self.signals.recv() => {
                    if let Signal::DriveEnded(run, _) = signal {
                        self.drives.remove(&run);
                    }
                }
                () = &mut over => {
                    tracing::warn!(
                        runs = self.drives.len(),
                        "the drain's time is over; these runs go on at the next start"
                    );
                    for stop in self.drives.values() {
                        stop.cancel();
                    }
                    break;
                }
            }
        }
        self.tasks.wait().await;
        let boot = self.inner.boot;
        if let Err(fault) = self
            .inner
            .store
            .submit_patiently(Command::EndBoot { boot })
            .await
        {
            tracing::warn!(%fault, "the clean end was not written; the next start takes it for a crash");
        }
    }
}

/// Ticks after each `period` from now on, if that is not what it does already.
fn reset(ticks: &mut tokio::time::Interval, period: Duration) {
    if ticks.period() != period {
        *ticks = every(period);
    }
}

/// Ticks after each `period`, the first time after the first one.
fn every(period: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(period);
    ticks.reset();
    ticks
}
