//! Keeps tool results that are too long for the transcript.

use super::StepRef;
use super::context::Context;
use super::waiting::acting;
use crate::kernel::fault::Fault;
use crate::kernel::text::{prefix, storable};
use crate::store::tables::columns::to_int;
use crate::store::tables::outputs;
use crate::store::tables::outputs::{KEPT, Output};

/// A long tool result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepOutput {
    /// The step of the tool call.
    pub by: StepRef,
    /// The complete text; at most `KEPT` bytes are stored.
    pub text: String,
}

/// Once this returns, the result can be fetched, up to the kept length. This comes before the
/// step's outcome, which refers to it.
pub fn keep(context: &mut Context<'_>, keep: KeepOutput) -> Result<(), Fault> {
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
    outputs::put(context.tx, &output, body)?;
    Ok(())
}
