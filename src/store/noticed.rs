//! What reads and writes have noticed of damage, until somebody sees to it: rows that cannot
//! be read, and whether the file itself is damaged.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use super::tx::BadRow;

/// So many rows are remembered in one life of the daemon; more is a matter for a repair of
/// the whole file.
const MOST: usize = 100_000;

/// What was noticed of damage.
#[derive(Default)]
pub struct Noticed {
    rows: Mutex<Rows>,
    news: Notify,
}

#[derive(Default)]
struct Rows {
    /// Each row is handed out once: one that stays unreadable must not keep anybody busy.
    seen: HashSet<BadRow>,
    waiting: Vec<BadRow>,
}

impl Noticed {
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
