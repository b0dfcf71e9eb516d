//! Log lines and spans about runs: a line at the start and end of each delegation, and the spans of
//! an ended run. Called by the service loop.

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use crate::contract::commit::{Delegation, DelegationStarted, MissedLog};
use crate::kernel::ids::RunId;
use crate::kernel::run::step::Step;
use crate::kernel::run::{Run, RunOrigin};
use crate::kernel::text::preview;
use crate::registry::RegistryInner;
use crate::store::tables::{runs, steps};
use crate::store::tx::{DbError, Tx};
use crate::telemetry::spans;

/// Maximum number of characters of a task or result in a log line. Both come from rows, which
/// contain no secret values.
const PREVIEW: usize = 200;
/// Maximum number of steps of a run in its trace, the earliest ones.
const STEPS: u32 = 5000;

/// Logs the start of a delegation; `again` marks a possible duplicate of an earlier boot's line.
pub(crate) fn log_start(told: &DelegationStarted, again: bool) {
    tracing::info!(
        run = %told.run,
        parent = %told.parent,
        trace = told.trace,
        agent = %told.agent,
        supervisor = %told.supervisor,
        mode = told.mode,
        task = preview(&told.task, PREVIEW),
        again = again.then_some(true),
        "delegation started"
    );
}

/// Logs the end of a delegation.
pub(crate) fn log_end(told: &Delegation, again: bool) {
    tracing::info!(
        run = %told.run,
        parent = %told.parent,
        trace = told.trace,
        agent = %told.agent,
        mode = told.mode,
        outcome = told.outcome.as_str(),
        duration_ms = told.lived_ms,
        tool_calls = told.tool_calls,
        input_tokens = told.usage.input_tokens,
        output_tokens = told.usage.output_tokens,
        cost_micros = told.usage.cost_micros,
        result = preview(&told.said, PREVIEW),
        again = again.then_some(true),
        "delegation ended"
    );
}

/// Repeats a log line and spans that a kill may have prevented. They are emitted after the commit,
/// so that they never describe something that did not happen. A duplicate is better than a gap: the
/// line is marked, and spans keep their ids.
pub(crate) fn repeat_logs(
    inner: &Arc<RegistryInner>,
    tasks: &TaskTracker,
    run: RunId,
    what: MissedLog,
) {
    if what == MissedLog::End {
        export(inner, tasks, run);
    }
    let inner = Arc::clone(inner);
    tasks.spawn(async move {
        let found = inner.store.read_for_registry(move |tx| {
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
            // A run for a sent message is not a delegation.
            (Ok(Some((_, run))), MissedLog::Begin)
                if run.delegated.is_none() && run.origin != RunOrigin::Spawn => {}
            (Ok(Some((caller, run))), MissedLog::Begin) => {
                let begun = DelegationStarted {
                    run: run.id,
                    parent: caller.id,
                    trace: caller.trace_id,
                    agent: run.agent.clone(),
                    supervisor: caller.agent,
                    mode: Delegation::mode(&run),
                    task: run.title,
                };
                log_start(&begun, true);
            }
            (Ok(Some((_, run))), MissedLog::End) => {
                if let Some(over) = Delegation::of(&run) {
                    log_end(&over, true);
                }
            }
            // The run has no parent run, or is gone.
            (Ok(None), _) => {}
            (Err(fault), _) => {
                tracing::warn!(%run, %fault, "could not read a run to repeat its log lines")
            }
        }
    });
}

/// Exports the spans of an ended run, if an exporter is configured.
pub(crate) fn export(inner: &Arc<RegistryInner>, tasks: &TaskTracker, run: RunId) {
    if !spans::are_wanted() {
        return;
    }
    let inner = Arc::clone(inner);
    tasks.spawn(async move {
        let rows = inner.store.read_for_registry(move |tx| rows(tx, run)).await;
        match rows {
            Ok(Some((run, steps))) => spans::export(spans::of(&run, &steps)),
            // The run was deleted when it ended.
            Ok(None) => {}
            Err(fault) => tracing::warn!(%run, %fault, "could not read the spans of a run"),
        }
    });
}

type RunRows = (Run, Vec<Step>);

fn rows(tx: &mut dyn Tx, id: RunId) -> Result<Option<RunRows>, DbError> {
    let Some(run) = runs::get(tx, id)? else {
        return Ok(None);
    };
    let steps = steps::after(tx, id, 0, STEPS)?;
    Ok(Some((run, steps)))
}
