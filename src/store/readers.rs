//! The connections that read, beside the one that writes. Used by the handle alone.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use super::noticed::Noticed;
use super::placement::Placement;
use super::sqlite::{Sqlite, Use};
use super::tx::{DbError, DbErrorKind, Tx};

/// Longer reads at the same time. More would not help: they share the machine's cores.
const LONG_READS: usize = 4;

/// Connections for reads. A read takes one for its time; none is held across an await.
pub struct Readers {
    idle: Mutex<Vec<Sqlite>>,
    most_idle: usize,
    /// The database.
    pub path: PathBuf,
    noticed: Arc<Noticed>,
    placement: Arc<Placement>,
    /// Who may run a longer read for a caller.
    pub for_lists: Arc<Semaphore>,
    /// Who may run one for the registry.
    pub for_work: Arc<Semaphore>,
}

impl Readers {
    /// Opens the first of them.
    pub fn open(
        path: &Path,
        noticed: Arc<Noticed>,
        placement: Arc<Placement>,
    ) -> Result<Self, DbError> {
        // One for each longer read, and one for each worker thread that may be at a short one.
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let most_idle = LONG_READS + workers;
        // Opened when they are first needed; one now shows that it works at all.
        let first = Sqlite::open(path, Use::Read)?;
        Ok(Readers {
            idle: Mutex::new(vec![first]),
            most_idle,
            path: path.to_owned(),
            noticed,
            placement,
            for_lists: Arc::new(Semaphore::new(LONG_READS)),
            // They are short and keep a core busy: more of them than cores would only fill
            // more caches.
            for_work: Arc::new(Semaphore::new(workers)),
        })
    }

    /// Runs a query on one of them, on one state of the store.
    pub fn with<T>(
        &self,
        query: impl FnOnce(&mut dyn Tx) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let taken = self.lock().pop();
        let mut db = match taken {
            Some(db) => db,
            None => self.one_more()?,
        };
        // One snapshot for the whole read: what moves from one table to another meanwhile is
        // seen in one of them, never in neither.
        db.execute("BEGIN", &[])?;
        let answer = query(&mut db);
        self.noticed.rows(db.take_bad());
        if db.is_corrupt() {
            self.noticed.corrupt("a read met a damaged page");
        }
        db.execute("COMMIT", &[])?;
        let mut idle = self.lock();
        if idle.len() < self.most_idle {
            idle.push(db);
        }
        answer
    }

    /// Another connection, to the same files as the others.
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
        // The list is whole at every moment, also where a query panicked elsewhere.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
