//! The state folder: its access, its lock, its secrets, and `endpoint.json`, by which local clients
//! find the daemon.

mod endpoint;
pub mod folder;
pub mod lock;
pub mod secrets;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;

pub use self::endpoint::{Endpoint, Published};
use self::folder::read_small;
pub use self::folder::refused;
use self::lock::Lock;
use super::boot::Boot;
use super::{DaemonFailure, end_now};

/// The file with the token of clients.
pub const TOKEN: &str = "token";
/// The folder of the programs that go on while no daemon runs.
pub const KEEPERS: &str = "keepers";
/// The file that a living daemon has locked.
pub const LOCK: &str = lock::FILE;
/// The file with the key that encrypts values of environments.
pub const KEY: &str = "env.key";
/// The file with the seed of the key by which nodes recognize this gateway.
pub const GATEWAY_KEY: &str = "gateway.key";
/// How often the lock of the state folder is checked.
const CHECK_LOCK: Duration = Duration::from_secs(1);

/// A state folder that this process holds, until this is dropped.
pub struct StateFolder {
    /// Its canonical path.
    pub path: PathBuf,
    // Stopped before the lock is released.
    _checking: AbortOnDropHandle<()>,
    lock: Arc<Mutex<Lock>>,
}

impl StateFolder {
    /// Once this returns, no other daemon uses the folder, only its owner can access it, and the
    /// lock is checked from time to time.
    pub fn claim(folder: &Path, boot: &Boot) -> Result<StateFolder, DaemonFailure> {
        let path = folder::prepare(folder)?;
        folder::check_files(&path)?;
        folder::close_files(&path);
        let lock = lock::take(&path, boot.id, boot.pid, boot.started_at)?;
        let lock = Arc::new(Mutex::new(lock));
        Ok(StateFolder {
            path,
            _checking: AbortOnDropHandle::new(tokio::spawn(keep_lock(Arc::clone(&lock)))),
            lock,
        })
    }

    /// From now on, a start on this folder waits for this process to end.
    pub fn mark_as_ending(&self) {
        locked(&self.lock).ending();
    }
}

/// Keeps the lock. If another process has taken it, this one exits now: two daemons would do all
/// work twice.
async fn keep_lock(lock: Arc<Mutex<Lock>>) {
    let mut ticks = tokio::time::interval(CHECK_LOCK);
    loop {
        ticks.tick().await;
        match locked(&lock).keep() {
            Ok(()) => {}
            Err(failure @ DaemonFailure::Held { .. }) => end_now(&failure),
            // The lock is held; only its file could not be checked.
            Err(failure) => tracing::error!(%failure, "the lock file could not be checked"),
        }
    }
}

fn locked(lock: &Mutex<Lock>) -> MutexGuard<'_, Lock> {
    // A lock file that could not be recreated is retried at the next tick.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
