//! The handle to an open store, through which the rest of the daemon reads and writes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, TryLockError};

use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::backup::{self, CheckedBackup};
use super::checkpoint::Checkpoints;
use super::placement::Placement;
use super::readers::Readers;
use super::room::DiskSpace;
use super::tx::{DbError, Tx};
use super::write::{Command, QueueClass, job};
use super::writer::{WriterMessage, busy};
use crate::clock::Clock;
use crate::contract::commit::CommandSettings;
use crate::kernel::event::Salvage;
use crate::kernel::fault::{Fault, Kind};
use crate::store::repair::health::StoreHealth;
use crate::store::repair::noticed::FoundDamage;
use crate::store::repair::{health, salvage};

/// An open store: cheap to clone, closed by [`Threads::close`].
#[derive(Clone)]
pub struct Store {
    pub(super) inner: Arc<StoreInner>,
}

/// The state that all handles share.
pub(super) struct StoreInner {
    pub(super) queue: mpsc::Sender<WriterMessage>,
    pub(super) readers: Readers,
    pub(super) noticed: Arc<FoundDamage>,
    pub(super) placement: Arc<Placement>,
    pub(super) checkpoints: Arc<Checkpoints>,
    pub(super) clock: Clock,
    pub(super) copying: Mutex<()>,
    pub(super) room: DiskSpace,
    pub(super) id: String,
    pub(super) digest_key: [u8; 32],
    pub(super) head: watch::Receiver<i64>,
}

impl Store {
    /// Submits a command and waits until it is committed. Dropping the future does not cancel the
    /// command.
    pub async fn submit<C: Command>(&self, command: C) -> Result<C::Reply, Fault> {
        if C::CLASS == QueueClass::NewWork {
            self.inner.room.check()?;
            self.inner.placement.check()?;
        }
        let (answer, reply) = oneshot::channel();
        self.inner
            .queue
            .try_send(WriterMessage::Job(job(command, answer)))
            .map_err(not_queued)?;
        reply.await.unwrap_or_else(|_| Err(closed()))
    }

    /// As [`Store::submit`], but the command is submitted before this returns, not when the future
    /// is first polled: for callers that continue in a task of their own.
    pub fn begin<C: Command>(
        &self,
        command: C,
    ) -> impl Future<Output = Result<C::Reply, Fault>> + Send + 'static {
        let (answer, reply) = oneshot::channel();
        let message = WriterMessage::Job(job(command, answer));
        let queued = self.inner.queue.try_send(message).map_err(not_queued);
        async move {
            queued?;
            reply.await.unwrap_or_else(|_| Err(closed()))
        }
    }

    /// As [`Store::submit`], but waits for room in the queue. For the registry's own work, which
    /// must not be refused.
    pub async fn submit_waiting<C: Command>(&self, command: C) -> Result<C::Reply, Fault> {
        let (answer, reply) = oneshot::channel();
        self.inner
            .queue
            .send(WriterMessage::Job(job(command, answer)))
            .await
            .map_err(|_| closed())?;
        reply.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Submits a command whose reply is not needed; drops it, with a warning, if the queue is full.
    pub fn submit_detached<C: Command>(&self, command: C) {
        let (answer, _) = oneshot::channel();
        let message = WriterMessage::Job(job(command, answer));
        if self.inner.queue.try_send(message).is_err() {
            tracing::warn!("the write queue is full; a background write was dropped");
        }
    }

    /// Once this returns, commands submitted from now on follow `settings`.
    pub async fn configure(&self, settings: CommandSettings) -> Result<(), Fault> {
        let queue = &self.inner.queue;
        queue
            .send(WriterMessage::Settings(settings))
            .await
            .map_err(|_| closed())
    }

    /// Liveness check of the writer: returns once it has answered, and never if it is gone.
    pub async fn ping(&self) {
        let (answer, answered) = oneshot::channel();
        let asked = self.inner.queue.send(WriterMessage::Ping(answer)).await;
        if asked.is_err() || answered.await.is_err() {
            std::future::pending().await
        }
    }

    /// Runs a short read (a few rows by key) on the calling thread.
    pub fn read_now<T>(
        &self,
        query: impl FnOnce(&mut dyn Tx) -> Result<T, DbError>,
    ) -> Result<T, Fault> {
        self.inner.readers.with(query).map_err(Fault::from)
    }

    /// Runs a longer read on a blocking thread.
    pub async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut dyn Tx) -> Result<T, DbError> + Send + 'static,
    ) -> Result<T, Fault> {
        self.read_in(&self.inner.readers.for_lists, |store| store.read_now(query))
            .await
    }

    /// As [`Store::read`], then runs `then` on the same thread, after the connection is returned.
    /// Data built from a long page is built, used and freed on that thread; only its result moves
    /// to another thread.
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

    /// As [`Store::read`], but never queued behind a client's long list: for the registry's work.
    pub async fn read_for_registry<T: Send + 'static>(
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
        // The semaphore is never closed, so a permit always comes eventually.
        let permit = Arc::clone(slots).acquire_owned().await;
        let store = self.clone();
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            read(&store)
        })
        .await
        .unwrap_or_else(|fault| Err(Fault::internal(format!("a read panicked: {fault}"))))
    }

    /// Size of the database file in bytes.
    pub fn bytes(&self) -> u64 {
        let file = &self.inner.readers.path;
        std::fs::metadata(file).map_or(0, |about| about.len())
    }

    /// Size of the WAL in bytes.
    pub fn log_bytes(&self) -> u64 {
        let file = self.inner.readers.path.with_extension("db-wal");
        // Missing file: nothing was written since the WAL was truncated.
        std::fs::metadata(file).map_or(0, |about| about.len())
    }

    /// Copies the whole store, as of one moment, into a new file, and checks the copy. Commits
    /// continue meanwhile. Only one copy runs at a time. `to` `None`: a name with the current time.
    pub async fn backup(&self, to: Option<PathBuf>) -> Result<CheckedBackup, Fault> {
        let store = self.clone();
        let copied = tokio::task::spawn_blocking(move || {
            let inner = &store.inner;
            let _alone = match inner.copying.try_lock() {
                Ok(alone) => alone,
                // The lock protects no data, so a panic of its holder does no harm.
                Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    return Err(Fault::new(
                        Kind::Conflict,
                        "a backup is already running; no other one was started",
                    )
                    .hint("try again when it has finished"));
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

    /// The state of the store and its files, for `health` and `doctor`.
    pub async fn health(&self) -> Result<StoreHealth, Fault> {
        let path = self.inner.readers.path.clone();
        let noticed = Arc::clone(&self.inner.noticed);
        let placement = Arc::clone(&self.inner.placement);
        self.read(move |tx| health::of(tx, &path, &noticed, &placement))
            .await
    }

    /// The report of an earlier salvage, until an operator has dealt with it.
    pub fn salvaged(&self) -> Result<Option<Salvage>, Fault> {
        let report = self.read_now(salvage::report)?;
        Ok(report.filter(|report| report.set_aside.exists()))
    }

    /// The free space on the store's disk.
    pub fn room(&self) -> &DiskSpace {
        &self.inner.room
    }

    /// The damage that reads and writes have found.
    pub fn noticed(&self) -> &FoundDamage {
        &self.inner.noticed
    }

    /// The highest sequence number of the log. It rises after each commit that may have added
    /// events, and no later event has a lower cursor.
    pub fn head(&self) -> watch::Receiver<i64> {
        self.inner.head.clone()
    }

    /// The store's own id, fixed when it was created.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// A keyed digest of `text` that can be computed only with this store's key.
    pub fn digest(&self, text: &str) -> Vec<u8> {
        blake3::keyed_hash(&self.inner.digest_key, text.as_bytes())
            .as_bytes()
            .to_vec()
    }
}

fn not_queued(refused: mpsc::error::TrySendError<WriterMessage>) -> Fault {
    match refused {
        mpsc::error::TrySendError::Full(_) => busy(),
        mpsc::error::TrySendError::Closed(_) => closed(),
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
