//! The environment of a run: marked as applied, missing, provided, and restored once no process
//! holds it.

use super::context::Context;
use super::moves::load;
use super::waiting::{acting, begin, release};
use super::{RunAfter, StepRef};
use crate::contract::commit::CommitEffect;
use crate::kernel::event::{EnvApplied, EnvName, EnvNames, EventData};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::RunId;
use crate::kernel::policy::overlay::REQUEST;
use crate::kernel::run::Run;
use crate::kernel::run::step::{StepWait, WaitKind};
use crate::store::tables::environment::StoredValue;
use crate::store::tables::{environment, steps};

/// A step that needs values which are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LackEnvironment {
    /// The step.
    pub by: StepRef,
    /// Each missing name with the reason.
    pub lacks: Vec<(String, String)>,
}

/// Values that a caller provides to an open run.
#[derive(Clone, Debug, PartialEq)]
pub struct ProvideEnvironment {
    /// The tenant.
    pub org: String,
    /// The run.
    pub run: RunId,
    /// The values.
    pub values: Vec<StoredValue>,
    /// True if no value is missing after this command.
    pub complete: bool,
}

/// Once this returns, the run is recorded as having programs that may hold its environment.
pub fn applied(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    if !run.env.is_empty() && environment::mark_applied(context.tx, run.id)? {
        let env = run.env.iter().map(EnvName::from).collect();
        context.emit(run, EnvApplied { env });
    }
    Ok(())
}

/// Once this returns, the values that the ended run was given are deleted, and an effect checks for
/// processes that still hold its environment.
pub fn run_ended(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    if run.env.is_empty() {
        return Ok(());
    }
    environment::clear_sealed(context.tx, run.id)?;
    if environment::is_applied(context.tx, run.id)? {
        context.effect(CommitEffect::Carried(run.id));
    }
    Ok(())
}

/// Once this returns, the step waits for the values, and its run is paused if no other step is
/// active.
pub fn lack(context: &mut Context<'_>, lack: LackEnvironment) -> Result<(), Fault> {
    let (run, step) = acting(context, lack.by)?;
    if step.waits.is_some() {
        return Ok(());
    }
    for (name, why) in &lack.lacks {
        environment::mark_missing(context.tx, run.id, name, why)?;
    }
    let names = lack.lacks.into_iter().map(|(name, _)| name).collect();
    context.emit(&run, EventData::EnvMissing(EnvNames { names }));
    let wait = StepWait {
        kind: WaitKind::Value,
        until: None,
    };
    begin(context, &run, &step, wait, &[])?;
    Ok(())
}

/// Once this returns, the run has these values, and continues if none is missing. A repeat changes
/// nothing.
pub fn provide(context: &mut Context<'_>, given: ProvideEnvironment) -> Result<RunAfter, Fault> {
    let run = load(context, given.run)?;
    if run.org != given.org {
        return Err(Fault::not_found("run", given.run));
    }
    if run.state.is_terminal() {
        return Err(Fault::new(
            Kind::Conflict,
            format!(
                "run {} has ended ({}) and needs no values",
                run.id,
                run.state.as_str()
            ),
        )
        .hint("retry it with runs.retry and provide the values to the new run"));
    }
    let mut names = run.env.clone();
    for value in &given.values {
        environment::put(context.tx, run.id, value)?;
        for known in names.iter_mut().filter(|known| known.name == value.name) {
            REQUEST.clone_into(&mut known.from);
        }
    }
    if !given.values.is_empty() {
        environment::set_names(context.tx, run.id, &names)?;
        let names = given.values.into_iter().map(|one| one.name).collect();
        context.emit(&run, EventData::EnvProvided(EnvNames { names }));
    }
    if given.complete {
        for step in steps::open(context.tx, run.id)? {
            if step.waits.is_some_and(|wait| wait.kind == WaitKind::Value) {
                release(context, run.id, step.seq)?;
            }
        }
    }
    let run = load(context, given.run)?;
    Ok(RunAfter::with_steps(run, Vec::new()))
}

/// Once this returns, the ended run's environment is recorded as restored, with one event.
pub fn restore(context: &mut Context<'_>, id: RunId) -> Result<(), Fault> {
    if environment::unmark_applied(context.tx, id)? {
        let run = load(context, id)?;
        let names = run.env.iter().map(|one| one.name.clone()).collect();
        context.emit(&run, EventData::EnvRestored(EnvNames { names }));
    }
    Ok(())
}
