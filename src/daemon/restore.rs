//! The restore of the rows at a start, also on a full disk.

use std::pin::Pin;

use tokio::sync::oneshot;

use super::Failure;
use super::clients::Clients;
use super::supervisor::Supervisor;
use crate::kernel::fault::Fault;
use crate::registry::{Registry, Restored};

/// How far the restore has come.
pub enum Outcome {
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
) -> Result<Outcome, Failure> {
    let progress = || registry.restore_progress();
    tokio::select! {
        restored = restoring => finished(restored),
        () = registry.lacks_room() => Ok(Outcome::NoRoom),
        () = registry.hurried() => Ok(Outcome::Stopped),
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
) -> Result<Outcome, Failure> {
    tokio::select! {
        restored = restoring => finished(restored),
        () = registry.ending() => Ok(Outcome::Stopped),
        served = &mut clients.serving => Err(Failure::doors_ended(served)),
        _ = writer_ended => Err(Failure::store("its writer ended")),
    }
}

fn finished(restored: Result<Restored, Fault>) -> Result<Outcome, Failure> {
    match restored {
        Ok(restored) => Ok(Outcome::Restored(restored)),
        Err(fault) => Err(Failure::store(&fault.to_string())),
    }
}
