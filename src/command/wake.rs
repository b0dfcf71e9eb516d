//! Ends a queued wake run once another turn of its session has seen every announce that it was
//! created for. Called with the outcome of each step.

use super::context::Context;
use super::moves::move_run;
use crate::kernel::fault::Fault;
use crate::kernel::run::event::RunEvent;
use crate::kernel::run::step::{Step, StepState};
use crate::kernel::run::{CancelRequest, Run};
use crate::store::tables::{messages, runs};

/// The actor of the cancel of a wake run that another turn has made unnecessary.
const SUPERSEDED: &str = "superseded";

/// Once this returns, a queued wake run of the session has ended without a model call if `step`, a
/// successful answer of `run`, has seen every announce that must wake its agent.
pub fn supersede(context: &mut Context<'_>, run: &Run, step: &Step) -> Result<(), Fault> {
    let Some(seen) = step.seen_up_to else {
        return Ok(());
    };
    // A called run does not see announces.
    if step.state != StepState::Done || run.is_called() {
        return Ok(());
    }
    let waiting = runs::waiting_wake(context.tx, run.session)?;
    let Some(wake) = waiting.filter(|wake| wake.cancel.is_none()) else {
        return Ok(());
    };
    if messages::count_announces_after(context.tx, run.session, seen)? > 0 {
        return Ok(());
    }
    let request = CancelRequest {
        by: SUPERSEDED.to_owned(),
        at: context.now.wall,
        reason: Some(format!("run {} has already seen the announces", run.id)),
        inherited: false,
        by_person: false,
    };
    move_run(context, &wake, RunEvent::CancelRequested(request)).map(drop)
}
