//! Keeps results of tools that are too long for the transcript.

use super::context::Context;
use super::waiting::acting;
use super::{Reply, StepRef};
use crate::kernel::fault::Fault;
use crate::kernel::text::{prefix, storable};
use crate::store::columns::to_int;
use crate::store::db_fault;
use crate::store::outputs::{self, KEPT, Output};

/// A long result of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepOutput {
    /// The step that was the call.
    pub by: StepRef,
    /// All that it says.
    pub text: String,
}

/// The result can be fetched, as far as it is kept, before its step has an outcome that says so.
pub fn keep(context: &mut Context<'_>, keep: KeepOutput) -> Result<Reply, Fault> {
    let (run, step) = acting(context, keep.by)?;
    let text = storable(&keep.text);
    let body = prefix(&text, KEPT);
    let output = Output {
        run: run.id,
        step: step.seq,
        session: run.session,
        tool_call: step.tool_call.unwrap_or_default(),
        bytes: to_int(text.len() as u64),
        kept: to_int(body.len() as u64),
        at: context.now.wall,
    };
    outputs::put(context.tx, &output, body).map_err(db_fault)?;
    Ok(Reply::Done)
}
