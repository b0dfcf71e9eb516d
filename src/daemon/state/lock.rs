//! One daemon per state folder, by a POSIX record lock. Such a lock belongs to one process: a
//! forked child does not keep it after a kill, and the system reports which process holds it.
//!
//! The system drops a record lock when its process closes any descriptor of the file, so nothing
//! else in this process may open it. [`Lock::keep`] acquires it again if that happens.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};

use super::{Endpoint, read_small, refused};
use crate::clock::Clock;
use crate::daemon::DaemonFailure;
use crate::kernel::ids::BootId;
use crate::kernel::time::Timestamp;
use crate::process;

/// The lock file; its presence marks a state folder.
pub const FILE: &str = "abide.lock";
/// Suffix that a process writes into the file when it is about to end.
const ENDING: &str = "ending\n";

/// How long a start waits for a process that is ending.
pub const ENDING_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a start waits for a process that shows no sign of ending. A kill that has just happened
/// may not be visible yet.
pub const HOLDER_TIMEOUT: Duration = Duration::from_millis(500);
/// Interval between attempts.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// Timeout of a connection to a process on this machine.
const CONNECT: Duration = Duration::from_millis(100);

/// The lock; held until it is dropped.
pub struct Lock {
    file: File,
    path: PathBuf,
    /// The line about this process in the file.
    text: String,
}

/// Takes the folder's lock, or returns the holder. Waits for a holder that is ending.
pub fn take(
    folder: &Path,
    boot: BootId,
    pid: u32,
    started_at: Timestamp,
) -> Result<Lock, DaemonFailure> {
    let text = format!("pid {pid}, since {started_at}, boot {boot}\n");
    take_as(folder, text)
}

/// Does a process hold the folder's lock? False if the folder has none.
pub fn is_held(folder: &Path) -> bool {
    holder(folder).is_some()
}

/// The process that holds the folder's lock, with its id if that is known here; `None` if no process
/// does.
pub fn holder(folder: &Path) -> Option<Option<i32>> {
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .open(folder.join(FILE))
        .ok()?;
    let lock = fcntl_getlk(file, &Flock::from(FlockType::WriteLock)).ok()??;
    Some(lock.pid.map(|pid| pid.as_raw_nonzero().get()))
}

fn take_as(folder: &Path, text: String) -> Result<Lock, DaemonFailure> {
    let path = folder.join(FILE);
    let clock = Clock::system();
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|fault| refused(&path, fault))?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The lock of a file that was replaced meanwhile excludes no other process.
            Ok(()) if is_at(&file, &path) => {
                let mut lock = Lock { file, path, text };
                lock.write_holder()
                    .map_err(|fault| refused(&lock.path, fault))?;
                return Ok(lock);
            }
            Ok(()) | Err(Errno::AGAIN | Errno::ACCESS) => {}
            Err(fault) => return Err(refused(&path, fault.into())),
        }
        let said = read_small(&path).unwrap_or_default();
        let is_going = is_going(&file, folder, &said);
        let timeout = if is_going {
            ENDING_TIMEOUT
        } else {
            HOLDER_TIMEOUT
        };
        if clock.monotonic() >= timeout {
            return Err(held(folder, &said, is_going));
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// The failure that names the holder by the text of the lock file.
fn held(folder: &Path, said: &str, is_going: bool) -> DaemonFailure {
    let folder = folder.to_owned();
    let holder = match said.lines().next().map(str::trim) {
        None | Some("") => "it has just started".to_owned(),
        Some(holder) => holder.to_owned(),
    };
    match is_going {
        true => DaemonFailure::Ending { folder, holder },
        false => DaemonFailure::Held { folder, holder },
    }
}

/// True if the process that holds the lock has exited or is about to exit.
fn is_going(file: &File, folder: &Path, said: &str) -> bool {
    match fcntl_getlk(file, &Flock::from(FlockType::WriteLock)) {
        // Released meanwhile.
        Ok(None) => true,
        Ok(Some(lock)) => match lock.pid {
            Some(pid) => {
                said.ends_with(ENDING)
                    || process::is_ending(pid.as_raw_nonzero().get().unsigned_abs())
            }
            // The holder is in another pid namespace, so its pid is unknown.
            None => !answers(folder),
        },
        Err(_) => !answers(folder),
    }
}

/// Does the daemon of this folder accept connections?
fn answers(folder: &Path) -> bool {
    let Some(endpoint) = Endpoint::read(folder) else {
        return false;
    };
    let by_socket = endpoint.socket.as_ref();
    if by_socket.is_some_and(|path| UnixStream::connect(path).is_ok()) {
        return true;
    }
    endpoint
        .address()
        .is_some_and(|address: SocketAddr| TcpStream::connect_timeout(&address, CONNECT).is_ok())
}

/// Is this file still the one at `path`?
fn is_at(file: &File, path: &Path) -> bool {
    let own = file.metadata();
    own.and_then(|own| Ok((own, fs::metadata(path)?)))
        .is_ok_and(|(own, there)| (own.dev(), own.ino()) == (there.dev(), there.ino()))
}

impl Lock {
    /// Once this returns, the lock is held on the file at the expected path, recreated if it was
    /// removed. The failure names a process that holds the lock instead.
    pub fn keep(&mut self) -> Result<(), DaemonFailure> {
        if !is_at(&self.file, &self.path) {
            tracing::error!(path = %self.path.display(), "the lock file is gone; creating it again");
            let folder = self.path.parent().unwrap_or(Path::new("/"));
            *self = take_as(folder, self.text.clone())?;
            return Ok(());
        }
        match fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(()),
            Err(Errno::AGAIN | Errno::ACCESS) => {
                let folder = self.path.parent().unwrap_or(&self.path);
                let said = read_small(&self.path).unwrap_or_default();
                Err(held(folder, &said, false))
            }
            Err(fault) => Err(refused(&self.path, fault.into())),
        }
    }

    /// From now on, a start waits for this process to end.
    pub fn ending(&mut self) {
        if let Err(fault) = self.file.write_all(ENDING.as_bytes()) {
            tracing::debug!(%fault, "the lock file could not be marked as ending");
        }
    }

    /// Writes this process's line into the file.
    fn write_holder(&mut self) -> std::io::Result<()> {
        let length = self.text.len() as u64;
        let written = self.file.write_all(self.text.as_bytes());
        match written.and_then(|()| self.file.set_len(length)) {
            // The lock is held anyway; other processes only cannot name the holder.
            Err(fault)
                if matches!(
                    fault.kind(),
                    ErrorKind::StorageFull | ErrorKind::FileTooLarge | ErrorKind::QuotaExceeded
                ) =>
            {
                tracing::warn!("the disk is full: the lock file does not name this process");
                Ok(())
            }
            written => written,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_whose_file_was_removed_or_replaced_is_taken_anew() {
        let folder = tempfile::tempdir().unwrap();
        let boot = BootId(uuid::Uuid::from_u128(1));
        let mut lock = take(folder.path(), boot, 7, Timestamp(0)).unwrap();
        let path = folder.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("pid 7, since"), "{text}");
        lock.keep().unwrap();
        fs::remove_file(&path).unwrap();
        lock.keep().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert!(is_at(&lock.file, &path));
        fs::write(folder.path().join("other"), "x").unwrap();
        fs::rename(folder.path().join("other"), &path).unwrap();
        lock.keep().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        lock.ending();
        assert!(fs::read_to_string(&path).unwrap().ends_with(ENDING));
    }
}
