//! Marks that an effect that must not be repeated is about to start.

use super::RunAfter;
use super::context::Context;
use super::moves::load;
use super::record_outcome::open_step;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::RunId;
use crate::kernel::run::step::StepState;
use crate::store::tables::steps;

/// Once this returns, the effect of a `once` step may begin; a kill from now on leaves it
/// uncertain.
pub fn begin(
    context: &mut Context<'_>,
    id: RunId,
    seq: u32,
    attempt: u32,
) -> Result<RunAfter, Fault> {
    let run = load(context, id)?;
    if run.cancel.is_some() {
        return Err(Fault::new(
            Kind::Conflict,
            format!("run {id} is being cancelled; no effect may start"),
        ));
    }
    let mut step = open_step(context, id, seq, attempt)?;
    step.state = StepState::Started;
    steps::update(context.tx, &step)?;
    Ok(RunAfter {
        run,
        messages: Vec::new(),
        steps: vec![step],
    })
}
