//! What an ended run has left: processes of its steps, and what its runner was lent for it. Both
//! are ended behind its end; what goes wrong with that is a warning of the run. Called by the
//! service.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio_util::task::TaskTracker;

use super::Inner;
use crate::kernel::ids::RunId;
use crate::store::Command;

/// Ends all of it. Most runs have left nothing, which is seen at once.
pub(super) fn end(inner: &Arc<Inner>, tasks: &TaskTracker, run: RunId) {
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
        return;
    }
    tasks.spawn(async move {
        let left = ending.await;
        if !left.is_empty() {
            tracing::error!(%run, pids = ?left, "processes of an ended run could not be ended");
        }
    });
}

async fn warn(inner: Arc<Inner>, run: RunId, warnings: Vec<String>) {
    if warnings.is_empty() {
        return;
    }
    let command = Command::WarnRun { run, warnings };
    if let Err(fault) = inner.store.submit_patiently(command).await {
        tracing::warn!(%run, %fault, "warnings of an ended run were not noted");
    }
}
