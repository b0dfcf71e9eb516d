//! Keeps the WAL small without delaying commits: a thread of its own copies WAL frames into the
//! database file while commits continue.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::sqlite::{Interrupt, Sqlite, Use};
use super::tx::DbError;

/// Interval at which the thread checks whether there are frames to copy.
const LOOK_EACH: Duration = Duration::from_millis(100);
/// The store's files are checked at every N-th interval.
const WATCH_EACH: u32 = 5;
/// Maximum number of WAL frames of 4 KiB (64 MiB) before the writer itself waits for readers and
/// restarts the WAL.
const MOST_FRAMES: i64 = 16 * 1024;
/// While a long read runs, the WAL may grow beyond that: the writer would wait for the reader in
/// vain, and every caller for the writer. At this multiple a check is interrupted; a backup is
/// not, because it ends by itself.
const CHECK_FACTOR: i64 = 4;

/// State shared by the writer and the checkpoint thread.
#[derive(Default)]
pub struct Checkpoints {
    commits: Arc<AtomicU64>,
    restart: AtomicBool,
    long_reads: AtomicUsize,
    check: Mutex<Option<Interrupt>>,
}

/// Guard of a read of the whole database; the read ends when it is dropped.
pub struct LongRead(Arc<Checkpoints>);

impl Drop for LongRead {
    fn drop(&mut self) {
        self.0.long_reads.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Checkpoints {
    /// The counter that the writer increments at each commit.
    pub fn commits(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.commits)
    }

    /// Marks the start of a read of the whole database.
    pub fn long_read(self: &Arc<Self>) -> LongRead {
        self.long_reads.fetch_add(1, Ordering::Relaxed);
        LongRead(Arc::clone(self))
    }

    /// Registers the connection of a running check, or its end (`None`).
    pub fn set_running_check(&self, interrupt: Option<Interrupt>) {
        *self.check.lock().unwrap_or_else(PoisonError::into_inner) = interrupt;
    }

    /// Reacts to the current number of WAL frames.
    fn holds(&self, frames: i64) {
        if frames > MOST_FRAMES {
            self.restart.store(true, Ordering::Relaxed);
        }
        let check = self.check.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(check), true) = (check.as_ref(), frames > MOST_FRAMES * CHECK_FACTOR) {
            check.interrupt();
        }
    }

    /// True if the WAL has passed its limit and no long read prevents a restart: the writer must
    /// restart it.
    pub fn writer_must_restart(&self) -> bool {
        self.restart.load(Ordering::Relaxed) && self.long_reads.load(Ordering::Relaxed) == 0
    }

    /// The writer has restarted the WAL.
    pub fn restarted(&self) {
        self.restart.store(false, Ordering::Relaxed);
    }
}

/// Opens the connection of the checkpoint thread.
pub fn open(path: &Path) -> Result<Sqlite, DbError> {
    Sqlite::open(path, Use::Checkpoint)
}

/// Runs until `stop` is closed. `watch` is called periodically, even without new commits.
pub fn run(mut db: Sqlite, shared: &Checkpoints, stop: &Receiver<()>, watch: &dyn Fn()) {
    let (mut copied, mut looks, mut failing) = (0, 0_u32, false);
    loop {
        match stop.recv_timeout(LOOK_EACH) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(WATCH_EACH) {
            watch();
        }
        let commits = shared.commits.load(Ordering::Relaxed);
        if commits == copied {
            continue;
        }
        match db.checkpoint_passive() {
            Ok((frames, done)) => {
                failing = false;
                // Frames that were not copied are tried again at the next interval.
                if frames == done {
                    copied = commits;
                }
                shared.holds(frames);
            }
            // Logged once, not ten times a second.
            Err(fault) if !std::mem::replace(&mut failing, true) => {
                tracing::warn!(%fault, "a WAL checkpoint failed; it will be retried");
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tx::Tx;

    #[test]
    fn the_writer_does_not_wait_for_somebody_who_reads_everything() {
        let shared = Arc::new(Checkpoints::default());
        shared.holds(MOST_FRAMES);
        assert!(!shared.writer_must_restart());
        let reader = shared.long_read();
        shared.holds(MOST_FRAMES + 1);
        assert!(
            !shared.writer_must_restart(),
            "it would stand still with it"
        );
        drop(reader);
        assert!(shared.writer_must_restart());
        shared.restarted();
        assert!(!shared.writer_must_restart());
    }

    #[test]
    fn a_check_gives_way_to_a_log_that_has_grown_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let mut db = Sqlite::open(&folder.path().join("abide.db"), Use::Write).unwrap();
        let shared = Arc::new(Checkpoints::default());
        shared.set_running_check(Some(db.interrupt_handle()));
        let checking = std::thread::spawn(move || {
            let for_ever = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                            SELECT count(*) FROM n";
            db.query(for_ever, &[], &mut |_| Ok(()))
        });
        while !checking.is_finished() {
            shared.holds(MOST_FRAMES * CHECK_FACTOR + 1);
            std::thread::yield_now();
        }
        assert!(checking.join().unwrap().is_err());
    }
}
