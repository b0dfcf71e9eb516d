//! Watches folders for changes: the only user of the file-watching library. What it hears is a
//! hint and no more, whoever asked reads the folders again. Rooms whose files may change while
//! the daemon runs have one.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use crate::clock::Clock;

/// How folders are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the system's events.
    Events,
    /// By looking again and again, for file systems without events.
    Poll(Duration),
    /// Not at all.
    Off,
}

/// A burst of changes ends when nothing was heard for [`Options::quiet`], and counts as ended
/// after [`Options::longest`] while changes keep coming.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How.
    pub mode: Mode,
    /// How long it must be quiet.
    pub quiet: Duration,
    /// How long a burst is waited for at most.
    pub longest: Duration,
}

/// Watches a set of folders, which may appear later and vanish.
pub struct Watcher {
    folders: Vec<PathBuf>,
    options: Options,
    clock: Clock,
    heard: Arc<Notify>,
    events: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    seen: u64,
}

impl Watcher {
    /// Begins to watch `folders`, each with the files in it and not what lies deeper. Where
    /// events cannot be had, it looks again and again instead and says so in the log.
    pub fn new(folders: Vec<PathBuf>, options: Options, clock: Clock) -> Self {
        let heard = Arc::new(Notify::new());
        let mut watcher = Watcher {
            events: None,
            seen: signature(&folders),
            folders,
            options,
            clock,
            watched: BTreeSet::new(),
            heard,
        };
        if options.mode == Mode::Events {
            watcher.listen();
            // What changed before the watches stood is found by a first look.
            watcher.heard.notify_one();
        }
        watcher
    }

    fn listen(&mut self) {
        let heard = Arc::clone(&self.heard);
        let made = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Our own reading is no change. A queue that ran over is one, and so is an error.
            let is_access = |event: &notify::Event| matches!(event.kind, EventKind::Access(_));
            if !event.as_ref().is_ok_and(is_access) {
                heard.notify_one();
            }
        });
        match made {
            Ok(events) => self.events = Some(events),
            Err(fault) => return self.fall_back(&fault),
        }
        self.arm();
    }

    fn fall_back(&mut self, fault: &notify::Error) {
        tracing::warn!(
            %fault,
            "the system gives no file events; folders are looked at every {FALL_BACK:?} instead"
        );
        self.events = None;
        self.watched.clear();
        self.options.mode = Mode::Poll(FALL_BACK);
    }

    /// Watches what must be watched now: each folder, the folder above it (where it may appear
    /// or be swapped), and the folders of files that links in it lead to.
    fn arm(&mut self) {
        let Some(events) = &mut self.events else {
            return;
        };
        let wanted = wanted(&self.folders);
        for gone in self.watched.difference(&wanted) {
            // A folder that is gone took its watch along.
            let _ = events.unwatch(gone);
        }
        let mut watched = BTreeSet::new();
        for folder in wanted {
            // A folder that was swapped for another has its old watch: taken anew each time.
            let _ = events.unwatch(&folder);
            match events.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    watched.insert(folder);
                }
                // Gone in between: the folder above tells.
                Err(_) if !folder.exists() => {}
                Err(fault) => return self.fall_back(&fault),
            }
        }
        self.watched = watched;
    }

    /// Returns when the folders have changed and it is quiet again. For one loop that always
    /// waits to the end: what was heard before a cancel is only noticed with the next change.
    pub async fn changed(&mut self) {
        loop {
            match self.options.mode {
                Mode::Off => std::future::pending::<()>().await,
                Mode::Poll(each) => tokio::time::sleep(each).await,
                Mode::Events => {
                    self.heard.notified().await;
                    self.until_quiet().await;
                    self.arm();
                }
            }
            let seen = signature(&self.folders);
            if seen != self.seen {
                self.seen = seen;
                return;
            }
        }
    }

    async fn until_quiet(&self) {
        let began = self.clock.monotonic();
        loop {
            let left = self
                .options
                .longest
                .saturating_sub(self.clock.monotonic() - began);
            let quiet = self.options.quiet.min(left);
            let more = tokio::time::timeout(quiet, self.heard.notified()).await;
            if more.is_err() || left.is_zero() {
                return;
            }
        }
    }
}

/// How often folders are looked at where events cannot be had.
const FALL_BACK: Duration = Duration::from_secs(5);

fn wanted(folders: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut wanted = BTreeSet::new();
    for folder in folders {
        let above = folder.ancestors().skip(1).find(|above| above.is_dir());
        wanted.extend(above.map(Path::to_owned));
        if !folder.is_dir() {
            continue;
        }
        wanted.insert(folder.clone());
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_symlink())
                && let Ok(target) = entry.path().canonicalize()
                && let Some(above) = target.parent()
            {
                wanted.insert(above.to_owned());
            }
        }
    }
    wanted
}

/// A number that changes when a file directly in one of `folders` is added, removed, renamed or
/// written to. Cheap: no content is read.
pub fn signature(folders: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for folder in folders {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            // Through links: what counts is the file at the other end.
            let state = std::fs::metadata(entry.path()).ok().map(|file| {
                let changed = (
                    file.mtime(),
                    file.mtime_nsec(),
                    file.ctime(),
                    file.ctime_nsec(),
                );
                (file.ino(), file.len(), changed)
            });
            files.push((entry.file_name(), state));
        }
        files.sort_unstable();
        (folder.is_dir(), files).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const QUICK: Options = Options {
        mode: Mode::Events,
        quiet: Duration::from_millis(20),
        longest: Duration::from_millis(200),
    };

    fn watcher(folder: &Path, mode: Mode) -> Watcher {
        let options = Options { mode, ..QUICK };
        Watcher::new(vec![folder.to_owned()], options, Clock::system())
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(test);
    }

    #[test]
    fn g6_5_ten_saves_of_each_kind_are_each_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.md");
        fs::write(&file, "0").unwrap();
        run(async {
            let mut watcher = watcher(dir.path(), Mode::Events);
            for round in 1..=10 {
                fs::write(&file, format!("in place {round}")).unwrap();
                watcher.changed().await;
                let aside = dir.path().join(".a.md.new");
                fs::write(&aside, format!("renamed {round}")).unwrap();
                fs::rename(&aside, &file).unwrap();
                watcher.changed().await;
                fs::remove_file(&file).unwrap();
                fs::write(&file, format!("made anew {round}")).unwrap();
                watcher.changed().await;
            }
        });
    }

    #[test]
    fn a_folder_may_come_later_vanish_and_come_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("config/abide/agents");
        run(async {
            let mut watcher = watcher(&folder, Mode::Events);
            for _ in 0..2 {
                fs::create_dir_all(&folder).unwrap();
                watcher.changed().await;
                fs::write(folder.join("a.md"), "a").unwrap();
                watcher.changed().await;
                fs::remove_dir_all(dir.path().join("config")).unwrap();
                watcher.changed().await;
            }
        });
    }

    #[test]
    fn a_file_behind_a_link_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, real) = (dir.path().join("agents"), dir.path().join("dotfiles"));
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(&real).unwrap();
        fs::write(real.join("a.md"), "a").unwrap();
        std::os::unix::fs::symlink(real.join("a.md"), folder.join("a.md")).unwrap();
        run(async {
            let mut watcher = watcher(&folder, Mode::Events);
            fs::write(real.join("a.md"), "another").unwrap();
            watcher.changed().await;
        });
    }

    #[test]
    fn g6_7_polling_finds_a_change_without_events() {
        let dir = tempfile::tempdir().unwrap();
        run(async {
            let mut watcher = watcher(dir.path(), Mode::Poll(Duration::from_millis(5)));
            fs::write(dir.path().join("a.md"), "a").unwrap();
            watcher.changed().await;
        });
    }

    #[test]
    fn reading_is_no_change_and_neither_is_what_lies_beside() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("agents");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.md"), "a").unwrap();
        run(async {
            let mut watcher = watcher(&folder, Mode::Events);
            let _ = fs::read(folder.join("a.md")).unwrap();
            fs::write(dir.path().join("beside.txt"), "b").unwrap();
            let heard = tokio::time::timeout(Duration::from_millis(150), watcher.changed());
            assert!(heard.await.is_err());
            // It still hears.
            fs::write(folder.join("b.md"), "b").unwrap();
            watcher.changed().await;
        });
    }
}
