//! The pipes of a program: read as they fill, emptied when it has ended, and read on, to no
//! use, while something that it left behind still writes to them.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::capture::Captured;

/// So much is read at once.
const CHUNK: usize = 16 * 1024;
/// So much of what comes after the end of the program itself is taken, at most: a pipe holds
/// no more of what it wrote before.
const AFTER_END: u64 = 1 << 20;
/// A pipe is empty when nothing comes for so long. What the program itself has written is in
/// the pipe before it ends, so this is not about being slow.
const QUIET: Duration = Duration::from_millis(50);

/// One of a program's streams.
pub(super) struct Stream<R> {
    /// Gone once its end was read.
    pipe: Option<R>,
    chunk: Vec<u8>,
    /// What was kept.
    pub kept: Captured,
}

impl<R: AsyncRead + Unpin + Send + 'static> Stream<R> {
    /// Reads `pipe`, of which so many bytes are kept.
    pub(super) fn new(pipe: Option<R>, keep: usize) -> Self {
        Stream {
            pipe,
            chunk: vec![0; CHUNK],
            kept: Captured::new(keep),
        }
    }

    /// Is there more to come?
    pub(super) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Takes what comes next, and gives it; empty at the end. May be dropped and called again:
    /// nothing is lost.
    pub(super) async fn next(&mut self) -> &[u8] {
        let Some(pipe) = &mut self.pipe else {
            return &[];
        };
        let read = loop {
            match pipe.read(&mut self.chunk).await {
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                // A pipe that cannot be read has nothing more to say.
                read => break read.unwrap_or(0),
            }
        };
        if read == 0 {
            self.pipe = None;
        }
        let taken = &self.chunk[..read];
        self.kept.push(taken);
        taken
    }

    /// Takes what is in the pipe of a program that has ended. What others write to it from now
    /// on is thrown away, so that they are not stopped by a pipe that is full or gone.
    pub(super) async fn finish(mut self, mut heard: impl FnMut(&[u8])) -> Captured {
        let before = self.kept.total();
        while self.is_open() && self.kept.total() - before < AFTER_END {
            match tokio::time::timeout(QUIET, self.next()).await {
                Ok(taken) => heard(taken),
                Err(_) => break,
            }
        }
        if let Some(mut pipe) = self.pipe {
            tokio::spawn(async move { tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await });
        }
        self.kept
    }
}
