//! What the log and traces are told of runs: a line where a run has another do something and
//! where that is over, and the spans of a run that has ended.

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use super::Inner;
use crate::kernel::ids::RunId;
use crate::kernel::message::Message;
use crate::kernel::run::{Run, Usage};
use crate::kernel::step::{Step, StepKind};
use crate::kernel::text::preview;
use crate::store::command::{Begun, Delegation};
use crate::store::tx::{DbError, Tx};
use crate::store::{messages, runs, steps};
use crate::telemetry::spans;

/// The most characters of what was asked and answered that the log shows. Both come from the
/// rows, in which no secret value stands.
const PREVIEW: usize = 200;
/// A trace tells of so many steps of one run, the first.
const STEPS: u32 = 5000;

/// Says in the log that a run has another do something.
pub(super) fn begins(told: &Begun) {
    tracing::info!(
        run = %told.run,
        parent = %told.parent,
        trace = told.trace,
        agent = %told.agent,
        supervisor = %told.supervisor,
        face = told.face,
        task = preview(&told.task, PREVIEW),
        "a delegation begins"
    );
}

/// Says in the log how that ended.
pub(super) fn is_over(told: &Delegation) {
    tracing::info!(
        run = %told.run,
        parent = %told.parent,
        trace = told.trace,
        agent = %told.agent,
        face = told.face,
        outcome = told.outcome.as_str(),
        duration_ms = told.lived_ms,
        tool_calls = told.tool_calls,
        input_tokens = told.usage.input_tokens,
        output_tokens = told.usage.output_tokens,
        cost_micros = told.usage.cost_micros,
        result = preview(&told.said, PREVIEW),
        "a delegation is over"
    );
}

/// Gives the spans of a run that has ended to whoever takes spans.
pub(super) fn export(inner: &Arc<Inner>, tasks: &TaskTracker, run: RunId) {
    if !spans::are_wanted() {
        return;
    }
    let inner = Arc::clone(inner);
    tasks.spawn(async move {
        let rows = inner.store.read_first(move |tx| rows(tx, run)).await;
        match rows {
            Ok(Some((run, steps))) => spans::export(spans::of(&run, &steps)),
            // It went with its end.
            Ok(None) => {}
            Err(fault) => tracing::warn!(%run, %fault, "its spans could not be read"),
        }
    });
}

type Rows = (Run, Vec<(Step, Option<Usage>)>);

fn rows(tx: &mut dyn Tx, id: RunId) -> Result<Option<Rows>, DbError> {
    let Some(run) = runs::get(tx, id)? else {
        return Ok(None);
    };
    let mut found = Vec::new();
    for step in steps::after(tx, id, 0, STEPS)? {
        let used = match step.message_seq.filter(|_| step.kind == StepKind::Model) {
            Some(seq) => {
                let entries = messages::after(tx, run.session, seq - 1, 1, true)?;
                entries.first().and_then(counted)
            }
            None => None,
        };
        found.push((step, used));
    }
    Ok(Some((run, found)))
}

/// What the provider has counted of this answer.
fn counted(message: &Message) -> Option<Usage> {
    let usage = message.metadata.as_ref()?.get("usage")?;
    let of = |name: &str| usage.get(name).and_then(serde_json::Value::as_u64);
    Some(Usage {
        model_calls: 1,
        input_tokens: of("inputTokens")?,
        output_tokens: of("outputTokens").unwrap_or(0),
        cost_micros: 0,
    })
}
