//! Warnings of a run from outside its steps: a leased resource could not be released properly, or
//! the run's task failed. The registry submits them.

use serde_json::json;

use super::context::Context;
use super::moves::load;
use crate::kernel::fault::Fault;
use crate::kernel::ids::RunId;
use crate::kernel::run::action::EventKind;
use crate::kernel::run::machine::add_warnings;
use crate::store::tables::runs;

/// Once this returns, the run has these warnings, each once, with an event for the new ones.
pub fn run(context: &mut Context<'_>, id: RunId, warnings: Vec<String>) -> Result<(), Fault> {
    let mut run = load(context, id)?;
    let before = run.warnings.len();
    add_warnings(&mut run.warnings, warnings);
    if run.warnings.len() > before {
        runs::set_warnings(context.tx, id, &run.warnings)?;
        let new = json!({ "warnings": run.warnings[before..] });
        context.emit(EventKind::RunWarned, &run, new);
    }
    Ok(())
}
