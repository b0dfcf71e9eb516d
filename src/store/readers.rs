//! The pool of read connections, used only by the store handle.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use super::placement::Placement;
use super::sqlite::{Sqlite, Use};
use super::tx::{DbError, DbErrorKind, Tx};
use crate::store::repair::noticed::FoundDamage;

/// Maximum number of concurrent long reads. More would not help: they share the machine's cores.
const LONG_READS: usize = 4;

/// A pool of read connections. A read takes one while it runs; none is held across an await.
pub struct Readers {
    idle: Mutex<Vec<Sqlite>>,
    most_idle: usize,
    /// Path of the database file.
    pub path: PathBuf,
    noticed: Arc<FoundDamage>,
    placement: Arc<Placement>,
    /// Permits for long reads on behalf of clients.
    pub for_lists: Arc<Semaphore>,
    /// Permits for long reads on behalf of the registry.
    pub for_work: Arc<Semaphore>,
}

impl Readers {
    /// Opens the pool with its first connection.
    pub fn open(
        path: &Path,
        noticed: Arc<FoundDamage>,
        placement: Arc<Placement>,
    ) -> Result<Self, DbError> {
        // One for each long read, and one for each worker thread that may run a short one.
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let most_idle = LONG_READS + workers;
        // Others are opened on first use; opening one now shows that reads work at all.
        let first = Sqlite::open(path, Use::Read)?;
        Ok(Readers {
            idle: Mutex::new(vec![first]),
            most_idle,
            path: path.to_owned(),
            noticed,
            placement,
            for_lists: Arc::new(Semaphore::new(LONG_READS)),
            // These reads are short and CPU-bound: more than one per core would only use more
            // caches.
            for_work: Arc::new(Semaphore::new(workers)),
        })
    }

    /// Runs a query on one connection, on one snapshot of the store.
    pub fn with<T>(
        &self,
        query: impl FnOnce(&mut dyn Tx) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let taken = self.lock().pop();
        let mut db = match taken {
            Some(db) => db,
            None => self.one_more()?,
        };
        // One snapshot for the whole read: a row that moves between two tables meanwhile is seen in
        // one of them, never in neither.
        db.execute("BEGIN", &[])?;
        let answer = query(&mut db);
        self.noticed.rows(db.take_bad());
        if db.is_corrupt() {
            self.noticed.corrupt("a read found a damaged page");
        }
        db.execute("COMMIT", &[])?;
        let mut idle = self.lock();
        if idle.len() < self.most_idle {
            idle.push(db);
        }
        answer
    }

    /// Opens another connection, if the store's files are still in place.
    fn one_more(&self) -> Result<Sqlite, DbError> {
        match self.placement.look() {
            None => Sqlite::open(&self.path, Use::Read),
            Some(moved) => Err(DbError {
                kind: DbErrorKind::Busy,
                message: moved.what,
            }),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Sqlite>> {
        // The list is consistent at every moment, even after a panic in a query.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
