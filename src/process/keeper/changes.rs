//! Notices changes in the folder of a kept program, as its keeper writes it. Called by `reading`.
//!
//! On Linux the kernel reports them (inotify), the keeper's end included: it closes its record,
//! which it holds open for writing. Each followed program takes an inotify instance with one watch.
//! While the limit of either is reached, the folder is read again after a pause, and the watch is
//! tried again; on other systems there is no watch.

use std::io;
use std::time::Duration;

use super::folder::KeeperFolder;

/// How long a change can stay unnoticed on a file system that does not report it.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The pause before a folder is read again that cannot be watched.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
/// The longest pause before the watch is tried again. The first is [`PAUSE`], and each is twice as
/// long as the one before.
const LONGEST_TRY: Duration = Duration::from_secs(1);

/// What may have changed since the folder was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changes {
    /// The output streams with new bytes: standard output, standard error.
    pub streams: [bool; 2],
    /// Something else: the program or its keeper may have ended.
    pub state: bool,
}

impl Changes {
    /// Nothing.
    pub(super) const NONE: Changes = Changes {
        streams: [false; 2],
        state: false,
    };
    /// Everything.
    pub(super) const ALL: Changes = Changes {
        streams: [true; 2],
        state: true,
    };
}

/// Waits for changes in one folder.
pub(super) struct FolderWatch {
    folder: KeeperFolder,
    /// `None` while the folder cannot be watched.
    watch: Option<system::Watch>,
    /// How long it is read without a watch until the watch is tried again.
    pause: Duration,
    /// The part of the pause that has passed.
    passed: Duration,
    /// It was logged why it cannot be watched.
    is_logged: bool,
}

impl FolderWatch {
    /// Changes after this call are noticed.
    pub(super) fn of(folder: &KeeperFolder) -> Self {
        let mut new = FolderWatch {
            folder: folder.clone(),
            watch: None,
            pause: PAUSE,
            passed: Duration::ZERO,
            is_logged: false,
        };
        new.begin();
        new
    }

    /// Waits for changes, at most [`LONGEST_WAIT`].
    pub(super) async fn next(&mut self) -> Changes {
        if let Some(watch) = &self.watch {
            match tokio::time::timeout(LONGEST_WAIT, watch.next()).await {
                Ok(Ok(changes)) => return changes,
                Err(_) => return Changes::ALL,
                Ok(Err(fault)) => self.cannot_watch(&fault),
            }
        }
        tokio::time::sleep(PAUSE).await;
        self.passed += PAUSE;
        if self.passed >= self.pause {
            self.passed = Duration::ZERO;
            self.pause = (self.pause * 2).min(LONGEST_TRY);
            // Before all is read, so that no change comes between the reading and the watch.
            self.begin();
        }
        Changes::ALL
    }

    /// Tries to watch the folder.
    fn begin(&mut self) {
        match system::Watch::of(&self.folder) {
            Ok(watch) => {
                self.watch = Some(watch);
                self.pause = PAUSE;
            }
            Err(fault) => self.cannot_watch(&fault),
        }
    }

    fn cannot_watch(&mut self, fault: &io::Error) {
        self.watch = None;
        if !self.is_logged {
            self.is_logged = true;
            let path = self.folder.path().display();
            tracing::debug!(%fault, %path, "a keeper's folder cannot be watched now and is read at intervals; the watch is tried again");
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;

    use rustix::fs::inotify::{self, CreateFlags, Event, Reader, WatchFlags};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::Changes;
    use crate::process::keeper::folder::{KeeperFolder, STDERR, STDOUT};

    /// Bytes for events; the longest takes fewer than 300.
    const EVENTS: usize = 2048;

    /// An inotify instance with one watch.
    pub(super) struct Watch(AsyncFd<OwnedFd>);

    impl Watch {
        #[expect(
            deprecated,
            reason = "the replacement is unsafe code; an owned descriptor stays open"
        )]
        pub(super) fn of(folder: &KeeperFolder) -> io::Result<Self> {
            let instance = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            // Closing tells of a keeper's end, and renaming of the record of an exit.
            let events = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO;
            inotify::add_watch(&instance, folder.path(), events)?;
            Ok(Watch(AsyncFd::with_interest(instance, Interest::READABLE)?))
        }

        pub(super) async fn next(&self) -> io::Result<Changes> {
            let read = self.0.async_io(Interest::READABLE, |instance| {
                let mut buffer = [MaybeUninit::uninit(); EVENTS];
                let mut reader = Reader::new(instance, &mut buffer);
                let mut changes = Changes::NONE;
                loop {
                    changes = changes.with(&reader.next()?);
                    if reader.is_buffer_empty() {
                        return Ok(changes);
                    }
                }
            });
            read.await
        }
    }

    impl Changes {
        fn with(mut self, event: &Event<'_>) -> Changes {
            match event.file_name().and_then(|name| name.to_str().ok()) {
                Some(STDOUT) => self.streams[0] = true,
                Some(STDERR) => self.streams[1] = true,
                // An exit comes after the last bytes of output, and a full queue loses events.
                _ => return Changes::ALL,
            }
            self
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;

    use super::Changes;
    use crate::process::keeper::folder::KeeperFolder;

    /// There is none on this system.
    pub(super) enum Watch {}

    impl Watch {
        pub(super) fn of(_: &KeeperFolder) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) async fn next(&self) -> io::Result<Changes> {
            match *self {}
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;
    use crate::process::keeper::folder::STDOUT;

    #[tokio::test]
    async fn a_folder_that_could_not_be_watched_is_watched_once_it_can_be() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join("a");
        let folder = KeeperFolder::at(path.clone());
        let mut watch = FolderWatch::of(&folder);
        assert_eq!(watch.next().await, Changes::ALL);
        assert!(watch.watch.is_none(), "there is no folder");
        fs::create_dir(&path).unwrap();
        let watched = async {
            while watch.watch.is_none() {
                assert_eq!(watch.next().await, Changes::ALL);
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(30), watched).await;
        in_time.expect("the watch was not tried again");
        let mut output = folder.make_output(STDOUT).unwrap();
        output.write_all(b"a").unwrap();
        let of_stdout = Changes {
            streams: [true, false],
            state: false,
        };
        assert_eq!(watch.next().await, of_stdout);
    }
}
