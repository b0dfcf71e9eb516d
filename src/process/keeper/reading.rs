//! Reads what a keeper writes about its program: output, exit, and whether the keeper is alive. Only
//! what has changed is read, on a thread for files. Called by `follow`.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;

use super::changes::{Changes, FolderWatch};
use super::folder::{ExitRecord, KeeperFolder, STDERR, STDOUT};
use super::sealed::{Frames, OutputKey};
use crate::process::capture::Captured;

/// The maximum number of bytes read at once.
const CHUNK: usize = 32 * 1024;
/// The bytes of a stream after which a look ends, so that its text is passed on.
const LOOK: usize = 256 * 1024;

/// What a look at the folder has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The program runs, and all that it has written so far was read.
    Running,
    /// There is more output to read.
    More,
    /// The program has ended, and all that it has written was read.
    Exited(ExitRecord),
    /// The keeper has ended after it may have started the program, and has recorded no exit.
    Lost,
    /// The keeper has ended before it started the program.
    NotLaunched,
}

/// Why a look has failed.
#[derive(Debug)]
pub(super) enum Unread {
    /// The output cannot be opened with this key.
    Sealed,
    /// The system refused.
    Refused(io::Error),
}

impl From<io::Error> for Unread {
    fn from(fault: io::Error) -> Self {
        Unread::Refused(fault)
    }
}

/// Follows a kept program by the files in its folder.
pub(super) struct Follower {
    /// `None` while a thread reads them.
    files: Option<FollowedFiles>,
    watch: FolderWatch,
    /// What is to be read by the next look.
    due: Changes,
    kept: [Captured; 2],
}

/// The files that are read. They are moved to the thread that reads them.
struct FollowedFiles {
    folder: KeeperFolder,
    streams: [FollowedStream; 2],
}

struct FollowedStream {
    path: PathBuf,
    file: Option<File>,
    frames: Frames,
    /// The beginning of a frame that was not read to its end.
    begun: Vec<u8>,
}

impl Follower {
    /// Reads from the first byte, and keeps at most `keep` bytes of each stream; `None` if the key is
    /// of no use.
    pub(super) fn new(folder: &KeeperFolder, keep: usize, key: &OutputKey) -> Option<Self> {
        let stream = |name: &str, number| {
            Some(FollowedStream {
                path: folder.output(name),
                file: None,
                frames: key.frames(number)?,
                begun: Vec::new(),
            })
        };
        Some(Follower {
            files: Some(FollowedFiles {
                folder: folder.clone(),
                streams: [stream(STDOUT, 0)?, stream(STDERR, 1)?],
            }),
            watch: FolderWatch::of(folder),
            due: Changes::ALL,
            kept: [Captured::new(keep), Captured::new(keep)],
        })
    }

    /// Reads all that has changed. Pieces of standard output go to `heard`, once each, also if the
    /// look fails later.
    pub(super) async fn look(
        &mut self,
        heard: &mut (impl FnMut(&[u8]) + Send),
    ) -> Result<Seen, Unread> {
        let due = self.due;
        let Some(mut files) = self.files.take() else {
            return Err(io::Error::other("its files are being read").into());
        };
        let looking = tokio::task::spawn_blocking(move || {
            let mut texts = [Vec::new(), Vec::new()];
            let seen = files.look(due, &mut texts);
            (files, texts, seen)
        });
        let (files, texts, seen) = match looking.await {
            Ok(looked) => looked,
            // The files are gone with it, so that no later look could succeed.
            Err(fault) if fault.is_panic() => std::panic::resume_unwind(fault.into_panic()),
            // The runtime shuts down, and the program goes on without this process.
            Err(_) => std::future::pending().await,
        };
        self.files = Some(files);
        for (kept, text) in self.kept.iter_mut().zip(&texts) {
            kept.push(text);
        }
        let [out, _] = texts;
        if !out.is_empty() {
            heard(&out);
        }
        if let Ok(Seen::Running) = seen {
            self.due = Changes::NONE;
        }
        seen
    }

    /// What was read of standard output and standard error.
    pub(super) fn captured(self) -> [Captured; 2] {
        self.kept
    }

    /// Waits until something may have changed.
    pub(super) async fn changed(&mut self) {
        self.due = self.watch.next().await;
    }
}

impl FollowedFiles {
    fn look(&mut self, due: Changes, texts: &mut [Vec<u8>; 2]) -> Result<Seen, Unread> {
        let (mut is_alive, mut exit) = (true, None);
        if due.state {
            // Asked before the output is read: what a dead keeper has not written never comes.
            is_alive = self.folder.is_alive()?;
            exit = self.folder.exit()?;
        }
        let mut has_more = false;
        let streams = self.streams.iter_mut().zip(texts).zip(due.streams);
        for ((stream, text), is_due) in streams {
            if is_due {
                has_more |= stream.read(text)?;
            }
        }
        match exit {
            _ if has_more => Ok(Seen::More),
            Some(record) => Ok(Seen::Exited(record)),
            None if is_alive => Ok(Seen::Running),
            None if self.folder.is_launched()? => Ok(Seen::Lost),
            None => Ok(Seen::NotLaunched),
        }
    }
}

impl FollowedStream {
    /// Appends what is new to `text`; true if there may be more.
    fn read(&mut self, text: &mut Vec<u8>) -> Result<bool, Unread> {
        let file = match &mut self.file {
            Some(file) => file,
            // A program that was not started has no files.
            None => match File::open(&self.path) {
                Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(false),
                file => self.file.insert(file?),
            },
        };
        let mut chunk = vec![0; CHUNK];
        while text.len() < LOOK {
            match file.read(&mut chunk) {
                Ok(0) => return Ok(false),
                Ok(read) => self.begun.extend_from_slice(&chunk[..read]),
                Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
                Err(fault) => return Err(fault.into()),
            }
            let opened = self.frames.open_all(&mut self.begun, text);
            opened.map_err(|_| Unread::Sealed)?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::process::keeper::folder::{KeptEnd, Stored};
    use crate::process::keeper::survey;

    /// What a keeper of version 1 has written. It is never changed: newer versions understand it.
    const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/keepers/version-1");
    /// The daemon's key at that time.
    const MASTER: [u8; 32] = [7; 32];

    #[tokio::test]
    async fn the_folder_that_a_keeper_of_version_1_has_written_is_understood() {
        let found = survey(Path::new(RECORDED)).unwrap();
        assert!(found.newer.is_empty() && found.unreadable.is_empty());
        let [kept] = found.kept[..] else {
            panic!("{found:?}");
        };
        assert!(!kept.is_alive);
        let path = Path::new(RECORDED).join(kept.step.to_string());
        let folder = KeeperFolder::at(path);
        assert_eq!(folder.run().unwrap(), Some(kept.run));
        assert!(folder.is_launched().unwrap());
        let Stored::Record(record) = folder.keeper().unwrap() else {
            panic!("there is no record");
        };
        assert_eq!((record.run, record.step), (kept.run, kept.step));
        let key = OutputKey::derive(&MASTER, record.step, &record.salt);
        let mut follower = Follower::new(&folder, 1000, &key).unwrap();
        let mut heard = Vec::new();
        let mut hear = |bytes: &[u8]| heard.extend_from_slice(bytes);
        let seen = follower.look(&mut hear);
        let exit = ExitRecord {
            ending: KeptEnd::Exited(3),
            remaining: Vec::new(),
        };
        assert_eq!(seen.await.unwrap(), Seen::Exited(exit));
        let [out, err] = follower.captured();
        assert_eq!(out.text(), "of a recorded keeper\nits input\n");
        assert_eq!(heard, out.text().as_bytes());
        assert_eq!(err.text(), "its errors\n");
    }
}
