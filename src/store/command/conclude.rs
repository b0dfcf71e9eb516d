//! Parks runs, and ends runs that end without an outcome of their own.

use super::context::Context;
use super::moves::{end_turn, load, move_run};
use super::{Reply, RunAfter};
use crate::kernel::event::RunEvent;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::RunId;
use crate::kernel::run::{Run, RunError};
use crate::kernel::step::Intent;
use crate::kernel::text::storable;

/// The end of a turn, as its runner sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnEnd {
    /// The final text.
    pub text: Option<String>,
    /// Its next steps if something was said to it meanwhile; it then goes on with them.
    pub more: Vec<Intent>,
}

/// Why an open run is to end without an outcome of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum Conclusion {
    /// Its cancel was asked for and its executor has stopped.
    ExecutorGone {
        /// Processes that it had started and that could not be ended.
        left: Vec<u32>,
    },
    /// Its turn is over, and no step's outcome says so.
    EndTurn(TurnEnd),
    /// Its limit passed; checked again in the transaction.
    TimedOut,
    /// It cannot go on.
    Failed(RunError),
    /// It cannot go on, and what it has found so far is its result.
    Cut {
        /// Why.
        error: RunError,
        /// What it has found.
        found: String,
    },
}

/// The run is back in its queue, at a step boundary.
pub fn park(context: &mut Context<'_>, id: RunId) -> Result<Reply, Fault> {
    let run = load(context, id)?;
    let run = move_run(context, &run, RunEvent::Parked)?;
    Ok(after(run))
}

/// The run has ended, or is marked to end. A run that has ended already stays as it is.
pub fn conclude(context: &mut Context<'_>, id: RunId, why: Conclusion) -> Result<Reply, Fault> {
    let run = load(context, id)?;
    if run.state.is_terminal() {
        return Ok(after(run));
    }
    let event = match why {
        Conclusion::ExecutorGone { left } => RunEvent::ExecutorGone { left },
        Conclusion::Failed(error) => RunEvent::Failed(error),
        Conclusion::Cut { error, found } => RunEvent::Cut {
            error,
            found: storable(&found),
        },
        Conclusion::EndTurn(end) => {
            let ended = end_turn(context, &run, end)?;
            return Ok(Reply::Run(Box::new(RunAfter {
                run: ended.run,
                messages: ended.messages,
                steps: ended.steps,
            })));
        }
        Conclusion::TimedOut => {
            if run.left_at(context.now.steady) != Some(0) {
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

fn after(run: Run) -> Reply {
    Reply::Run(Box::new(RunAfter {
        run,
        messages: Vec::new(),
        steps: Vec::new(),
    }))
}
