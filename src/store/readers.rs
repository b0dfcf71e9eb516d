//! The pool of read connections, used only by the store handle.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tokio::sync::Semaphore;

use super::placement::Placement;
use super::sqlite::{Sqlite, Use};
use super::tx::{DbError, DbErrorKind, Tx};
use crate::store::repair::noticed::FoundDamage;

/// Maximum number of concurrent long reads. More would not help: they share the machine's cores.
const LONG_READS: usize = 4;

/// A pool of read connections. A read takes one while it runs; none is held across an await.
pub struct Readers {
    pool: Mutex<Pool>,
    /// Notified when a read has ended.
    returned: Condvar,
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

/// The connections.
struct Pool {
    idle: Vec<Sqlite>,
    /// Number of connections that reads use.
    in_use: usize,
}

/// A connection that one read uses. It is closed unless the read ended well.
struct LentReader<'a> {
    readers: &'a Readers,
    db: Option<Sqlite>,
}

impl Drop for LentReader<'_> {
    fn drop(&mut self) {
        let mut pool = self.readers.lock();
        pool.in_use -= 1;
        if pool.idle.len() < self.readers.most_idle {
            pool.idle.extend(self.db.take());
        }
        drop(pool);
        self.readers.returned.notify_one();
    }
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
            pool: Mutex::new(Pool {
                idle: vec![first],
                in_use: 0,
            }),
            returned: Condvar::new(),
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
        let mut db = self.take()?;
        let mut lent = LentReader {
            readers: self,
            db: None,
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
        lent.db = Some(db);
        answer
    }

    /// A connection for one read, counted as in use. Where none can be opened, as without a free
    /// descriptor, it is that of a read that ends.
    fn take(&self) -> Result<Sqlite, DbError> {
        let mut refused = None;
        loop {
            let mut pool = self.lock();
            if let Some(fault) = refused.take() {
                if pool.idle.is_empty() && pool.in_use == 0 {
                    return Err(fault);
                }
                let is_out = |pool: &mut Pool| pool.idle.is_empty() && pool.in_use > 0;
                let waited = self.returned.wait_while(pool, is_out);
                pool = waited.unwrap_or_else(PoisonError::into_inner);
            }
            let idle = pool.idle.pop();
            // Counted before it is opened, so that the count is never too low.
            pool.in_use += 1;
            drop(pool);
            match idle.map_or_else(|| self.one_more(), Ok) {
                Ok(db) => return Ok(db),
                Err(fault) => {
                    self.lock().in_use -= 1;
                    self.returned.notify_one();
                    if fault.kind == DbErrorKind::Busy {
                        return Err(fault);
                    }
                    refused = Some(fault);
                }
            }
        }
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Pool> {
        // The pool is consistent at every moment, even after a panic in a query.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
