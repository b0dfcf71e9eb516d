//! The pool of read connections, used only by the store handle.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::Semaphore;

use super::placement::Placement;
use super::sqlite::{Sqlite, Use};
use super::tx::{DbError, DbErrorKind, Tx};
use crate::store::repair::noticed::FoundDamage;

/// Maximum number of concurrent long reads. More would not help: they share the machine's cores.
const LONG_READS: usize = 4;

/// How long a read without a free file descriptor waits for the connection of another read.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A pool of read connections. A read leases one while it runs; none is held across an await.
pub struct Readers {
    pool: Mutex<Pool>,
    /// Notified when a read has ended or begins to wait.
    changed: Condvar,
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
#[derive(Default)]
struct Pool {
    idle: Vec<Sqlite>,
    /// Number of reads that have begun, those that wait included.
    reads: usize,
    /// The reads that wait for the connection of another, first come, first served.
    waiting: VecDeque<Ticket>,
    last_ticket: Ticket,
}

/// A place in the queue of waiting reads.
type Ticket = u64;

impl Pool {
    /// True if the read with this ticket may take an idle connection.
    fn is_turn_of(&self, ticket: Ticket) -> bool {
        self.waiting.front() == Some(&ticket) && !self.idle.is_empty()
    }

    /// True if another read runs, or is about to with an idle connection: the waiting ones get it then.
    fn has_running(&self) -> bool {
        !self.idle.is_empty() || self.reads > self.waiting.len()
    }
}

/// The right of one read to a connection. Without [`Lease::end`] the connection is closed.
struct Lease<'a>(&'a Readers);

impl Lease<'_> {
    /// The read has ended well, so its connection can be used again.
    fn end(self, db: Sqlite) {
        let mut pool = self.0.lock();
        if pool.idle.len() < self.0.most_idle {
            pool.idle.push(db);
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.0.lock().reads -= 1;
        self.0.changed.notify_all();
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
                ..Pool::default()
            }),
            changed: Condvar::new(),
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
        // The connection is dropped before the lease, so that a read that waits finds its descriptor.
        let (lease, mut db) = self.lease()?;
        // One snapshot for the whole read: a row that moves between two tables meanwhile is seen in
        // one of them, never in neither.
        db.execute("BEGIN", &[])?;
        let answer = query(&mut db);
        self.noticed.rows(db.take_bad());
        if db.is_corrupt() {
            self.noticed.corrupt("a read found a damaged page");
        }
        db.execute("COMMIT", &[])?;
        lease.end(db);
        answer
    }

    /// A connection for one read.
    fn lease(&self) -> Result<(Lease<'_>, Sqlite), DbError> {
        let mut pool = self.lock();
        pool.reads += 1;
        let lease = Lease(self);
        let idle = match pool.waiting.is_empty() {
            true => pool.idle.pop(),
            false => None,
        };
        drop(pool);
        let db = idle.map_or_else(|| self.open_or_wait(), Ok)?;
        Ok((lease, db))
    }

    /// Opens another connection; without a free descriptor it is that of a read that ends.
    fn open_or_wait(&self) -> Result<Sqlite, DbError> {
        match self.one_more() {
            Err(fault) if fault.kind == DbErrorKind::NoDescriptor => self.wait(),
            opened => opened,
        }
    }

    /// Waits for the connection of another read, at most [`LONGEST_WAIT`], behind those that wait
    /// already. If there is none to wait for, opening one is tried once more.
    fn wait(&self) -> Result<Sqlite, DbError> {
        let mut pool = self.lock();
        pool.last_ticket += 1;
        let ticket = pool.last_ticket;
        pool.waiting.push_back(ticket);
        // This read runs no longer, so the others may have none to wait for.
        self.changed.notify_all();
        let must_wait = |pool: &mut Pool| !pool.is_turn_of(ticket) && pool.has_running();
        let waited = self
            .changed
            .wait_timeout_while(pool, LONGEST_WAIT, must_wait);
        let (mut pool, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let leased = match pool.is_turn_of(ticket) {
            true => pool.idle.pop(),
            false => None,
        };
        pool.waiting.retain(|waiting| *waiting != ticket);
        drop(pool);
        // It may be the turn of the next one.
        self.changed.notify_all();
        leased.map_or_else(|| self.one_more(), Ok)
    }

    /// Opens another connection, if the store's files are still in place.
    fn one_more(&self) -> Result<Sqlite, DbError> {
        if let Some(moved) = self.placement.look() {
            return Err(DbError {
                kind: DbErrorKind::Busy,
                message: moved.what,
            });
        }
        let open = || {
            Sqlite::open(&self.path, Use::Read).map_err(|fault| match has_no_descriptor() {
                true => DbError {
                    kind: DbErrorKind::NoDescriptor,
                    message: format!("no file descriptor is free: {}", fault.message),
                },
                false => fault,
            })
        };
        match open() {
            // One may have become free between the refusal and the question why.
            Err(fault) if fault.kind == DbErrorKind::Other => open(),
            opened => opened,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pool> {
        // The pool is consistent at every moment, even after a panic in a query.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if this process, or the machine, can open no more files. The database's error does not tell.
fn has_no_descriptor() -> bool {
    // Not the database: to close a file releases all locks that the process has on it.
    let limits = [Errno::MFILE.raw_os_error(), Errno::NFILE.raw_os_error()];
    let opened = File::open("/");
    opened.is_err_and(|fault| {
        fault
            .raw_os_error()
            .is_some_and(|code| limits.contains(&code))
    })
}
