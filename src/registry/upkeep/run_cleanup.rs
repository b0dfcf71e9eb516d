//! Cleans up after an ended run: processes of its steps, and resources that its runner leased. This
//! happens after the run's end is stored; a failure becomes a warning of the run. Called by the
//! service.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio_util::task::TaskTracker;

use crate::command::WarnRun;
use crate::kernel::ids::RunId;
use crate::registry::RegistryInner;

/// Starts the cleanup; for most runs there is nothing to clean up and no task is spawned.
pub(crate) fn end(inner: &Arc<RegistryInner>, tasks: &TaskTracker, run: RunId) {
    let mut returned = inner.runner.ended(run);
    match (&mut returned).now_or_never() {
        Some(warnings) if warnings.is_empty() => {}
        Some(warnings) => {
            tasks.spawn(warn(Arc::clone(inner), run, warnings));
        }
        None => {
            let inner = Arc::clone(inner);
            tasks.spawn(async move { warn(inner, run, returned.await).await });
        }
    }
    let mut ending = inner.processes.end_run(run);
    if (&mut ending).now_or_never().is_some() {
        inner.processes.run_stored(run);
        return;
    }
    let processes = Arc::clone(&inner.processes);
    tasks.spawn(async move {
        let left = ending.await;
        processes.run_stored(run);
        if !left.is_empty() {
            tracing::error!(%run, pids = ?left, "could not stop processes of an ended run");
        }
    });
}

async fn warn(inner: Arc<RegistryInner>, run: RunId, warnings: Vec<String>) {
    if warnings.is_empty() {
        return;
    }
    let command = WarnRun { run, warnings };
    if let Err(fault) = inner.store.submit_waiting(command).await {
        tracing::warn!(%run, %fault, "could not store the warnings of an ended run");
    }
}
