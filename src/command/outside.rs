//! Turns of outside agents: the session in which an agent is prompted, and the calls that it makes.

use super::context::Context;
use super::moves::intend;
use super::waiting::{acting, finish};
use super::{StepRef, user_requests};
use crate::contract::commit::CommitEffect;
use crate::kernel::fault::Fault;
use crate::kernel::ids::ApprovalId;
use crate::kernel::policy::approval::ApprovalState;
use crate::kernel::run::outside::OutsideTurn;
use crate::kernel::run::step::{Intent, Step};
use crate::kernel::run::{Run, RunState};
use crate::store::tables::steps;

/// Once this returns, the step has the session; a kill from now on leaves open whether the agent
/// was prompted.
pub fn keep_turn(context: &mut Context<'_>, by: StepRef, turn: &OutsideTurn) -> Result<(), Fault> {
    let (run, step) = acting(context, by)?;
    steps::set_input(context.tx, run.id, step.seq, &turn.input())?;
    Ok(())
}

/// Once this returns, the call is an open step of the run, which its drive task takes up. A repeat
/// changes nothing.
pub fn begin_call(context: &mut Context<'_>, by: StepRef, call: Intent) -> Result<(), Fault> {
    let (run, _) = acting(context, by)?;
    if steps::by_id(context.tx, run.id, call.id)?.is_some() {
        return Ok(());
    }
    intend(context, &run, vec![call])?;
    context.effect(CommitEffect::Released(run.id));
    Ok(())
}

/// Once this returns, the calls of the paused run that waited for a person have ended, since the
/// program that asked has ended with an earlier daemon process. Returns whether there were any.
pub fn end_lost_calls(context: &mut Context<'_>, run: &Run, open: &[Step]) -> Result<bool, Fault> {
    if !matches!(run.state, RunState::Paused(_)) {
        return Ok(false);
    }
    let waits = |step: &&Step| step.is_outside_call() && step.waits.is_some();
    let mut has_any = false;
    for call in open.iter().filter(waits) {
        let id = ApprovalId(call.id.0);
        user_requests::end_approval(context, id, ApprovalState::Closed)?;
        let told = "the daemon restarted, and the program that asked has ended; nothing was done";
        finish(context, run.id, call.seq, (told, true))?;
        has_any = true;
    }
    Ok(has_any)
}
