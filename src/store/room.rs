//! How much room is left on the disk. New work is refused while there is less than is kept
//! free, so that what was accepted has room to end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::files;
use crate::kernel::fault::{Fault, Kind};

/// The room on the disk with the state folder.
pub struct Room {
    folder: PathBuf,
    keep_free: AtomicU64,
    free: AtomicU64,
    is_low: AtomicBool,
    /// It is the process's own limit on the size of files that is near.
    by_limit: AtomicBool,
}

impl Room {
    /// Of the disk that this folder is on; nothing is kept free yet.
    pub fn new(folder: &Path) -> Self {
        Room {
            folder: folder.to_owned(),
            keep_free: AtomicU64::new(0),
            free: AtomicU64::new(u64::MAX),
            is_low: AtomicBool::new(false),
            by_limit: AtomicBool::new(false),
        }
    }

    /// So many bytes are kept free from now on.
    pub fn keep_free(&self, bytes: u64) {
        self.keep_free.store(bytes, Ordering::Relaxed);
        self.look();
    }

    /// Asks the system; whether there is less room than is kept free. A system that does not
    /// say has enough until a write says otherwise.
    pub fn look(&self) -> bool {
        let on_disk = free(&self.folder).unwrap_or(u64::MAX);
        let in_files = files::room_in_files(&self.folder.join(files::DATABASE));
        let free = on_disk.min(in_files.unwrap_or(u64::MAX));
        self.by_limit.store(free < on_disk, Ordering::Relaxed);
        let keep = self.keep_free.load(Ordering::Relaxed);
        self.free.store(free, Ordering::Relaxed);
        let low = free < keep;
        if self.is_low.swap(low, Ordering::Relaxed) != low {
            if low {
                let what = self.what();
                tracing::error!(free, keep, "{what}: no new work is taken");
            } else {
                tracing::info!(free, keep, "there is room on the disk again: work goes on");
            }
        }
        low
    }

    fn what(&self) -> &'static str {
        match self.by_limit.load(Ordering::Relaxed) {
            true => "the store's files have nearly reached the size that the process may write",
            false => "the disk with the state folder is nearly full",
        }
    }

    /// Was there too little room at the last look?
    pub fn is_low(&self) -> bool {
        self.is_low.load(Ordering::Relaxed)
    }

    /// Refuses new work while there is too little room.
    pub fn check(&self) -> Result<(), Fault> {
        if !self.is_low() {
            return Ok(());
        }
        let (free, keep) = (
            self.free.load(Ordering::Relaxed),
            self.keep_free.load(Ordering::Relaxed),
        );
        Err(Fault::new(
            Kind::Unavailable,
            format!(
                "{}: {free} bytes are free, and storage.min_free keeps {keep} for what was \
                 accepted; nothing of this was kept",
                self.what()
            ),
        )
        .hint(match self.by_limit.load(Ordering::Relaxed) {
            true => "raise the limit (ulimit -f, LimitFSIZE, prlimit --fsize); the daemon goes on by itself",
            false => "free some space; the daemon goes on by itself",
        })
        .with("limit", "storage.min_free")
        .with("value", keep)
        .with("free", free)
        .with("retryAfterMs", 5000))
    }
}

/// How much room this user has where the folder is.
pub fn free(folder: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(folder).ok()?;
    Some(about.f_bavail.saturating_mul(about.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_free_is_not_given_to_new_work() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::new(folder.path());
        room.keep_free(0);
        assert!(room.check().is_ok());
        room.keep_free(u64::MAX);
        let refused = room.check().unwrap_err();
        assert_eq!(refused.kind, Kind::Unavailable);
        assert_eq!(refused.data["limit"], "storage.min_free");
        assert!(refused.hint.unwrap().contains("free some space"));
        room.keep_free(1);
        assert!(room.check().is_ok());
    }
}
