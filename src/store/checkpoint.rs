//! Keeps the write-ahead file small without being part of anybody's commit: a thread of its
//! own copies its frames into the database file while commits go on.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::sqlite::{Sqlite, Use};
use super::tx::DbError;

/// How often the thread looks whether there is something to copy.
const LOOK_EACH: Duration = Duration::from_millis(100);
/// The write-ahead file may hold so many frames of 4 KiB (64 MiB) before the writer itself
/// waits for the readers and starts it anew.
const MOST_FRAMES: i64 = 16 * 1024;
/// While somebody reads the whole database, which takes its time, it may hold so many times
/// more: the writer would wait for that reader in vain.
const TIMES_MORE: i64 = 4;

/// What writer and checkpoint thread tell each other.
#[derive(Default)]
pub struct Checkpoints {
    commits: Arc<AtomicU64>,
    restart: AtomicBool,
    long_reads: AtomicUsize,
}

/// Somebody reads the whole database, until it is dropped.
pub struct LongRead(Arc<Checkpoints>);

impl Drop for LongRead {
    fn drop(&mut self) {
        self.0.long_reads.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Checkpoints {
    /// The counter that the writer raises at each commit.
    pub fn commits(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.commits)
    }

    /// Somebody begins to read the whole database.
    pub fn long_read(self: &Arc<Self>) -> LongRead {
        self.long_reads.fetch_add(1, Ordering::Relaxed);
        LongRead(Arc::clone(self))
    }

    fn most_frames(&self) -> i64 {
        match self.long_reads.load(Ordering::Relaxed) {
            0 => MOST_FRAMES,
            _ => MOST_FRAMES * TIMES_MORE,
        }
    }

    /// The file has passed its bound: the writer must start it anew.
    pub fn writer_must_restart(&self) -> bool {
        self.restart.load(Ordering::Relaxed)
    }

    /// The writer has started the file anew.
    pub fn restarted(&self) {
        self.restart.store(false, Ordering::Relaxed);
    }
}

/// Opens the connection of the checkpoint thread.
pub fn open(path: &Path) -> Result<Sqlite, DbError> {
    Sqlite::open(path, Use::Checkpoint)
}

/// Works until `stop` is closed.
pub fn run(mut db: Sqlite, shared: &Checkpoints, stop: &Receiver<()>) {
    let mut copied = 0;
    loop {
        match stop.recv_timeout(LOOK_EACH) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
        let commits = shared.commits.load(Ordering::Relaxed);
        if commits == copied {
            continue;
        }
        match db.checkpoint_passive() {
            Ok((frames, done)) => {
                // Frames that were not copied are tried again at the next look.
                if frames == done {
                    copied = commits;
                }
                if frames > shared.most_frames() {
                    shared.restart.store(true, Ordering::Relaxed);
                }
            }
            Err(fault) => tracing::warn!(%fault, "a checkpoint failed; it is tried again"),
        }
    }
}
