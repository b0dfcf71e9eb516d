//! Warnings of a run that come from beside its steps: what it was lent could not be taken back as
//! it should, or the task that drove it has failed. The registry submits them.

use serde_json::json;

use super::Reply;
use super::context::Context;
use super::moves::load;
use crate::kernel::action::EventKind;
use crate::kernel::fault::Fault;
use crate::kernel::ids::RunId;
use crate::kernel::machine::add_warnings;
use crate::store::{db_fault, runs};

/// The run has these warnings, each once, and the event log says so of those that are new.
pub fn run(context: &mut Context<'_>, id: RunId, warnings: Vec<String>) -> Result<Reply, Fault> {
    let mut run = load(context, id)?;
    let before = run.warnings.len();
    add_warnings(&mut run.warnings, warnings);
    if run.warnings.len() > before {
        runs::set_warnings(context.tx, id, &run.warnings).map_err(db_fault)?;
        let new = json!({ "warnings": run.warnings[before..] });
        context.emit(EventKind::RunWarned, &run, new);
    }
    Ok(Reply::Done)
}
