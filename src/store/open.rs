//! Opening a store, and the handle to an open one.

use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::backup::{self, Backup};
use super::checkpoint::{self, Checkpoints};
use super::command::{Accepted, Command, Effect, Key, Reply, Settings, first_answer};
use super::health::{self, Health};
use super::migrate::{self, MigrateError};
use super::noticed::Noticed;
use super::outline::Outline;
use super::room::Room;
use super::salvage::{self, Report, Unsaved};
use super::sqlite::{Interrupt, Sqlite, Use, header_version};
use super::tx::{DbError, DbErrorKind, Tx};
use super::writer::{Job, Message, OnFatal, QUEUE, Told, Writer, busy};
use super::{boots, check, db_fault, files, redo};
use crate::clock::Clock;
use crate::kernel::fault::{Fault, Kind};

/// Longer reads at the same time. More would not help: they share the machine's cores.
const LONG_READS: usize = 4;

/// How a store is opened.
pub struct OpenOptions {
    /// The state folder.
    pub folder: PathBuf,
    /// Time and ids.
    pub clock: Clock,
    /// Settings that commands obey.
    pub settings: Settings,
    /// Called when a commit cannot be trusted any more; it must end the process.
    pub on_fatal: OnFatal,
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its schema cannot be used.
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    /// The file is damaged, or no database, and nothing of it could be read.
    #[error(
        "{path} cannot be read as a store: {why}. No row of it could be saved, so it was left as \
         it is and nothing was started. Put back a backup with `abide restore FILE --force`, or \
         move the file away to start anew"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The database is gone, its write-ahead file is not.
    #[error(
        "{log} holds what was written last, but the store that it belongs to is not there. \
         Nothing was started, so that it is not lost. Put the store back (`abide restore FILE`), \
         or move this file away to start anew"
    )]
    OnlyLog {
        /// The write-ahead file.
        log: PathBuf,
    },
    /// The file, or its folder, takes no writes.
    #[error(
        "{path} cannot be written: {source}. Nothing was started and nothing was changed. Make \
         the file and its folder writable for this user, or choose another --state-dir"
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// What the engine said.
        source: DbError,
    },
    /// The disk is full, and not even what reads need can be made.
    #[error(
        "the disk with {path} is full ({source}). Nothing was started and nothing was lost. Free \
         some space, and start again"
    )]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// What the engine said.
        source: DbError,
    },
    /// Anything else.
    #[error("{path}: {source}")]
    Db {
        /// The file.
        path: PathBuf,
        /// What the engine said.
        source: DbError,
    },
}

impl OpenError {
    fn of(path: &Path, source: DbError) -> Self {
        let path = path.to_owned();
        match source.kind {
            DbErrorKind::ReadOnly => OpenError::ReadOnly { path, source },
            DbErrorKind::Full => OpenError::NoRoom { path, source },
            _ => OpenError::Db { path, source },
        }
    }

    fn of_schema(path: &Path, fault: MigrateError) -> Self {
        match fault {
            MigrateError::Failed { source, .. } if source.kind == DbErrorKind::Full => {
                OpenError::of(path, source)
            }
            MigrateError::Db(source) => OpenError::of(path, source),
            fault => OpenError::Migrate(fault),
        }
    }
}

/// An open store: cheap to clone, closed by [`Threads::close`].
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    queue: mpsc::Sender<Message>,
    readers: Readers,
    noticed: Arc<Noticed>,
    checkpoints: Arc<Checkpoints>,
    clock: Clock,
    copying: Mutex<()>,
    room: Room,
    id: String,
    digest_key: [u8; 32],
    head: watch::Receiver<i64>,
}

/// What opening gives.
pub struct Opened {
    /// The handle.
    pub store: Store,
    /// What the registry must do after commits, in their order: one message a commit.
    pub effects: mpsc::UnboundedReceiver<Vec<Effect>>,
    /// The threads; kept until the end.
    pub threads: Threads,
    /// What was saved, if the file was found damaged.
    pub salvaged: Option<Report>,
    /// Resolves (with an error) when the writer's thread has ended.
    pub writer_ended: oneshot::Receiver<()>,
}

/// The threads of an open store.
pub struct Threads {
    queue: mpsc::Sender<Message>,
    writer: JoinHandle<()>,
    checkpoints: JoinHandle<()>,
    stop_checkpoints: std::sync::mpsc::Sender<()>,
    check: Option<Checking>,
}

/// A full check that goes on beside the work.
struct Checking {
    thread: JoinHandle<()>,
    stop: std::sync::mpsc::Sender<()>,
    interrupt: Interrupt,
}

impl Threads {
    /// From `after` on the whole file is checked, table by table, beside the work.
    pub fn check_after(&mut self, store: &Store, after: Duration) -> Result<(), OpenError> {
        let path = store.inner.readers.path.clone();
        let wrap = |source| OpenError::of(&path, source);
        let db = Sqlite::open(&path, Use::Read).map_err(wrap)?;
        let interrupt = db.interrupt_handle();
        let (stop, stopped) = std::sync::mpsc::channel();
        let inner = Arc::clone(&store.inner);
        let work = move || {
            if stopped.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                let _long = inner.checkpoints.long_read();
                check::beside_work(db, &inner.noticed, &inner.clock, &stopped);
            }
        };
        let thread = thread("abide-check", work, &path)?;
        self.check = Some(Checking {
            thread,
            stop,
            interrupt,
        });
        Ok(())
    }

    /// Once this returns, every queued command is committed and the write-ahead file is
    /// empty. Handles that are still there find the store closed. Blocks.
    pub fn close(self) {
        if let Some(check) = self.check {
            drop(check.stop);
            while !check.thread.is_finished() {
                check.interrupt.interrupt();
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        drop(self.stop_checkpoints);
        // A panic there was logged by its thread; the rows hold what was committed. It goes
        // first: while it copies, the writer could not empty the file.
        let _ = self.checkpoints.join();
        // A writer that is gone has nothing to be told.
        let _ = self.queue.blocking_send(Message::Close);
        let _ = self.writer.join();
    }
}

impl Store {
    /// Opens the store in a folder, or makes a new one; runs migrations. A damaged file is set
    /// aside, and what can be read of it is what is opened.
    pub fn open(options: OpenOptions) -> Result<Opened, OpenError> {
        let path = options.folder.join(files::DATABASE);
        let wrap = |source: DbError| OpenError::of(&path, source);
        let unusable = |fault| OpenError::of_schema(&path, fault);
        let salvaged = prepare(&path, &options.clock)?;
        let mut db = Sqlite::open(&path, Use::Write).map_err(&wrap)?;
        migrate::migrate(&mut db, &path).map_err(unusable)?;
        let outline = Outline::of(&mut db).map_err(&wrap)?;
        outline.keep(&path).map_err(|fault| wrap(fault.into()))?;
        let (id, digest_key) = identity(&mut db, &options.clock).map_err(&wrap)?;
        let noticed = Arc::new(Noticed::new(&path));
        let readers = Readers::open(&path, Arc::clone(&noticed)).map_err(&wrap)?;
        let shared = Arc::new(Checkpoints::default());
        let (kept, clock) = (Arc::clone(&shared), options.clock.clone());
        let checkpoint_db = checkpoint::open(&path).map_err(&wrap)?;

        let (queue, jobs) = mpsc::channel(QUEUE);
        let (effects_in, effects) = mpsc::unbounded_channel();
        let (head_in, head) = watch::channel(boots::last_seq(&mut db).map_err(&wrap)?);
        let writer = Writer::new(
            db,
            options.clock,
            options.settings,
            Told {
                effects: effects_in,
                head: head_in,
            },
            Arc::clone(&shared),
            Arc::clone(&noticed),
            options.on_fatal,
        );
        let (alive, writer_ended) = oneshot::channel();
        let work = move || {
            // Dropped when the thread ends, whatever ends it.
            let _alive: oneshot::Sender<()> = alive;
            writer.run(jobs);
        };
        let writer = thread("abide-writer", work, &path)?;
        let (stop_checkpoints, stop) = std::sync::mpsc::channel();
        let checkpoints = thread(
            "abide-checkpoint",
            move || checkpoint::run(checkpoint_db, &shared, &stop),
            &path,
        )?;
        Ok(Opened {
            store: Store {
                inner: Arc::new(Inner {
                    queue: queue.clone(),
                    readers,
                    noticed,
                    checkpoints: kept,
                    clock,
                    copying: Mutex::new(()),
                    room: Room::new(&options.folder),
                    id,
                    digest_key,
                    head,
                }),
            },
            effects,
            threads: Threads {
                queue,
                writer,
                checkpoints,
                stop_checkpoints,
                check: None,
            },
            salvaged,
            writer_ended,
        })
    }

    /// Submits a command and waits until it is committed. Dropping the future does not take
    /// the command back.
    pub async fn submit(&self, command: Command) -> Result<Reply, Fault> {
        if command.makes_work() {
            self.inner.room.check()?;
        }
        let (answer, reply) = oneshot::channel();
        self.inner
            .queue
            .try_send(Message::Job(Job::new(command, answer)))
            .map_err(|refused| match refused {
                mpsc::error::TrySendError::Full(_) => busy(),
                mpsc::error::TrySendError::Closed(_) => closed(),
            })?;
        reply.await.unwrap_or_else(|_| Err(closed()))
    }

    /// As [`Store::submit`], but waits for room in the queue: for the registry's own work,
    /// which must not be refused.
    pub async fn submit_patiently(&self, command: Command) -> Result<Reply, Fault> {
        let (answer, reply) = oneshot::channel();
        self.inner
            .queue
            .send(Message::Job(Job::new(command, answer)))
            .await
            .map_err(|_| closed())?;
        reply.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Submits a command that nobody waits for; one that finds the queue full is given up.
    pub fn submit_quietly(&self, command: Command) {
        let (answer, _) = oneshot::channel();
        let job = Message::Job(Job::new(command, answer));
        if self.inner.queue.try_send(job).is_err() {
            tracing::warn!("a write that nobody waits for found no room; it was given up");
        }
    }

    /// Once this returns, the commands that are submitted from now on obey `settings`.
    pub async fn configure(&self, settings: Settings) -> Result<(), Fault> {
        let queue = &self.inner.queue;
        queue
            .send(Message::Settings(settings))
            .await
            .map_err(|_| closed())
    }

    /// Does the writer work? Returns once it has answered; for ever if it is gone.
    pub async fn ping(&self) {
        let (answer, answered) = oneshot::channel();
        let asked = self.inner.queue.send(Message::Ping(answer)).await;
        if asked.is_err() || answered.await.is_err() {
            std::future::pending().await
        }
    }

    /// What the key's first request was answered, if there was one; `conflict` if that was
    /// another request.
    pub fn first_answer(&self, key: &Key) -> Result<Option<Accepted>, Fault> {
        self.inner
            .readers
            .with(|tx| Ok(first_answer(tx, key)))
            .map_err(db_fault)?
    }

    /// Runs a short read (a few rows by key) where it stands.
    pub fn read_now<T>(
        &self,
        query: impl FnOnce(&mut dyn Tx) -> Result<T, DbError>,
    ) -> Result<T, Fault> {
        self.inner.readers.with(query).map_err(db_fault)
    }

    /// Runs a longer read on a thread that may wait.
    pub async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut dyn Tx) -> Result<T, DbError> + Send + 'static,
    ) -> Result<T, Fault> {
        self.read_in(&self.inner.readers.for_lists, query).await
    }

    /// As [`Store::read`], but never behind somebody's long list: for the registry's own work.
    pub async fn read_first<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut dyn Tx) -> Result<T, DbError> + Send + 'static,
    ) -> Result<T, Fault> {
        self.read_in(&self.inner.readers.for_work, query).await
    }

    async fn read_in<T: Send + 'static>(
        &self,
        slots: &Arc<Semaphore>,
        query: impl FnOnce(&mut dyn Tx) -> Result<T, DbError> + Send + 'static,
    ) -> Result<T, Fault> {
        // Nobody closes the semaphore, so there is always a permit in the end.
        let permit = Arc::clone(slots).acquire_owned().await;
        let store = self.clone();
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            store.read_now(query)
        })
        .await
        .unwrap_or_else(|fault| Err(Fault::internal(format!("a read panicked: {fault}"))))
    }

    /// Bytes of the write-ahead file.
    pub fn log_bytes(&self) -> u64 {
        let file = self.inner.readers.path.with_extension("db-wal");
        // Not there: nothing was written since it was emptied.
        std::fs::metadata(file).map_or(0, |about| about.len())
    }

    /// Copies the whole store, as of one moment, into a new file, and checks the copy. Commits
    /// go on meanwhile. One copy at a time; `None`: under a name with the time in it.
    pub async fn backup(&self, to: Option<PathBuf>) -> Result<Backup, Fault> {
        let store = self.clone();
        let copied = tokio::task::spawn_blocking(move || {
            let inner = &store.inner;
            let _alone = match inner.copying.try_lock() {
                Ok(alone) => alone,
                // The one that panicked holds nothing any more.
                Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    return Err(Fault::new(
                        Kind::Conflict,
                        "a backup is being made already; nothing was done",
                    )
                    .hint("wait until it is there, then ask again"));
                }
            };
            let _long = inner.checkpoints.long_read();
            backup::copy(&inner.readers.path, to, &inner.clock)
        });
        copied
            .await
            .unwrap_or_else(|fault| Err(Fault::internal(format!("a backup panicked: {fault}"))))
    }

    /// How the store and its files are.
    pub async fn health(&self) -> Result<Health, Fault> {
        let path = self.inner.readers.path.clone();
        let noticed = Arc::clone(&self.inner.noticed);
        self.read(move |tx| health::of(tx, &path, &noticed)).await
    }

    /// What was saved of a damaged file before this one, until somebody has seen to it.
    pub fn salvaged(&self) -> Result<Option<Report>, Fault> {
        let report = self.read_now(salvage::report)?;
        Ok(report.filter(Report::is_open))
    }

    /// The room on the disk.
    pub fn room(&self) -> &Room {
        &self.inner.room
    }

    /// What reads and writes have noticed of damage.
    pub fn noticed(&self) -> &Noticed {
        &self.inner.noticed
    }

    /// The highest number of the log: it rises after each commit that may have added events,
    /// and none of those still to come has a lower cursor.
    pub fn head(&self) -> watch::Receiver<i64> {
        self.inner.head.clone()
    }

    /// The store's own id, the same for ever.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// A digest of `text` that nobody without this store can compute.
    pub fn digest(&self, text: &str) -> Vec<u8> {
        blake3::keyed_hash(&self.inner.digest_key, text.as_bytes())
            .as_bytes()
            .to_vec()
    }
}

/// Once this returns, there is a whole database at `path`: the one that was there, a new one,
/// or what could be saved of a damaged one, with the report of that.
fn prepare(path: &Path, clock: &Clock) -> Result<Option<Report>, OpenError> {
    let wrap = |source: DbError| OpenError::of(path, source);
    let io = |fault: std::io::Error| wrap(DbError::from(fault));
    files::finish(path).map_err(io)?;
    if !path.exists() {
        let log = files::log(path);
        if log.metadata().is_ok_and(|log| log.len() > 0) {
            return Err(OpenError::OnlyLog { log });
        }
        make(path, clock).map_err(|fault| OpenError::of_schema(path, fault))?;
        return Ok(None);
    }
    let mut redone = None;
    let damage = match header_version(path) {
        // A newer file is refused before anything touches it.
        Ok(found) => {
            migrate::check_not_newer(found)?;
            // First: what the engine reads beside a damaged log is no state of the store.
            match check::lost_of_log(path).map_err(wrap)? {
                Some(lost) => {
                    redone = Some(redo::redo(path).map_err(io)?);
                    Some(lost)
                }
                None => check::at_start(path).map_err(wrap)?,
            }
        }
        Err(fault) if fault.kind == DbErrorKind::Corrupt => Some(fault.message),
        Err(fault) => return Err(wrap(fault)),
    };
    let Some(why) = damage else {
        files::clear_suspect(path).map_err(io)?;
        return Ok(None);
    };
    tracing::error!(path = %path.display(), why, "the store is damaged; what can be read is saved");
    let source = redone.as_ref().map(redo::Redone::path);
    match salvage::salvage(path, source, &why, clock) {
        Ok(report) => {
            let summary = report.summary();
            tracing::error!(set_aside = %report.set_aside.display(), summary, "the store was salvaged");
            Ok(Some(report))
        }
        Err(Unsaved::Nothing) => Err(OpenError::Damaged {
            path: path.to_owned(),
            why,
        }),
        Err(Unsaved::Db(source)) => Err(wrap(source)),
    }
}

/// Makes a new store aside and puts it in its place whole, so that an empty or half file
/// there is always damage and never taken for a new store.
fn make(path: &Path, clock: &Clock) -> Result<(), MigrateError> {
    let io = DbError::from;
    let aside = path.with_extension("db.new");
    for left in ["db.new", "db.new-wal", "db.new-shm"] {
        match std::fs::remove_file(path.with_extension(left)) {
            Err(fault) if fault.kind() != std::io::ErrorKind::NotFound => {
                return Err(io(fault).into());
            }
            _ => {}
        }
    }
    files::private(&aside).map_err(io)?;
    let mut db = Sqlite::open(&aside, Use::Make)?;
    migrate::migrate(&mut db, &aside)?;
    identity(&mut db, clock)?;
    db.checkpoint_truncate()?;
    drop(db);
    // One sync for all steps of the schema: until the file has its name it is not in use.
    files::sync(&aside)
        .and_then(|()| std::fs::rename(&aside, path))
        .and_then(|()| files::sync_folder(path))
        .map_err(|fault| io(fault).into())
}

fn closed() -> Fault {
    Fault::new(
        Kind::Unavailable,
        "the store is closed: the daemon is stopping",
    )
    .hint("try again when the daemon is back")
    .with("retryAfterMs", 1000)
}

fn thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
    path: &Path,
) -> Result<JoinHandle<()>, OpenError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|fault| OpenError::Db {
            path: path.to_owned(),
            source: DbError {
                kind: DbErrorKind::Other,
                message: format!("no thread could be started: {fault}"),
            },
        })
}

/// The store's id and digest key, made at its first opening.
fn identity(db: &mut Sqlite, clock: &Clock) -> Result<(String, [u8; 32]), DbError> {
    let fresh = clock.new_id().to_string();
    boots::set_meta_once(db, "store_id", &fresh)?;
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|fault| DbError {
        kind: DbErrorKind::Other,
        message: format!("the system gave no random bytes: {fault}"),
    })?;
    boots::set_meta_once(db, "digest_key", &blake3::Hash::from(seed).to_hex())?;
    let id = boots::meta(db, "store_id")?.unwrap_or(fresh);
    let key = boots::meta(db, "digest_key")?
        .and_then(|hex| blake3::Hash::from_hex(hex).ok())
        .ok_or_else(|| DbError {
            kind: DbErrorKind::Undecodable,
            message: "meta digest_key is not 32 bytes in hexadecimal".to_owned(),
        })?;
    Ok((id, *key.as_bytes()))
}

/// Connections for reads. A read takes one for its time; none is held across an await.
struct Readers {
    idle: Mutex<Vec<Sqlite>>,
    most_idle: usize,
    path: PathBuf,
    noticed: Arc<Noticed>,
    for_lists: Arc<Semaphore>,
    for_work: Arc<Semaphore>,
}

impl Readers {
    fn open(path: &Path, noticed: Arc<Noticed>) -> Result<Self, DbError> {
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
            for_lists: Arc::new(Semaphore::new(LONG_READS)),
            // They are short and keep a core busy: more of them than cores would only fill
            // more caches.
            for_work: Arc::new(Semaphore::new(workers)),
        })
    }

    fn with<T>(&self, query: impl FnOnce(&mut dyn Tx) -> Result<T, DbError>) -> Result<T, DbError> {
        let taken = self.lock().pop();
        let mut db = match taken {
            Some(db) => db,
            None => Sqlite::open(&self.path, Use::Read)?,
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Sqlite>> {
        // The list is whole at every moment, also where a query panicked elsewhere.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
