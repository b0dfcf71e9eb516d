//! The run state machine: the one place where a run's state changes.
//!
//! ```text
//! queued ──▶ running ──▶ settling ──▶ ended
//!   ▲ ▲         │ │          │
//!   │ └─────────┘ ▼          │
//!   ├───────── paused        │
//!   └────────────────────────┘      (every open state may also end)
//! ```

use super::action::{Action, Milestone};
use super::event::RunEvent;
use super::step::StepKind;
use crate::kernel::run::{Outcome, PauseReason, Run, RunError, RunOrigin, RunState};
use crate::kernel::time::Moment;

/// Maximum number of warnings that a run keeps.
const MOST_WARNINGS: usize = 32;

/// Adds new warnings to those of a run, without duplicates and up to a maximum of 32.
pub fn add_warnings(known: &mut Vec<String>, warnings: Vec<String>) {
    for warning in warnings {
        if known.len() < MOST_WARNINGS && !known.contains(&warning) {
            known.push(warning);
        }
    }
}

/// An event that the run's state does not accept. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a run in state {state} does not accept {event}")]
pub struct InvalidTransition {
    /// The current state of the run.
    pub state: &'static str,
    /// The event that was refused.
    pub event: &'static str,
}

/// The result of a transition: the changed run and the actions that follow.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The run after the transition.
    pub run: Run,
    /// The actions to perform, in this order.
    pub actions: Vec<Action>,
}

/// Applies `event` to `run` at `now`.
///
/// Ended runs accept no event. A run with a requested cancel accepts no new step, pause or slot; it
/// can only end.
pub fn apply(run: &Run, event: RunEvent, now: Moment) -> Result<Applied, InvalidTransition> {
    use RunState::{Paused, Queued, Running, Settling};

    let mut next = TransitionInProgress::new(run, now);
    let cancelling = run.cancel.is_some();
    match (run.state, event) {
        (Queued, RunEvent::Started) if !cancelling => {
            let first = next.run.started_at.is_none();
            next.run.started_at.get_or_insert(now.wall);
            next.run.not_before = None;
            next.enter(Running);
            next.emit(if first {
                Milestone::Started
            } else {
                Milestone::Resumed
            });
        }

        (Running, RunEvent::StepsIntended { count }) if !cancelling => {
            next.run.steps += count;
        }
        (
            Running | Paused(_) | Queued,
            RunEvent::StepEnded {
                kind,
                usage,
                warnings,
            },
        ) => {
            // Accepted even while cancelling: what has happened is recorded. A waiting step gets
            // its outcome from elsewhere, whether its run holds a slot or not.
            match kind {
                StepKind::Model | StepKind::Command => next.run.loops += 1,
                StepKind::Tool => next.run.tool_calls += 1,
                StepKind::Compaction => {}
            }
            next.run.usage.add(usage);
            add_warnings(&mut next.run.warnings, warnings);
            next.run.recoveries = 0;
        }
        (Running, RunEvent::TurnEnded { text, owed }) if !cancelling => {
            // The last turn's text is the result, even if an earlier turn had answered in part.
            next.run.result = text.filter(|text| !text.trim().is_empty());
            next.actions.push(Action::Release);
            if run.is_awaited() && !owed.is_nothing() {
                next.enter(Settling);
                next.emit(Milestone::Settling);
            } else {
                next.end_turns();
            }
        }
        (Running, RunEvent::Parked) if !cancelling => {
            next.enter(Queued);
            next.actions.push(Action::Release);
            next.actions.push(Action::Enqueue);
        }
        (Running, RunEvent::Paused(reason)) if !cancelling => {
            next.enter(Paused(reason));
            next.actions.push(Action::Release);
            next.emit(Milestone::Paused);
        }

        (Paused(before), RunEvent::Paused(reason)) if !cancelling && before != reason => {
            next.enter(Paused(reason));
            next.emit(Milestone::Paused);
        }
        (Paused(_), RunEvent::Resumed) if !cancelling => {
            next.enter(Queued);
            next.actions.push(Action::Enqueue);
        }

        (Settling, RunEvent::AnnouncesDelivered) if !cancelling => {
            next.enter(Queued);
            next.actions.push(Action::Enqueue);
        }
        (Settling, RunEvent::OwedChanged { owed }) => {
            if owed.is_nothing() {
                next.end_turns();
            }
        }

        (Queued | Running | Paused(_) | Settling, RunEvent::CancelRequested(request)) => {
            if !cancelling {
                next.run.cancel = Some(request);
            }
            if run.state == Running {
                next.actions.push(Action::StopExecutor);
            } else {
                next.end(Outcome::Cancelled, None);
            }
        }
        (Queued, RunEvent::ProgramCancelRequested(request)) => {
            if !cancelling {
                next.run.cancel = Some(request);
            }
            next.actions.push(Action::StopExecutor);
        }
        (
            Running,
            RunEvent::ExecutorGone {
                surviving_processes: left,
            },
        ) if cancelling => {
            next.actions.push(Action::Release);
            next.end(Outcome::Cancelled, still_running(&left));
        }

        (Queued | Running | Paused(_) | Settling, RunEvent::Failed(error)) => {
            next.release_if_running();
            next.end(Outcome::Error, Some(error));
        }
        (Queued | Running | Paused(_) | Settling, RunEvent::FailedWithPartial { error, found }) => {
            next.release_if_running();
            next.run.result = Some(found);
            next.end(Outcome::Error, Some(error));
        }
        (Queued | Running | Paused(_) | Settling, RunEvent::TimedOut) => {
            next.release_if_running();
            let limit = run.limit_ms.unwrap_or(0);
            let mut message = format!("it exceeded its limit of {limit} ms running time");
            if run.state == Paused(PauseReason::Provider) {
                message.push_str(
                    " while it waited for its model's provider, which accepted no \
                                  requests; runs.steps has its last refusal",
                );
            }
            next.end(
                Outcome::Timeout,
                Some(RunError::new("run_timeout", message)),
            );
        }
        (Queued | Running | Paused(_) | Settling, RunEvent::Interrupted(error)) => {
            next.release_if_running();
            next.end(Outcome::Interrupted, Some(error));
        }
        (Queued | Running | Settling | Paused(_), RunEvent::Recovered { counts, delay_ms }) => {
            if cancelling {
                // A run with a requested cancel is ended and never continued.
                next.release_if_running();
                next.end(Outcome::Cancelled, None);
            } else if run.state == Running {
                next.run.recoveries += u32::from(counts);
                next.run.not_before = (delay_ms > 0).then(|| now.wall.plus_ms(delay_ms));
                next.enter(Queued);
                next.actions.push(Action::Release);
                next.actions.push(Action::Enqueue);
            } else if run.state == Queued {
                next.run.recoveries += u32::from(counts);
                if delay_ms > 0 {
                    next.run.not_before = Some(now.wall.plus_ms(delay_ms));
                }
                next.actions.push(Action::Enqueue);
            }
        }

        (state, event) => {
            return Err(InvalidTransition {
                state: state.as_str(),
                event: name(&event),
            });
        }
    }
    Ok(next.finish())
}

/// A run during its transition.
struct TransitionInProgress {
    run: Run,
    now: Moment,
    actions: Vec<Action>,
}

impl TransitionInProgress {
    fn new(run: &Run, now: Moment) -> Self {
        let mut run = run.clone();
        run.last_activity_at = now.wall;
        // Each write adds the running time since the previous one.
        if let Some(since) = run.counting_since {
            run.used_ms += now.steady.since(since);
            run.counting_since = Some(now.steady);
        }
        TransitionInProgress {
            run,
            now,
            actions: Vec::new(),
        }
    }

    fn emit(&mut self, reached: Milestone) {
        self.actions.push(Action::Emit(reached));
    }

    fn enter(&mut self, state: RunState) {
        self.run.state = state;
        self.run.counting_since = counts(state).then_some(self.now.steady);
    }

    fn release_if_running(&mut self) {
        if self.run.state == RunState::Running {
            self.actions.push(Action::Release);
        }
    }

    /// Ends the run after its last turn; that turn's final text decides the outcome.
    fn end_turns(&mut self) {
        if self.run.cancel.is_some() {
            self.end(Outcome::Cancelled, None);
        } else if self.run.result.is_some() {
            self.end(Outcome::Ok, None);
        } else {
            let error = RunError::new("no_answer", "the run ended without a final text");
            self.end(Outcome::Error, Some(error));
        }
    }

    fn end(&mut self, outcome: Outcome, error: Option<RunError>) {
        self.enter(RunState::Ended(outcome));
        self.run.ended_at = Some(self.now.wall);
        self.run.error = error;
        self.run.not_before = None;
        self.emit(Milestone::Ended);
        // A run that ends well has no open descendants, or has left them running on purpose.
        if outcome != Outcome::Ok && self.run.origin == RunOrigin::Spawn {
            self.actions.push(Action::CancelDescendants);
        }
        if self.run.owes_announce() {
            self.actions.push(Action::Announce);
        }
        if self.run.requester.is_some() {
            self.actions.push(Action::SettleRequester);
        }
        self.actions.push(Action::WakeWaiters);
    }

    fn finish(self) -> Applied {
        Applied {
            run: self.run,
            actions: self.actions,
        }
    }
}

/// True if time in this state counts against the run's limit.
fn counts(state: RunState) -> bool {
    use crate::kernel::run::PauseReason::{Child, Provider, Reply};
    matches!(
        state,
        RunState::Running | RunState::Settling | RunState::Paused(Child | Reply | Provider)
    )
}

/// The error of a cancelled run whose processes could not all be terminated; `None` if none is
/// left.
fn still_running(left: &[u32]) -> Option<RunError> {
    if left.is_empty() {
        return None;
    }
    let numbers: Vec<String> = left.iter().map(u32::to_string).collect();
    let message = format!(
        "processes that it started could not be terminated and are still running: {}",
        numbers.join(", ")
    );
    Some(RunError::new("processes_left", message))
}

fn name(event: &RunEvent) -> &'static str {
    match event {
        RunEvent::Started => "a start",
        RunEvent::StepsIntended { .. } => "a new step",
        RunEvent::StepEnded { .. } => "a step's outcome",
        RunEvent::TurnEnded { .. } => "the end of a turn",
        RunEvent::OwedChanged { .. } => "a change of what is pending",
        RunEvent::AnnouncesDelivered => "announces",
        RunEvent::Parked => "parking",
        RunEvent::Paused(_) => "a pause",
        RunEvent::Resumed => "a resume",
        RunEvent::Failed(_) | RunEvent::FailedWithPartial { .. } => "a failure",
        RunEvent::TimedOut => "a time-out",
        RunEvent::CancelRequested(_) | RunEvent::ProgramCancelRequested(_) => "a cancel",
        RunEvent::ExecutorGone { .. } => "the end of its executor",
        RunEvent::Recovered { .. } => "a recovery",
        RunEvent::Interrupted(_) => "an interruption",
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
