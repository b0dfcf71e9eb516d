//! Sees to what reads and writes have noticed of damage: rows that cannot be read are set
//! aside, one command each. The service's loop calls it, and the restore before it.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::Inner;
use crate::kernel::fault::Kind;
use crate::store::{Command, Store};

/// A row that met a full disk is tried again after this long.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Sets aside what was noticed, in a task of its own.
pub(super) fn look(inner: &Arc<Inner>, tasks: &TaskTracker) {
    let inner = Arc::clone(inner);
    tasks.spawn(async move {
        tokio::select! {
            () = set_aside(&inner.store) => {}
            () = inner.drained() => {}
        }
        // Of a message that was set aside, what could be read of it stays.
        inner.transcripts.forget();
    });
}

/// Once this returns, every row that was noticed lies in quarantine, or the log says why not.
pub(super) async fn set_aside(store: &Store) {
    for row in store.noticed().take() {
        let command = Command::Quarantine { row: row.clone() };
        loop {
            match store.submit_patiently(command.clone()).await {
                Ok(_) => break,
                Err(fault) if matches!(fault.kind, Kind::Unavailable | Kind::Busy) => {
                    tracing::warn!(%fault, "a damaged row is set aside later");
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
                Err(fault) => {
                    tracing::error!(
                        table = row.table, %fault,
                        "a damaged row could not be set aside; it is left out until the next start"
                    );
                    break;
                }
            }
        }
    }
}
