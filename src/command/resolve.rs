//! Records an operator's verdict on an uncertain effect.

use super::RunAfter;
use super::context::Context;
use super::moves::{load, move_run};
use super::waiting::{finish, release};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::run::event::RunEvent;
use crate::kernel::run::step::{Step, StepState, WaitKind};
use crate::kernel::run::waiting::reviewed;
use crate::kernel::run::{Run, RunError};
use crate::store::tables::steps;

/// An operator's verdict on an effect that may have happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has happened, with this result if it is known.
    Done(Option<String>),
    /// It has not happened; the step is carried out now.
    NotDone,
    /// The run ends, and the effect stays uncertain.
    Abort,
}

/// A verdict on a step that waits for a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolve {
    /// The tenant.
    pub org: String,
    /// The run.
    pub run: RunId,
    /// The step.
    pub step: StepId,
    /// The verdict.
    pub verdict: Verdict,
    /// The actor, named in the outcome.
    pub by: String,
}

/// Once this returns, the step has the operator's outcome or is carried out again, and its run
/// continues; or the run has ended.
pub fn resolve(context: &mut Context<'_>, resolve: Resolve) -> Result<RunAfter, Fault> {
    let run = load(context, resolve.run)?;
    if run.org != resolve.org {
        return Err(Fault::not_found("run", resolve.run));
    }
    let found = steps::by_id(context.tx, run.id, resolve.step)?;
    let mut step = found.ok_or_else(|| {
        Fault::not_found("step", resolve.step).hint("runs.get lists the steps that need a review")
    })?;
    check(&run, &step)?;
    match resolve.verdict {
        Verdict::Done(result) => {
            let told = match result {
                // The output of an agent that is a program is the answer itself.
                Some(result) if step.kind.answers() => result,
                result => reviewed(&resolve.by, result.as_deref()),
            };
            finish(context, run.id, step.seq, (&told, false))?;
        }
        Verdict::NotDone => {
            step.state = StepState::Intended;
            step.attempts += 1;
            steps::update(context.tx, &step)?;
            release(context, run.id, step.seq)?;
        }
        Verdict::Abort => {
            let message = format!(
                "the daemon was killed while {} carried out step {}; {} reviewed it and ended \
                 the run: it stays uncertain whether the effect happened",
                step.tool.as_deref().unwrap_or("its program"),
                step.seq,
                resolve.by
            );
            let error = RunError::new("uncertain", message);
            move_run(context, &run, RunEvent::Interrupted(error))?;
        }
    }
    Ok(RunAfter {
        run: load(context, run.id)?,
        messages: Vec::new(),
        steps: Vec::new(),
    })
}

fn check(run: &Run, step: &Step) -> Result<(), Fault> {
    let waits = step.waits.is_some_and(|wait| wait.kind == WaitKind::Review);
    if step.state.is_open() && waits {
        return Ok(());
    }
    Err(Fault::new(
        Kind::Conflict,
        format!(
            "step {} of run {} does not wait for a review: the step is {}, the run {}; nothing was changed",
            step.seq,
            run.id,
            step.state,
            run.state.as_str()
        ),
    )
    .hint("runs.get shows its state; runs.list {needsReview: true} lists the runs that wait for a review")
    .with("stepState", step.state.as_str())
    .with("runState", run.state.as_str()))
}
