//! One task per run that holds a slot: it asks the runner for the next step, has it journaled,
//! carried out, and its outcome journaled. The rows are authoritative; the view here is only what
//! the runner is shown, and each command's answer updates it.

pub(crate) mod admit;
mod ahead;
pub(super) mod arguments;
pub(crate) mod compact;
mod forward;
mod outcome;
pub(crate) mod recall;
pub(crate) mod redact;
pub(crate) mod trace;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arguments::MaskedOutcome;
use forward::Forwarder;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::RegistryInner;
use crate::command::{
    AwaitProvider, BeginEffect, Conclude, Conclusion, Park, RunAfter, StartRun, StepRef,
};
use crate::contract::journal::RunView;
use crate::contract::runner::{DiscardSink, Next, StepOutcome, TextSink};
use crate::failpoint::reach;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::run::step::{EffectClass, Step, StepState};
use crate::kernel::run::{Run, RunState};
use crate::registry::drive::admit::admit;
use crate::registry::drive::redact::{Redacted, redact};
use crate::store::tables::{memories, read, runs, steps};
use crate::store::write::Command;
use crate::telemetry::redaction::{MaskGuard, hide};

/// How a drive task ended.
#[derive(Debug)]
pub(super) enum DriveEnd {
    /// The run has changed state or is gone; the task has nothing left to do.
    Moved,
    /// The row is still `running`, because a drain cut the task off.
    CutOff,
    /// The row has not changed state, for this reason; recovery must handle it.
    Lost(String),
    /// The task panicked.
    Panicked,
}

/// The service's handle to a drive task.
#[derive(Clone, Debug, Default)]
pub(super) struct Hold {
    /// Cancelled when the task must stop.
    pub stop: CancellationToken,
    /// Notified when a waiting step of its run may be carried out.
    pub released: Arc<Notify>,
}

/// Delay before a write that failed on a full disk is retried.
const FULL_DISK_PAUSE: Duration = Duration::from_secs(1);
/// Delay before a time-out that the store refused is submitted again.
const TIME_OUT_PAUSE: Duration = Duration::from_millis(200);

type Performing = FuturesUnordered<
    crate::contract::BoxFuture<'static, (Arc<Step>, Result<MaskedOutcome, Fault>)>,
>;

/// Drives `run` from the moment it has a slot until it gives the slot back.
pub(super) async fn drive(inner: &Arc<RegistryInner>, run: RunId, hold: Hold) -> DriveEnd {
    let pins = Arc::clone(&inner.pins);
    let transcripts = Arc::clone(&inner.transcripts);
    let loaded = inner
        .store
        .read_for_registry(move |tx| {
            let Some((view, input)) = read::view(tx, run, &pins, &transcripts)? else {
                return Ok(None);
            };
            // Read in the same transaction: most agents have no memories, and recall is skipped for
            // them. If this cannot be read, the recall handles the error; the turn goes on without
            // it.
            let remembers = memories::has_any(tx, &view.run).unwrap_or(true);
            Ok(Some((view, TurnStart { input, remembers })))
        })
        .await;
    let (view, begin) = match loaded {
        Ok(Some(loaded)) => loaded,
        Ok(None) => return DriveEnd::Moved,
        Err(fault) => return refused(inner, run, None, &fault, "its rows could not be read").await,
    };
    if view.run.state != RunState::Queued {
        return DriveEnd::Moved;
    }
    let environment = match inner.environment_of(&view.run).await {
        Ok(environment) => environment,
        Err(fault) => {
            let what = "its environment could not be built";
            return refused(inner, run, Some(view.run.ver), &fault, what).await;
        }
    };
    let ver = view.run.ver;
    let view = RunView {
        environment,
        ..view
    };
    let mut drive = Drive {
        inner,
        hidden: hide(&view.environment.redactor),
        view: Arc::new(view),
        hold,
        in_flight: HashSet::new(),
    };
    match drive.start(begin).await {
        Ok(Some(steps)) => drive.go_on(steps).await,
        Ok(None) => DriveEnd::Moved,
        Err(fault) => refused(inner, run, Some(ver), &fault, "its start was refused").await,
    }
}

/// Maps a fault to the end of the task. After a conflict the row has usually changed without this
/// task. A store that is unavailable here means that a drain ended the retries. Everything else
/// leaves the run to recovery, including a conflict after which the row is unchanged: still at
/// `ver`, or still running.
async fn refused(
    inner: &Arc<RegistryInner>,
    run: RunId,
    ver: Option<i64>,
    fault: &Fault,
    what: &'static str,
) -> DriveEnd {
    match fault.kind {
        Kind::Conflict => {
            let row = inner
                .store
                .read_for_registry(move |tx| runs::get(tx, run))
                .await;
            let stands = |row: &Run| match row.state {
                // A cancel of a queued run waits for the end of its program.
                RunState::Queued => ver == Some(row.ver) || row.cancel.is_some(),
                state => state == RunState::Running,
            };
            match row {
                Ok(Some(row)) if stands(&row) => {
                    tracing::error!(%run, %fault, "a drive task stopped, but its run did not change state: {what}");
                    DriveEnd::Lost(format!("{what}: {}", fault.message))
                }
                Ok(_) => {
                    tracing::info!(%run, %fault, "a drive task stopped: {what}");
                    DriveEnd::Moved
                }
                // Recovery reads it again.
                Err(unread) => {
                    tracing::error!(%run, %fault, %unread, "a drive task stopped, and its run could not be read: {what}");
                    DriveEnd::CutOff
                }
            }
        }
        Kind::Unavailable | Kind::Busy => {
            tracing::warn!(%run, %fault, "a drive task stopped: {what}");
            DriveEnd::CutOff
        }
        _ => {
            tracing::error!(%run, %fault, "a drive task stopped: {what}");
            DriveEnd::Lost(format!("{what}: {}", fault.message))
        }
    }
}

/// Data for the start of a turn that is not in the view.
struct TurnStart {
    /// The turn's input, if it is not in the transcript yet.
    input: Option<String>,
    /// True if the run has memories to recall.
    remembers: bool,
}

struct Drive<'a> {
    inner: &'a Arc<RegistryInner>,
    view: Arc<RunView>,
    hold: Hold,
    /// Ids of the steps that are being carried out.
    in_flight: HashSet<StepId>,
    /// Keeps the run's secrets out of the log while the task lives.
    hidden: MaskGuard,
}

impl Drive<'_> {
    /// Takes the session's turn and intends the first steps; `None` if that already ended the turn.
    async fn start(&mut self, begin: TurnStart) -> Result<Option<Vec<Arc<Step>>>, Fault> {
        if self.view.steps.iter().any(|step| step.state.is_open()) {
            let view = Arc::clone(&self.view);
            return self.start_with(Next::Steps(Vec::new()), &view).await;
        }
        let view = self.with_input(begin.input.as_deref());
        let first = match begin.remembers || !view.steps.is_empty() {
            true => self.inner.next_step(&view, &view),
            false => self.inner.runner.next(&view),
        };
        self.start_with(first, &view).await
    }

    async fn start_with(
        &mut self,
        first: Next,
        view: &RunView,
    ) -> Result<Option<Vec<Arc<Step>>>, Fault> {
        let (intents, end) = match first {
            Next::Steps(intents) => (intents, None),
            Next::EndTurn(text) => (
                Vec::new(),
                Some(Conclusion::EndTurn(self.turn_end(text, view))),
            ),
            Next::Fail(error) => (Vec::new(), Some(Conclusion::Failed(error))),
            Next::Cut {
                error,
                findings: found,
            } => (Vec::new(), Some(Conclusion::Cut { error, found })),
        };
        let run = self.view.run.id;
        let seen = self.view.last_seq();
        let after = self.submit(StartRun { run, intents, seen }).await?;
        reach("drive.started");
        let steps = self.absorb(after);
        match end {
            None => Ok(Some(steps)),
            Some(why) => {
                let after = self.submit(Conclude { run, why }).await?;
                let steps = self.absorb(after);
                Ok((self.view.run.state == RunState::Running).then_some(steps))
            }
        }
    }

    /// Carries out steps until the run gives its slot back.
    async fn go_on(&mut self, steps: Vec<Arc<Step>>) -> DriveEnd {
        let inner = Arc::clone(self.inner);
        let mut parking = false;
        let mut pause = Duration::ZERO;
        let mut performing: Performing = FuturesUnordered::new();
        let released = Arc::clone(&self.hold.released);
        self.perform(&mut performing, steps);
        loop {
            if performing.is_empty() {
                if let Err(fault) = self.take_up_released(&mut performing, false).await {
                    return self
                        .refused(&fault, "its open steps could not be read")
                        .await;
                }
                if performing.is_empty() {
                    return DriveEnd::Lost("the run had no open step".to_owned());
                }
            }
            let limit = self.time_left();
            tokio::select! {
                biased;
                () = self.hold.stop.cancelled() => {
                    drop(performing);
                    return self.stopped().await;
                }
                Some((step, outcome)) = performing.next() => {
                    self.in_flight.remove(&step.id);
                    let after = match outcome {
                        Ok(MaskedOutcome { outcome: StepOutcome::Waits, .. }) => self.look_again(&step).await,
                        Ok(came) => self.record(&step, came).await,
                        Err(fault) => Err(fault),
                    };
                    let after = match after {
                        Ok(after) => after,
                        Err(fault) => return self.refused(&fault, "a step outcome was refused").await,
                    };
                    let steps = self.absorb(after);
                    if self.view.run.state != RunState::Running {
                        return DriveEnd::Moved;
                    }
                    if self.view.run.cancel.is_some() {
                        drop(performing);
                        return self.stopped().await;
                    }
                    if !parking {
                        self.perform(&mut performing, steps);
                    } else if self.may_park() {
                        drop(performing);
                        return self.park().await;
                    }
                }
                () = released.notified() => {
                    // A call of an outside agent is a part of its prompt, which may finish.
                    let only_outside = parking;
                    if let Err(fault) = self.take_up_released(&mut performing, only_outside).await {
                        return self.refused(&fault, "its open steps could not be read").await;
                    }
                }
                () = inner.drained(), if !parking => {
                    // Steps in flight may finish; nothing new begins.
                    parking = true;
                    if self.may_park() {
                        drop(performing);
                        return self.park().await;
                    }
                }
                () = sleep(limit, pause) => {
                    if self.conclude(Conclusion::TimedOut).await {
                        return DriveEnd::Moved;
                    }
                    // The limit has not passed by the store's clock, or the store cannot take the
                    // command now.
                    pause = TIME_OUT_PAUSE;
                }
            }
        }
    }

    /// True if all steps in flight go on without this process, which then need not wait for them.
    fn may_park(&self) -> bool {
        let mut steps = self.view.steps.iter();
        steps.all(|step| step.effect == EffectClass::Kept || !self.in_flight.contains(&step.id))
    }

    /// Begins the steps that waited for an approval or for environment values and may start now, and
    /// the calls that an outside agent has made; with `only_outside` nothing but those.
    async fn take_up_released(
        &mut self,
        performing: &mut Performing,
        only_outside: bool,
    ) -> Result<(), Fault> {
        let id = self.view.run.id;
        if !self.view.environment.missing.is_empty() {
            let environment = self.inner.environment_of(&self.view.run).await?;
            self.hidden = hide(&environment.redactor);
            Arc::make_mut(&mut self.view).environment = environment;
        }
        let store = &self.inner.store;
        let open = store
            .read_for_registry(move |tx| steps::open(tx, id))
            .await?;
        let mut open: Vec<Arc<Step>> = open.into_iter().map(Arc::new).collect();
        open.retain(|step| !only_outside || step.is_outside_call());
        // Calls that an outside agent has made meanwhile.
        let known: HashSet<StepId> = self.view.steps.iter().map(|step| step.id).collect();
        let new = open.iter().filter(|step| !known.contains(&step.id));
        let new: Vec<_> = new.cloned().collect();
        if !new.is_empty() {
            Arc::make_mut(&mut self.view).steps.extend(new);
        }
        self.perform(performing, open);
        Ok(())
    }

    fn perform(&mut self, performing: &mut Performing, steps: Vec<Arc<Step>>) {
        for step in steps {
            // A waiting step gets its outcome from another command.
            if !step.state.is_open() || step.waits.is_some() || !self.in_flight.insert(step.id) {
                continue;
            }
            let inner = Arc::clone(self.inner);
            let view = Arc::clone(&self.view);
            performing.push(Box::pin(async move {
                let redactor = view.environment.redactor.clone();
                // The effect uses the model's real arguments; the journal stores them masked.
                let acting = match arguments::step(&inner, &view, &step).await {
                    Ok(Ok(acting)) => acting,
                    Ok(Err(refused)) => return (step, Ok(refused.into())),
                    Err(fault) => return (step, Err(fault)),
                };
                match admit(&inner, &view, &acting).await {
                    Ok(None) => {}
                    Ok(Some(mut outcome)) => {
                        if let StepOutcome::ToolResult { text, .. } = &outcome {
                            inner.runner.refused(&step, text);
                        }
                        redact(&mut outcome, &redactor);
                        return (step, Ok(outcome.into()));
                    }
                    Err(fault) => return (step, Err(fault)),
                }
                if step.effect.is_once() && step.state == StepState::Intended {
                    if step.effect == EffectClass::Kept {
                        inner.runner.prepare(&view, &step);
                        reach("drive.prepared");
                    }
                    let begin = BeginEffect {
                        run: step.run,
                        step: step.seq,
                        attempt: step.attempts,
                    };
                    if let Err(fault) = submit(&inner, begin).await {
                        return (step, Err(fault));
                    }
                }
                reach("drive.performing");
                let coming = step
                    .kind
                    .answers()
                    .then(|| inner.partials.begin(&view.run, &step));
                let sink = match &coming {
                    Some(coming) => coming.sink(),
                    None => Arc::new(DiscardSink),
                };
                let perform = |sink| {
                    let sink = Redacted::over(sink, &redactor);
                    let said = Arc::clone(&sink) as Arc<dyn TextSink>;
                    let work = inner
                        .runner
                        .perform(view.clone(), Arc::clone(&acting), said);
                    async move {
                        let outcome = work.await;
                        sink.end();
                        outcome
                    }
                };
                let mut outcome = match Forwarder::of(&inner, &view.run, &step, &sink) {
                    Some(passing) => passing.along(perform(passing.sink())).await,
                    None => perform(sink).await,
                };
                let sealed = arguments::sealed(&inner.seal, &step, &mut outcome, &redactor);
                redact(&mut outcome, &redactor);
                if let StepOutcome::AwaitsProvider { until, reason } = outcome {
                    reach("drive.pausing");
                    let wait = AwaitProvider {
                        by: StepRef {
                            run: step.run,
                            step: step.seq,
                            attempt: step.attempts,
                        },
                        until,
                        reason,
                    };
                    let waits = submit(&inner, wait).await;
                    return (step, waits.map(|_| StepOutcome::Waits.into()));
                }
                (step, sealed.map(|sealed| MaskedOutcome { outcome, sealed }))
            }));
        }
    }

    /// Reads the run's row again after a step began to wait, which may have paused the run.
    async fn look_again(&self, step: &Step) -> Result<RunAfter, Fault> {
        let id = step.run;
        let read = self
            .inner
            .store
            .read_for_registry(move |tx| runs::get(tx, id))
            .await?;
        let run = read.ok_or_else(|| Fault::not_found("run", id))?;
        Ok(RunAfter {
            run,
            messages: Vec::new(),
            steps: Vec::new(),
        })
    }

    /// Merges a command's answer into the view and returns the steps that it opened.
    fn absorb(&mut self, after: RunAfter) -> Vec<Arc<Step>> {
        let view = Arc::make_mut(&mut self.view);
        view.run = after.run;
        view.messages
            .extend(after.messages.into_iter().map(Arc::new));
        let mut open = Vec::new();
        for step in after.steps.into_iter().map(Arc::new) {
            match view.steps.iter_mut().find(|known| known.id == step.id) {
                Some(known) => *known = Arc::clone(&step),
                None => view.steps.push(Arc::clone(&step)),
            }
            if step.state.is_open() {
                open.push(step);
            }
        }
        open
    }

    fn time_left(&self) -> Option<Duration> {
        let steady = self.inner.clock.moment().steady;
        self.view
            .run
            .remaining_at(steady)
            .map(Duration::from_millis)
    }

    /// Handles a stopped executor: the run ends, or continues later if a drain cut it off.
    async fn stopped(&self) -> DriveEnd {
        if self.view.run.cancel.is_none() && self.inner.drains.is_under_way() {
            // Its programs go on.
            return DriveEnd::CutOff;
        }
        self.inner.runner.stopping(self.view.run.id).await;
        // The run may only be reported as stopped when its child processes have stopped as well.
        let left = self.inner.processes.end_run(self.view.run.id).await;
        if self.conclude(Conclusion::ExecutorGone { left }).await {
            DriveEnd::Moved
        } else {
            DriveEnd::Lost("the end of the run could not be stored".to_owned())
        }
    }

    async fn refused(&self, fault: &Fault, what: &'static str) -> DriveEnd {
        refused(self.inner, self.view.run.id, None, fault, what).await
    }

    async fn park(&self) -> DriveEnd {
        let run = self.view.run.id;
        match self.submit(Park { run }).await {
            Ok(_) => DriveEnd::Moved,
            Err(fault) => self.refused(&fault, "it could not be parked").await,
        }
    }

    async fn conclude(&self, why: Conclusion) -> bool {
        let run = self.view.run.id;
        match self.submit(Conclude { run, why }).await {
            Ok(_) => true,
            Err(fault) => {
                tracing::info!(%run, %fault, "the run could not be ended");
                false
            }
        }
    }

    async fn submit<C: Command + Clone>(&self, command: C) -> Result<C::Reply, Fault> {
        submit(self.inner, command).await
    }
}

/// Submits a command of a run's task. Retries while the disk is full, so that a step's outcome is
/// not lost; only a drain ends the retries.
pub(super) async fn submit<C: Command + Clone>(
    inner: &RegistryInner,
    command: C,
) -> Result<C::Reply, Fault> {
    loop {
        match inner.store.submit_waiting(command.clone()).await {
            Err(fault) if matches!(fault.kind, Kind::Unavailable | Kind::Busy) => {
                tokio::select! {
                    () = tokio::time::sleep(FULL_DISK_PAUSE) => {}
                    () = inner.drained() => return Err(fault),
                }
            }
            answered => return answered,
        }
    }
}

/// Returns when the limit has passed, but not before `pause`; never without a limit.
async fn sleep(limit: Option<Duration>, pause: Duration) {
    match limit {
        Some(limit) => tokio::time::sleep(limit.max(pause)).await,
        None => std::future::pending().await,
    }
}
