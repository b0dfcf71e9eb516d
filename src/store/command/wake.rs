//! Ends a wake run that waits for its turn, once another turn of its session has answered all
//! that it was made for. Called with the outcome of each step.

use super::context::Context;
use super::moves::move_run;
use crate::kernel::event::RunEvent;
use crate::kernel::fault::Fault;
use crate::kernel::run::{CancelRequest, Run};
use crate::kernel::step::{Step, StepState};
use crate::store::{db_fault, messages, runs};

/// What a wake run names as its cancel when another turn has done its work.
const SUPERSEDED: &str = "superseded";

/// A waiting wake run of the session has ended without a model call if `step`, an answer of
/// `run`, has seen every announce that is to wake its agent. An answer that failed has not.
pub fn supersede(context: &mut Context<'_>, run: &Run, step: &Step) -> Result<(), Fault> {
    let Some(seen) = step.seen_up_to else {
        return Ok(());
    };
    // A called run is shown none of them.
    if step.state != StepState::Done || run.is_called() {
        return Ok(());
    }
    let waiting = runs::waiting_wake(context.tx, run.session).map_err(db_fault)?;
    let Some(wake) = waiting.filter(|wake| wake.cancel.is_none()) else {
        return Ok(());
    };
    if messages::announces_above(context.tx, run.session, seen).map_err(db_fault)? > 0 {
        return Ok(());
    }
    let request = CancelRequest {
        by: SUPERSEDED.to_owned(),
        at: context.now.wall,
        reason: Some(format!(
            "run {} has seen the announces that it was for",
            run.id
        )),
        inherited: false,
        by_person: false,
    };
    move_run(context, &wake, RunEvent::CancelRequested(request)).map(drop)
}
