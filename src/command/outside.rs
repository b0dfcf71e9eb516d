//! Turns of outside agents: the session in which an agent is prompted, and the calls that it makes.

use super::context::Context;
use super::moves::{intend, load};
use super::waiting::{acting, finish};
use super::{StepRef, user_requests};
use crate::contract::commit::CommitEffect;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{ApprovalId, RunId, StepId};
use crate::kernel::policy::approval::ApprovalState;
use crate::kernel::run::outside::OutsideTurn;
use crate::kernel::run::step::{Intent, Step, StepState, WaitKind};
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
/// changes nothing; a step that has ended is a `conflict`.
pub fn begin_call(context: &mut Context<'_>, by: StepRef, call: Intent) -> Result<(), Fault> {
    let (run, _) = acting(context, by)?;
    match steps::by_id(context.tx, run.id, call.id)? {
        Some(known) if known.state.is_open() => return Ok(()),
        Some(known) => {
            let message = format!("step {} of run {} has ended", known.seq, run.id);
            return Err(Fault::new(Kind::Conflict, message));
        }
        None => {}
    }
    intend(context, &run, vec![call])?;
    context.effect(CommitEffect::Released(run.id));
    Ok(())
}

/// Once this returns, the effect of the agent's call may begin; a kill from now on leaves open whether
/// the agent was answered, so that no answer is given twice.
pub fn answer_call(context: &mut Context<'_>, by: StepRef) -> Result<(), Fault> {
    let (_, mut step) = acting(context, by)?;
    step.state = StepState::Started;
    steps::update(context.tx, &step)?;
    Ok(())
}

/// Once this returns, the call does not wait for a person any more, because its agent has dropped the
/// question. A call that has been decided on, or that does not wait yet, is unchanged.
pub fn end_call(
    context: &mut Context<'_>,
    id: RunId,
    call: StepId,
    why: &str,
) -> Result<(), Fault> {
    let run = load(context, id)?;
    if run.cancel.is_some() || run.state.is_terminal() {
        return Ok(());
    }
    match steps::by_id(context.tx, id, call)? {
        Some(step) if waits_for_answer(&step) => close(context, &run, &step, why),
        _ => Ok(()),
    }
}

/// True for the call of an outside agent whose answer the agent awaits. A review of what a call has
/// done goes on without the agent.
fn waits_for_answer(step: &Step) -> bool {
    let kind = step.waits.map(|wait| wait.kind);
    step.state.is_open()
        && step.is_outside_call()
        && matches!(kind, Some(WaitKind::Approval | WaitKind::Value))
}

/// Once this returns, the waiting call has ended as not made, and its approval is closed.
fn close(context: &mut Context<'_>, run: &Run, step: &Step, why: &str) -> Result<(), Fault> {
    let id = ApprovalId(step.id.0);
    user_requests::end_approval(context, id, ApprovalState::Closed)?;
    finish(context, run.id, step.seq, (why, true)).map(|_| ())
}

/// Once this returns, the calls of the paused run that waited for a person have ended, since the
/// program that asked has ended with an earlier daemon process. Returns whether there were any.
pub fn end_lost_calls(context: &mut Context<'_>, run: &Run, open: &[Step]) -> Result<bool, Fault> {
    if !matches!(run.state, RunState::Paused(_)) {
        return Ok(false);
    }
    let mut has_any = false;
    for call in open.iter().filter(|step| waits_for_answer(step)) {
        let why = "the daemon restarted, and the program that asked has ended; nothing was done";
        close(context, run, call, why)?;
        has_any = true;
    }
    Ok(has_any)
}
