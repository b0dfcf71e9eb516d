//! The handle to an open store, by which everybody else writes and reads.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, TryLockError};

use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::backup::{self, Backup};
use super::checkpoint::Checkpoints;
use super::command::{Accepted, Command, Key, Reply, Settings, first_answer};
use super::db_fault;
use super::health::{self, Health};
use super::noticed::Noticed;
use super::placement::Placement;
use super::readers::Readers;
use super::room::Room;
use super::salvage::{self, Report};
use super::tx::{DbError, Tx};
use super::writer::{Job, Message, busy};
use crate::clock::Clock;
use crate::kernel::fault::{Fault, Kind};

/// An open store: cheap to clone, closed by [`Threads::close`].
#[derive(Clone)]
pub struct Store {
    pub(super) inner: Arc<Inner>,
}

/// What all handles share.
pub(super) struct Inner {
    pub(super) queue: mpsc::Sender<Message>,
    pub(super) readers: Readers,
    pub(super) noticed: Arc<Noticed>,
    pub(super) placement: Arc<Placement>,
    pub(super) checkpoints: Arc<Checkpoints>,
    pub(super) clock: Clock,
    pub(super) copying: Mutex<()>,
    pub(super) room: Room,
    pub(super) id: String,
    pub(super) digest_key: [u8; 32],
    pub(super) head: watch::Receiver<i64>,
}

impl Store {
    /// Submits a command and waits until it is committed. Dropping the future does not take
    /// the command back.
    pub async fn submit(&self, command: Command) -> Result<Reply, Fault> {
        if command.makes_work() {
            self.inner.room.check()?;
            self.inner.placement.check()?;
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
        self.read_in(&self.inner.readers.for_lists, |store| store.read_now(query))
            .await
    }

    /// As [`Store::read`], and on the same thread `then`, with the connection given back: what
    /// is made of a long page is made, used and freed where it was read, and only what comes
    /// of it goes to another thread.
    pub async fn read_then<T, R: Send + 'static>(
        &self,
        query: impl FnOnce(&mut dyn Tx) -> Result<T, DbError> + Send + 'static,
        then: impl FnOnce(T) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, Fault> {
        self.read_in(&self.inner.readers.for_lists, move |store| {
            then(store.read_now(query)?)
        })
        .await
    }

    /// As [`Store::read`], but never behind somebody's long list: for the registry's own work.
    pub async fn read_first<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut dyn Tx) -> Result<T, DbError> + Send + 'static,
    ) -> Result<T, Fault> {
        self.read_in(&self.inner.readers.for_work, |store| store.read_now(query))
            .await
    }

    async fn read_in<T: Send + 'static>(
        &self,
        slots: &Arc<Semaphore>,
        read: impl FnOnce(&Store) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        // Nobody closes the semaphore, so there is always a permit in the end.
        let permit = Arc::clone(slots).acquire_owned().await;
        let store = self.clone();
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            read(&store)
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
            if inner.placement.look().is_some() {
                return Err(inner.placement.lost());
            }
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
        let placement = Arc::clone(&self.inner.placement);
        self.read(move |tx| health::of(tx, &path, &noticed, &placement))
            .await
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

fn closed() -> Fault {
    Fault::new(
        Kind::Unavailable,
        "the store is closed: the daemon is stopping",
    )
    .hint("try again when the daemon is back")
    .with("retryAfterMs", 1000)
}
