//! Reads what a kept program has written, as its keeper writes it. Called by `follow`.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::folder::{KeeperFolder, STDERR, STDOUT};
use super::sealed::{Frames, OutputKey};
use crate::process::capture::Captured;

/// How long a change can stay unnoticed if another program has read from the pipe.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The maximum number of bytes read at once.
const CHUNK: usize = 32 * 1024;
/// The pause before a keeper is looked at again whose pipe cannot be waited for.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// Reads what a kept program has written.
pub(super) struct Follower<'a> {
    folder: &'a KeeperFolder,
    streams: [FollowedStream; 2],
    /// Where the keeper tells of changes; `None` if it could not be opened.
    wake: Option<pipe::Receiver>,
}

struct FollowedStream {
    path: PathBuf,
    file: Option<File>,
    frames: Frames,
    /// The beginning of a frame that was not read to its end.
    begun: Vec<u8>,
    kept: Captured,
}

impl<'a> Follower<'a> {
    /// Reads from the first byte, and keeps at most `keep` bytes of each stream; `None` if the key is
    /// of no use.
    pub(super) fn new(folder: &'a KeeperFolder, keep: usize, key: &OutputKey) -> Option<Self> {
        let stream = |name: &str, number| {
            Some(FollowedStream {
                path: folder.output(name),
                file: None,
                frames: key.frames(number)?,
                begun: Vec::new(),
                kept: Captured::new(keep),
            })
        };
        Some(Follower {
            folder,
            streams: [stream(STDOUT, 0)?, stream(STDERR, 1)?],
            wake: pipe::OpenOptions::new().open_receiver(folder.wake()).ok(),
        })
    }

    /// Reads all that is new. Pieces of standard output go to `heard`.
    pub(super) async fn read(&mut self, heard: &mut (impl FnMut(&[u8]) + Send)) -> io::Result<()> {
        let [out, err] = &mut self.streams;
        out.read(heard).await?;
        err.read(&mut |_: &[u8]| {}).await
    }

    /// What was read of standard output and standard error.
    pub(super) fn captured(self) -> [Captured; 2] {
        self.streams.map(|stream| stream.kept)
    }

    /// Waits until the keeper tells of a change, or has ended, at most [`LONGEST_WAIT`].
    pub(super) async fn changed(&mut self) {
        let mut told = [0; 4096];
        match &mut self.wake {
            Some(wake) => match tokio::time::timeout(LONGEST_WAIT, wake.read(&mut told)).await {
                Ok(Ok(1..)) | Err(_) => {}
                // Its end: it is opened anew, in case that its keeper is alive nevertheless.
                _ => {
                    self.wake = None;
                    tokio::time::sleep(PAUSE).await;
                }
            },
            None => {
                tokio::time::sleep(PAUSE).await;
                let wake = pipe::OpenOptions::new().open_receiver(self.folder.wake());
                self.wake = wake.ok();
            }
        }
    }
}

impl FollowedStream {
    async fn read(&mut self, heard: &mut (impl FnMut(&[u8]) + Send)) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            // A program that was not started has no files.
            None => match File::open(&self.path).await {
                Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(()),
                file => self.file.insert(file?),
            },
        };
        let mut chunk = vec![0; CHUNK];
        loop {
            match file.read(&mut chunk).await? {
                0 => return Ok(()),
                read => self.begun.extend_from_slice(&chunk[..read]),
            }
            let unopened = |_| {
                let why = "its output was sealed with another key (env.key), or changed";
                io::Error::new(ErrorKind::InvalidData, why)
            };
            while let Some(text) = self.frames.open(&mut self.begun).map_err(unopened)? {
                self.kept.push(&text);
                heard(&text);
            }
        }
    }
}
