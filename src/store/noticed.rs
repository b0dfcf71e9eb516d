//! What reads and writes have noticed of damage, until somebody sees to it: rows that cannot
//! be read, and whether the file itself is damaged.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use super::files;
use super::tx::BadRow;
use crate::kernel::time::Timestamp;

/// So many rows are remembered in one life of the daemon; more is a matter for a repair of
/// the whole file.
const MOST: usize = 100_000;

/// What was noticed of damage.
pub struct Noticed {
    database: PathBuf,
    rows: Mutex<Rows>,
    news: Notify,
    is_corrupt: AtomicBool,
    checked: Mutex<Checked>,
}

/// How far the full check of this life has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Checked {
    /// It has not begun.
    #[default]
    NotYet,
    /// It is at this table.
    At(String),
    /// It has looked at every table: when, and what it found.
    Done(Timestamp, Vec<String>),
}

#[derive(Default)]
struct Rows {
    /// Each row is handed out once: one that stays unreadable must not keep anybody busy.
    seen: HashSet<BadRow>,
    waiting: Vec<BadRow>,
}

impl Noticed {
    /// Nothing yet, of this database.
    pub fn new(database: &Path) -> Self {
        Noticed {
            database: database.to_owned(),
            rows: Mutex::default(),
            news: Notify::new(),
            is_corrupt: AtomicBool::new(false),
            checked: Mutex::default(),
        }
    }

    /// The file itself is damaged: the next start looks at all of it.
    pub fn corrupt(&self, why: &str) {
        if !self.is_corrupt.swap(true, Ordering::Relaxed) {
            tracing::error!(
                why,
                "the store's file is damaged; restart the daemon to have it repaired"
            );
            files::mark_suspect(&self.database, why);
        }
    }

    /// Was the file seen to be damaged in this life?
    pub fn is_corrupt(&self) -> bool {
        self.is_corrupt.load(Ordering::Relaxed)
    }

    /// These rows could not be read.
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

    /// How far the full check has come.
    pub fn checked(&self) -> Checked {
        let checked = self.checked.lock();
        checked.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The full check has come so far.
    pub fn set_checked(&self, checked: Checked) {
        *self.checked.lock().unwrap_or_else(PoisonError::into_inner) = checked;
    }

    /// Takes out what nobody has seen to yet.
    pub fn take(&self) -> Vec<BadRow> {
        std::mem::take(&mut self.lock().waiting)
    }

    /// Are there rows that nobody has seen to yet?
    pub fn some_wait(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Returns when there may be rows to see to.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Rows> {
        // Both collections are whole at every moment.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
