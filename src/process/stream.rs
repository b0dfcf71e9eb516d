//! The pipes of a program: its input is written, and its output is read as the pipes fill, until
//! they are empty after its end, and then to discard what processes it left running still write.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;

use super::capture::Captured;

/// The maximum number of bytes read at once.
const CHUNK: usize = 16 * 1024;
/// The maximum number of bytes kept after the program has ended: a pipe holds no more of what the
/// program itself wrote.
pub(super) const AFTER_END: u64 = 1 << 20;
/// A pipe counts as empty if nothing arrives for this long. The output of the program is in the
/// pipe before it ends, so a slow program loses nothing.
pub(super) const QUIET: Duration = Duration::from_millis(50);

/// Writes the whole input and closes the pipe. Errors are ignored: a program need not read its
/// input.
pub(super) async fn feed(pipe: Option<ChildStdin>, input: Option<String>) {
    if let (Some(mut pipe), Some(text)) = (pipe, input) {
        let _ = pipe.write_all(text.as_bytes()).await;
        let _ = pipe.shutdown().await;
    }
}

/// Resolves once this time has passed, never without a limit.
pub(super) async fn over(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// One output stream of a program.
pub(super) struct PipeReader<R> {
    /// `None` once the end of the stream was read.
    pipe: Option<R>,
    chunk: Vec<u8>,
    /// The captured output.
    pub kept: Captured,
}

impl<R: AsyncRead + Unpin + Send + 'static> PipeReader<R> {
    /// Reads `pipe` and keeps at most `keep` bytes.
    pub(super) fn new(pipe: Option<R>, keep: usize) -> Self {
        PipeReader {
            pipe,
            chunk: vec![0; CHUNK],
            kept: Captured::new(keep),
        }
    }

    /// True until the end of the stream was read.
    pub(super) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Reads, captures and returns the next bytes; empty at the end. Cancel-safe: nothing is lost
    /// if the future is dropped.
    pub(super) async fn next(&mut self) -> &[u8] {
        let Some(pipe) = &mut self.pipe else {
            return &[];
        };
        let read = loop {
            match pipe.read(&mut self.chunk).await {
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                // A read error ends the stream.
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

    /// Reads what is left in the pipe of an ended program. Later output of other processes is
    /// discarded, so that a full or closed pipe does not block or kill them.
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
