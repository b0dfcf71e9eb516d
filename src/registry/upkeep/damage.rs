//! Quarantines damaged rows that reads and writes came across, with one command per row. Called by
//! the service loop and by the restore.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::command::Quarantine;
use crate::kernel::fault::Kind;
use crate::registry::RegistryInner;
use crate::store::Store;

/// Delay before a quarantine that failed on a full disk is retried.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Quarantines the noticed rows in a task of its own.
pub(crate) fn look(inner: &Arc<RegistryInner>, tasks: &TaskTracker) {
    let inner = Arc::clone(inner);
    tasks.spawn(async move {
        tokio::select! {
            () = set_aside(&inner.store) => {}
            () = inner.drained() => {}
        }
        // Cached messages are dropped: a quarantined message keeps only its readable part.
        inner.transcripts.forget();
    });
}

/// Once this returns, every noticed row is in quarantine, or the log has the reason why not.
pub(crate) async fn set_aside(store: &Store) {
    for row in store.noticed().take() {
        let command = Quarantine { row: row.clone() };
        loop {
            match store.submit_waiting(command.clone()).await {
                Ok(_) => break,
                Err(fault) if matches!(fault.kind, Kind::Unavailable | Kind::Busy) => {
                    tracing::warn!(%fault, "could not quarantine a damaged row yet; will retry");
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
                Err(fault) => {
                    tracing::error!(
                        table = row.table, %fault,
                        "could not quarantine a damaged row; it is skipped until the next start"
                    );
                    break;
                }
            }
        }
    }
}
