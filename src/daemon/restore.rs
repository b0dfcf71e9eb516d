//! The restore of the rows at a start, also on a full disk.

use std::pin::Pin;

use tokio::sync::oneshot;

use super::DaemonFailure;
use super::clients::Clients;
use super::supervisor::Supervisor;
use crate::kernel::fault::Fault;
use crate::registry::{Registry, Restored};

/// How far the restore has come.
pub enum RestoreOutcome {
    /// Every row is restored.
    Restored(Restored),
    /// The disk is full: the restore waits for space.
    NoRoom,
    /// The daemon is to stop before the rows are restored.
    Stopped,
}

/// Waits for the restore as long as the disk has room. The supervisor sees its progress.
pub async fn with_room(
    restoring: Pin<&mut impl Future<Output = Result<Restored, Fault>>>,
    registry: &Registry,
    supervisor: &Supervisor,
) -> Result<RestoreOutcome, DaemonFailure> {
    let progress = || registry.restore_progress();
    tokio::select! {
        restored = restoring => finished(restored),
        () = registry.lacks_room() => Ok(RestoreOutcome::NoRoom),
        () = registry.hurried() => Ok(RestoreOutcome::Stopped),
        never = supervisor.report_progress(progress) => match never {},
    }
}

/// Waits for the restore on a full disk; read-only calls are answered meanwhile. Rows that wait for
/// space do not block a stop.
pub async fn without_room(
    restoring: Pin<&mut impl Future<Output = Result<Restored, Fault>>>,
    registry: &Registry,
    clients: &mut Clients,
    writer_ended: &mut oneshot::Receiver<()>,
) -> Result<RestoreOutcome, DaemonFailure> {
    tokio::select! {
        restored = restoring => finished(restored),
        () = registry.ending() => Ok(RestoreOutcome::Stopped),
        served = &mut clients.serving => Err(DaemonFailure::doors_ended(served)),
        _ = writer_ended => Err(DaemonFailure::store("its writer ended")),
    }
}

fn finished(restored: Result<Restored, Fault>) -> Result<RestoreOutcome, DaemonFailure> {
    match restored {
        Ok(restored) => Ok(RestoreOutcome::Restored(restored)),
        Err(fault) => Err(DaemonFailure::store(&fault.to_string())),
    }
}
