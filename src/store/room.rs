//! The free space on the store's disk. New work is refused below a configured minimum, so that
//! accepted work has space to finish.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::files;
use crate::kernel::fault::{Fault, Kind};

/// Watches the free space on the disk with the state folder.
pub struct DiskSpace {
    folder: PathBuf,
    keep_free: AtomicU64,
    free: AtomicU64,
    is_low: AtomicBool,
    /// The nearer limit is the process's own file size limit, not the disk.
    by_limit: AtomicBool,
}

impl DiskSpace {
    /// For the disk that contains this folder; no space is reserved yet.
    pub fn new(folder: &Path) -> Self {
        DiskSpace {
            folder: folder.to_owned(),
            keep_free: AtomicU64::new(0),
            free: AtomicU64::new(u64::MAX),
            is_low: AtomicBool::new(false),
            by_limit: AtomicBool::new(false),
        }
    }

    /// From now on this number of bytes is kept free.
    pub fn keep_free(&self, bytes: u64) {
        self.keep_free.store(bytes, Ordering::Relaxed);
        self.look();
    }

    /// Measures the free space; returns whether it is below the minimum. If the system reports
    /// nothing, there is enough until a write fails.
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
                tracing::error!(free, keep, "{what}: new work is refused");
            } else {
                tracing::info!(
                    free,
                    keep,
                    "there is enough free space again: new work is accepted"
                );
            }
        }
        low
    }

    fn what(&self) -> &'static str {
        match self.by_limit.load(Ordering::Relaxed) {
            true => "the store's files have nearly reached the file size limit of the process",
            false => "the disk with the state folder is nearly full",
        }
    }

    /// True if the last measurement was below the minimum.
    pub fn is_low(&self) -> bool {
        self.is_low.load(Ordering::Relaxed)
    }

    /// Refuses new work while the free space is below the minimum.
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
                "{}: {free} bytes are free, and storage.min_free reserves {keep} for accepted \
                 work; this request was not kept",
                self.what()
            ),
        )
        .hint(match self.by_limit.load(Ordering::Relaxed) {
            true => "raise the limit (ulimit -f, LimitFSIZE, prlimit --fsize); the daemon continues by itself",
            false => "free some space; the daemon continues by itself",
        })
        .with("limit", "storage.min_free")
        .with("value", keep)
        .with("free", free)
        .with("retryAfterMs", 5000))
    }
}

/// Bytes that this user may still use on the folder's disk; `None` if it cannot be measured.
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
        let room = DiskSpace::new(folder.path());
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
