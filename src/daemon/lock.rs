//! One daemon for each state folder: a lock of the operating system, which ends with the
//! process, whatever ends the process.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::Failure;
use super::folder::{read_small, refused};
use crate::kernel::ids::BootId;
use crate::kernel::time::Timestamp;

/// The lock file; where it is, the folder is a state folder.
pub const FILE: &str = "abide.lock";

/// The lock; held until it is dropped.
pub struct Lock {
    _file: File,
}

/// Takes the folder's lock, or says who holds it.
pub fn take(folder: &Path, boot: BootId, pid: u32, started_at: Timestamp) -> Result<Lock, Failure> {
    let path = folder.join(FILE);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|fault| refused(&path, fault))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = read_small(&path)
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty())
                .unwrap_or_else(|| "it has just started".to_owned());
            return Err(Failure::Held {
                folder: folder.to_owned(),
                holder,
            });
        }
        Err(TryLockError::Error(fault)) => return Err(refused(&path, fault)),
    }
    let holder = format!("pid {pid}, since {started_at}, boot {boot}\n");
    let written = file
        .write_all(holder.as_bytes())
        .and_then(|()| file.set_len(holder.len() as u64));
    match written {
        // The lock is held all the same; only whom to name is not known to others.
        Err(fault) if fault.kind() == ErrorKind::StorageFull => {
            tracing::warn!("the disk is full: the lock file does not say who holds it");
        }
        written => written.map_err(|fault| refused(&path, fault))?,
    }
    Ok(Lock { _file: file })
}
