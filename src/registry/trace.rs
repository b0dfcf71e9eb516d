//! What the log and traces are told of runs: a line where a run has another do something and
//! where that is over, and the spans of a run that has ended.

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use super::Inner;
use crate::kernel::ids::RunId;
use crate::kernel::run::{Run, RunOrigin};
use crate::kernel::step::Step;
use crate::kernel::text::preview;
use crate::store::command::{Begun, Delegation, Untold};
use crate::store::tx::{DbError, Tx};
use crate::store::{runs, steps};
use crate::telemetry::spans;

/// The most characters of what was asked and answered that the log shows. Both come from the
/// rows, in which no secret value stands.
const PREVIEW: usize = 200;
/// A trace tells of so many steps of one run, the first.
const STEPS: u32 = 5000;

/// Says in the log that a run has another do something; `again`: an earlier life may have.
pub(super) fn begins(told: &Begun, again: bool) {
    tracing::info!(
        run = %told.run,
        parent = %told.parent,
        trace = told.trace,
        agent = %told.agent,
        supervisor = %told.supervisor,
        face = told.face,
        task = preview(&told.task, PREVIEW),
        again = again.then_some(true),
        "a delegation begins"
    );
}

/// Says in the log how that ended.
pub(super) fn is_over(told: &Delegation, again: bool) {
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
        again = again.then_some(true),
        "a delegation is over"
    );
}

/// Says what a kill may have come before: a line and spans come after the commit of what they tell
/// of, so that none of them tells of what never was. Twice is better than never: the line is
/// marked, and spans have the ids that they had.
pub(super) fn say_again(inner: &Arc<Inner>, tasks: &TaskTracker, run: RunId, what: Untold) {
    if what == Untold::End {
        export(inner, tasks, run);
    }
    let inner = Arc::clone(inner);
    tasks.spawn(async move {
        let found = inner.store.read_first(move |tx| {
            let Some(run) = runs::get(tx, run)? else {
                return Ok(None);
            };
            let caller = match run.parent_run {
                Some(caller) => runs::get(tx, caller)?,
                None => None,
            };
            Ok(caller.map(|caller| (caller, run)))
        });
        match (found.await, what) {
            // Who only sends a message has nobody do something.
            (Ok(Some((_, run))), Untold::Begin)
                if run.delegated.is_none() && run.origin != RunOrigin::Spawn => {}
            (Ok(Some((caller, run))), Untold::Begin) => {
                let begun = Begun {
                    run: run.id,
                    parent: caller.id,
                    trace: caller.trace_id,
                    agent: run.agent.clone(),
                    supervisor: caller.agent,
                    face: Delegation::face(&run),
                    task: run.title,
                };
                begins(&begun, true);
            }
            (Ok(Some((_, run))), Untold::End) => {
                if let Some(over) = Delegation::of(&run) {
                    is_over(&over, true);
                }
            }
            // Nobody's, or gone since.
            (Ok(None), _) => {}
            (Err(fault), _) => tracing::warn!(%run, %fault, "what was not said of it is lost"),
        }
    });
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

type Rows = (Run, Vec<Step>);

fn rows(tx: &mut dyn Tx, id: RunId) -> Result<Option<Rows>, DbError> {
    let Some(run) = runs::get(tx, id)? else {
        return Ok(None);
    };
    let steps = steps::after(tx, id, 0, STEPS)?;
    Ok(Some((run, steps)))
}
