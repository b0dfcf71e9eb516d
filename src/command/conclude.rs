//! Parks runs, and ends runs other than by the outcome of a step.

use super::RunAfter;
use super::context::Context;
use super::moves::{end_turn, load, move_run};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::RunId;
use crate::kernel::run::event::RunEvent;
use crate::kernel::run::step::Intent;
use crate::kernel::run::{Run, RunError};
use crate::kernel::text::storable;

/// The end of a turn as the runner decides it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnEnd {
    /// The final text.
    pub text: Option<String>,
    /// Next steps for the case that a steer message is waiting; the turn then continues with them.
    pub more: Vec<Intent>,
}

/// Why an open run ends other than by the outcome of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Conclusion {
    /// A cancel was requested and the executor has stopped.
    ExecutorGone {
        /// Process ids of its child processes that could not be stopped.
        left: Vec<u32>,
    },
    /// Its turn has ended without a further step.
    EndTurn(TurnEnd),
    /// Its time limit passed; checked again in the transaction.
    TimedOut,
    /// It failed.
    Failed(RunError),
    /// It failed, and its partial findings are its result.
    Cut {
        /// The error.
        error: RunError,
        /// The partial findings.
        found: String,
    },
}

/// Once this returns, the run is back in its queue, at a step boundary.
pub fn park(context: &mut Context<'_>, id: RunId) -> Result<RunAfter, Fault> {
    let run = load(context, id)?;
    let run = move_run(context, &run, RunEvent::Parked)?;
    Ok(after(run))
}

/// Once this returns, the run has ended or is marked to end. A run that had ended is unchanged.
pub fn conclude(context: &mut Context<'_>, id: RunId, why: Conclusion) -> Result<RunAfter, Fault> {
    let run = load(context, id)?;
    if run.state.is_terminal() {
        return Ok(after(run));
    }
    let event = match why {
        Conclusion::ExecutorGone { left } => RunEvent::ExecutorGone {
            surviving_processes: left,
        },
        Conclusion::Failed(error) => RunEvent::Failed(error),
        Conclusion::Cut { error, found } => RunEvent::FailedWithPartial {
            error,
            found: storable(&found),
        },
        Conclusion::EndTurn(end) => {
            let ended = end_turn(context, &run, end)?;
            return Ok(RunAfter {
                run: ended.run,
                messages: ended.messages,
                steps: ended.steps,
            });
        }
        Conclusion::TimedOut => {
            if run.remaining_at(context.now.steady) != Some(0) {
                return Err(Fault::new(
                    Kind::Conflict,
                    format!("run {id} has time left"),
                ));
            }
            RunEvent::TimedOut
        }
    };
    let run = move_run(context, &run, event)?;
    Ok(after(run))
}

fn after(run: Run) -> RunAfter {
    RunAfter {
        run,
        messages: Vec::new(),
        steps: Vec::new(),
    }
}
