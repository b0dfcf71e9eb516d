//! Damage found by reads and writes, until it is dealt with: rows that do not decode, and whether
//! the file itself is damaged.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::kernel::time::Timestamp;
use crate::store::files;
use crate::store::tx::BadRow;

/// Maximum number of rows recorded per boot; with more, the whole file needs repair.
const MOST: usize = 100_000;

/// The damage found so far.
pub struct FoundDamage {
    database: PathBuf,
    rows: Mutex<BadRowQueue>,
    news: Notify,
    is_corrupt: AtomicBool,
    checked: Mutex<CheckProgress>,
}

/// The progress of this boot's full check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CheckProgress {
    /// It has not begun.
    #[default]
    NotYet,
    /// It is checking this table.
    At(String),
    /// It has checked every table: when it ended, and its findings.
    Done(Timestamp, Vec<String>),
}

#[derive(Default)]
struct BadRowQueue {
    /// Each row is handed out once, so that one that stays undecodable causes no endless work.
    seen: HashSet<BadRow>,
    waiting: Vec<BadRow>,
}

impl FoundDamage {
    /// An empty record for this database.
    pub fn new(database: &Path) -> Self {
        FoundDamage {
            database: database.to_owned(),
            rows: Mutex::default(),
            news: Notify::new(),
            is_corrupt: AtomicBool::new(false),
            checked: Mutex::default(),
        }
    }

    /// The file is marked as damaged: the next start checks all of it.
    pub fn corrupt(&self, why: &str) {
        if !self.is_corrupt.swap(true, Ordering::Relaxed) {
            tracing::error!(
                why,
                "the store's file is damaged; restart the daemon to have it repaired"
            );
            files::mark_suspect(&self.database, why);
        }
    }

    /// True if this process has found the file to be damaged.
    pub fn is_corrupt(&self) -> bool {
        self.is_corrupt.load(Ordering::Relaxed)
    }

    /// These rows, which do not decode, are recorded, each once.
    pub fn rows(&self, found: Vec<BadRow>) {
        if found.is_empty() {
            return;
        }
        let mut rows = self.lock();
        for row in found {
            if rows.seen.len() < MOST && rows.seen.insert(row.clone()) {
                tracing::error!(table = row.table, why = row.why, "a row cannot be read");
                rows.waiting.push(row);
                self.news.notify_one();
            }
        }
    }

    /// The progress of the full check.
    pub fn checked(&self) -> CheckProgress {
        let checked = self.checked.lock();
        checked.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The progress of the full check is recorded.
    pub fn set_checked(&self, checked: CheckProgress) {
        *self.checked.lock().unwrap_or_else(PoisonError::into_inner) = checked;
    }

    /// Takes the recorded rows that are not quarantined yet.
    pub fn take(&self) -> Vec<BadRow> {
        std::mem::take(&mut self.lock().waiting)
    }

    /// True if there are rows that [`Noticed::take`] has not returned yet.
    pub fn has_waiting(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Returns when there may be new rows to take.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BadRowQueue> {
        // Both collections are consistent at every moment.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
