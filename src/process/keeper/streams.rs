//! The output streams of a kept program: from its pipes into the files of its folder. A full disk
//! stops the reading until there is room, so that nothing is lost.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

use super::sealed::Frames;

/// The maximum number of bytes read at once.
const CHUNK: usize = 64 * 1024;

/// One stream of the program.
pub(super) struct KeptStream {
    /// `None` once its end was read.
    pipe: Option<Receiver>,
    /// `None` once the output is only discarded.
    file: Option<File>,
    frames: Frames,
    chunk: Vec<u8>,
    /// What was read and sealed, and is not in the file yet.
    pending: Vec<u8>,
    /// The number of bytes read from the program.
    pub total: u64,
}

impl KeptStream {
    /// Copies `pipe` into `file`, in these frames.
    pub(super) fn new(pipe: impl Into<OwnedFd>, file: File, frames: Frames) -> io::Result<Self> {
        Ok(KeptStream {
            frames,
            pipe: Some(Receiver::from_owned_fd(pipe.into())?),
            file: Some(file),
            chunk: vec![0; CHUNK],
            pending: Vec::new(),
            total: 0,
        })
    }

    /// True if more can be read now: the stream has not ended, and the file took what was read.
    pub(super) fn is_open(&self) -> bool {
        self.pipe.is_some() && self.pending.is_empty()
    }

    /// True if the file has not taken all that was read.
    pub(super) fn is_stalled(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Reads the next bytes and writes them into the file. Cancel-safe.
    pub(super) async fn advance(&mut self) {
        let Some(pipe) = &mut self.pipe else {
            return;
        };
        match pipe.read(&mut self.chunk).await {
            Ok(read) if read > 0 => {
                self.total += read as u64;
                if self.file.is_some() {
                    self.frames.seal(&self.chunk[..read], &mut self.pending);
                    self.store();
                }
            }
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            // A read error ends the stream.
            _ => self.pipe = None,
        }
    }

    /// Writes what is pending. A full disk leaves the rest pending.
    pub(super) fn store(&mut self) {
        let Some(file) = &mut self.file else {
            self.pending.clear();
            return;
        };
        while !self.pending.is_empty() {
            match file.write(&self.pending) {
                Ok(0) | Err(_) => return,
                Ok(written) => drop(self.pending.drain(..written)),
            }
        }
    }

    /// From now on, output is read and discarded, so that a full pipe blocks no process.
    pub(super) fn discard(&mut self) {
        self.file = None;
        self.pending.clear();
    }
}
