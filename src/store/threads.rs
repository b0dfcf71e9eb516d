//! The threads of an open store: started when it is opened, ended by [`Threads::close`].

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;

use super::handle::Store;
use super::open::OpenError;
use super::sqlite::{Interrupt, Sqlite, Use};
use super::tx::{DbError, DbErrorKind};
use super::writer::WriterMessage;
use crate::store::repair::check;

/// The threads of an open store.
pub struct Threads {
    pub(super) queue: mpsc::Sender<WriterMessage>,
    pub(super) writer: JoinHandle<()>,
    pub(super) checkpoints: JoinHandle<()>,
    pub(super) stop_checkpoints: std::sync::mpsc::Sender<()>,
    pub(super) check: Option<Checking>,
}

/// A full check that runs in the background.
pub(super) struct Checking {
    thread: JoinHandle<()>,
    stop: std::sync::mpsc::Sender<()>,
    interrupt: Interrupt,
}

impl Threads {
    /// After the delay `after`, the whole file is checked in the background, table by table.
    pub fn check_after(&mut self, store: &Store, after: Duration) -> Result<(), OpenError> {
        let path = store.inner.readers.path.clone();
        let wrap = |source| OpenError::of(&path, source);
        let db = Sqlite::open(&path, Use::Read).map_err(wrap)?;
        let interrupt = db.interrupt_handle();
        let (stop, stopped) = std::sync::mpsc::channel();
        let inner = Arc::clone(&store.inner);
        let work = move || {
            if stopped.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                let (noticed, checkpoints) = (&inner.noticed, &inner.checkpoints);
                check::in_background(db, noticed, checkpoints, &inner.clock, &stopped);
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

    /// Once this returns, every queued command is committed and the WAL is empty. Handles that
    /// still exist find the store closed. Blocks.
    pub fn close(self) {
        if let Some(check) = self.check {
            drop(check.stop);
            while !check.thread.is_finished() {
                check.interrupt.interrupt();
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        drop(self.stop_checkpoints);
        // A panic there was logged by its thread; committed rows are safe. It ends first: while it
        // copies, the writer could not truncate the WAL.
        let _ = self.checkpoints.join();
        // If the writer is gone, the message is not needed.
        let _ = self.queue.blocking_send(WriterMessage::Close);
        let _ = self.writer.join();
    }
}

/// Starts a thread of the store at `path`.
pub(super) fn thread(
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
