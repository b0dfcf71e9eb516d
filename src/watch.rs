//! Watches folders for changes: the only user of the file-watching library. What it hears is a
//! hint and no more, whoever asked looks at the folders again. Rooms whose files may change while
//! the daemon runs have one.

mod above;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use notify::event::ModifyKind;
use notify::{ErrorKind, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinHandle};

use self::above::{Above, above, around};
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
    /// Only writes to files of this name count, whatever its case; to any file if unset.
    pub file: Option<&'static str>,
}

/// What a look at the watched folders has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Another one means a change.
    pub signature: u64,
    /// The folders to watch, each with the files in it and not what lies deeper, and its number
    /// on its file system: a folder that was swapped for another has a new one.
    pub folders: BTreeMap<PathBuf, u64>,
    /// What may appear or be swapped, and is watched from the nearest folder above that is there.
    pub awaited: Vec<PathBuf>,
}

/// Looks at the folders.
pub type Look = Arc<dyn Fn() -> Looked + Send + Sync>;

/// Says why folders are looked at again and again although events were wanted.
pub type Notice = Arc<OnceLock<String>>;

/// Watches a set of folders, which may appear later and vanish.
pub struct Watcher {
    look: Look,
    options: Options,
    clock: Clock,
    heard: Arc<Notify>,
    notice: Notice,
    events: Option<RecommendedWatcher>,
    watched: BTreeMap<PathBuf, Watch>,
    shared: Arc<Mutex<Shared>>,
    seen: Option<u64>,
}

/// How a folder is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watch {
    /// The folder's number.
    number: u64,
    /// Where the system gives none, all else is heard all the same.
    may_fail: bool,
}

/// What the thread that hears events and the watcher tell each other.
#[derive(Default)]
struct Shared {
    /// Folders that are watched for these paths alone.
    above: Above,
    /// All that is watched.
    held: BTreeSet<PathBuf>,
    /// Was taken away or swapped: its watch is gone, or on something else, and so are those of
    /// whatever lies below it.
    lost: BTreeSet<PathBuf>,
    /// Events were dropped.
    lost_count: bool,
}

impl Watcher {
    /// Begins to watch `folders`, each with the files in it and not what lies deeper.
    pub fn new(folders: Vec<PathBuf>, options: Options, clock: Clock) -> Self {
        let look: Look = Arc::new(move || looked(&folders));
        let seen = Some(look().signature);
        let heard = Arc::default();
        Watcher::over(look, seen, heard, options, clock)
    }

    /// Begins to watch what `look` names, at each look anew; `seen` is what is known already.
    /// Whoever tells `heard` has it look again. Where events cannot be had, it looks again and
    /// again instead and says so in its notice.
    pub fn over(
        look: Look,
        seen: Option<u64>,
        heard: Arc<Notify>,
        options: Options,
        clock: Clock,
    ) -> Self {
        let mut watcher = Watcher {
            look,
            options,
            clock,
            heard,
            notice: Notice::default(),
            events: None,
            watched: BTreeMap::new(),
            shared: Arc::default(),
            seen,
        };
        if options.mode == Mode::Events {
            watcher.listen();
            // What changed before the watches stood is found by a first look.
            watcher.heard.notify_one();
        }
        watcher
    }

    /// Whoever notifies this has it look again.
    pub fn heard(&self) -> Arc<Notify> {
        Arc::clone(&self.heard)
    }

    /// Where it says why it looks again and again although events were wanted.
    pub fn notice(&self) -> Notice {
        Arc::clone(&self.notice)
    }

    fn listen(&mut self) {
        let (heard, shared) = (Arc::clone(&self.heard), Arc::clone(&self.shared));
        let file = self.options.file;
        let made = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let mut shared = lock(&shared);
            let matters = match &event {
                Ok(event) => shared.takes(event, file),
                Err(_) => {
                    shared.lost_count = true;
                    true
                }
            };
            if matters {
                heard.notify_one();
            }
        });
        match made {
            Ok(events) => self.events = Some(events),
            Err(fault) => return self.fall_back(&fault.to_string()),
        }
        let looked = (self.look)();
        self.arm(&looked);
    }

    fn fall_back(&mut self, why: &str) {
        let notice = format!(
            "the system gives no file events ({why}); folders are looked at every {FALL_BACK:?} \
             instead"
        );
        tracing::warn!("{notice}");
        // The first reason is the one that counts.
        let _ = self.notice.set(notice);
        self.events = None;
        self.watched.clear();
        self.options.mode = Mode::Poll(FALL_BACK);
    }

    /// Watches what must be watched now; whether that is more than before.
    fn arm(&mut self, looked: &Looked) -> bool {
        let Some(events) = &mut self.events else {
            return false;
        };
        let needed = above(&looked.awaited);
        let above = around(looked, needed.clone());
        let found = looked.folders.iter().map(|(folder, number)| {
            let watch = Watch {
                number: *number,
                may_fail: false,
            };
            (folder.clone(), watch)
        });
        let mut wanted: BTreeMap<PathBuf, Watch> = found.collect();
        for folder in above.keys() {
            wanted.entry(folder.clone()).or_insert_with(|| Watch {
                number: number(folder),
                may_fail: !needed.contains_key(folder),
            });
        }
        let is_same = self.watched == wanted;
        let (lost, lost_count) = {
            let mut shared = lock(&self.shared);
            let only_above = above.into_iter();
            shared.above = only_above
                .filter(|(folder, _)| !looked.folders.contains_key(folder))
                .collect();
            if !is_same {
                shared.held = wanted.keys().cloned().collect();
            }
            let lost = std::mem::take(&mut shared.lost);
            (lost, std::mem::take(&mut shared.lost_count))
        };
        // Nearly always: one look through both, in place of one for each of thousands.
        if lost.is_empty() && !lost_count && is_same {
            return false;
        }
        let is_lost = |folder: &Path| {
            let mut above = folder.ancestors();
            !lost.is_empty() && above.any(|above| lost.contains(above))
        };
        let is_gone = |folder: &PathBuf, watch: &Watch| {
            lost_count || wanted.get(folder) != Some(watch) || is_lost(folder)
        };
        let gone = self
            .watched
            .extract_if(.., |folder, watch| is_gone(folder, watch));
        for (folder, _) in gone {
            // A folder that is gone took its watch along.
            let _ = events.unwatch(&folder);
        }
        let mut refused = None;
        let mut is_more = false;
        for (folder, watch) in wanted {
            if self.watched.contains_key(&folder) {
                continue;
            }
            if let Some(kind) = without_events(&folder) {
                if watch.may_fail {
                    self.watched.insert(folder, watch);
                    continue;
                }
                refused = Some(format!("{} is on {kind}", folder.display()));
                break;
            }
            match events.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    is_more = true;
                    self.watched.insert(folder, watch);
                }
                // Gone in between: the folder above tells.
                Err(_) if !folder.exists() => {}
                // Nobody may have the right to look there.
                Err(fault) if watch.may_fail && matches!(fault.kind, ErrorKind::Io(_)) => {
                    self.watched.insert(folder, watch);
                }
                Err(fault) => {
                    refused = Some(fault.to_string());
                    break;
                }
            }
        }
        if let Some(why) = refused {
            self.fall_back(&why);
            return false;
        }
        is_more
    }

    /// Returns when the folders have changed and it is quiet again. For one loop that always
    /// waits to the end: what was heard before a cancel is only noticed with the next change.
    pub async fn changed(&mut self) {
        loop {
            let mut seen = match self.options.mode {
                Mode::Off => std::future::pending().await,
                Mode::Poll(each) => {
                    tokio::time::sleep(each).await;
                    self.look_now().await
                }
                Mode::Events => {
                    self.heard.notified().await;
                    self.look_when_quiet().await
                }
            };
            // What changed before a new watch stood is found by another look.
            while self.arm(&seen) {
                seen = self.look_now().await;
            }
            if self.seen != Some(seen.signature) {
                self.seen = Some(seen.signature);
                return;
            }
        }
    }

    /// A look on a thread that may wait for a disk.
    fn begin_look(&self) -> JoinHandle<Looked> {
        let look = Arc::clone(&self.look);
        tokio::task::spawn_blocking(move || look())
    }

    async fn look_now(&self) -> Looked {
        self.end_look(self.begin_look().await).await
    }

    async fn end_look(&self, ended: Result<Looked, JoinError>) -> Looked {
        match ended {
            Ok(looked) => looked,
            Err(fault) if fault.is_panic() => std::panic::resume_unwind(fault.into_panic()),
            // The daemon ends.
            Err(_) => std::future::pending().await,
        }
    }

    /// A look at the end of a burst. It is begun a little before the silence has lasted long
    /// enough, so that nobody waits for it, and counts if nothing is heard until then.
    async fn look_when_quiet(&self) -> Looked {
        let began = self.clock.monotonic();
        let mut in_vain: Option<JoinHandle<Looked>> = None;
        loop {
            let left = self
                .options
                .longest
                .saturating_sub(self.clock.monotonic() - began);
            let quiet = self.options.quiet.min(left);
            let ahead = (quiet / 4).min(AHEAD);
            let more = tokio::time::timeout(quiet - ahead, self.heard.notified()).await;
            if more.is_ok() && !left.is_zero() {
                continue;
            }
            // Looks at a slow disk must not pile up.
            if let Some(look) = in_vain.take() {
                self.end_look(look.await).await;
            }
            let mut look = self.begin_look();
            let rest = tokio::time::sleep(ahead);
            tokio::select! {
                (ended, ()) = futures_util::future::join(&mut look, rest) => {
                    return self.end_look(ended).await;
                }
                () = self.heard.notified(), if !left.is_zero() => {
                    in_vain = Some(look).filter(|look| !look.is_finished());
                }
            }
        }
    }
}

/// A look at a burst's end is begun so long before it at most.
const AHEAD: Duration = Duration::from_millis(100);

/// How often folders are looked at where events cannot be had.
const FALL_BACK: Duration = Duration::from_secs(5);

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // Hints: the next look finds what a panic left out.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Notes what an event takes away; whether it can mean a change.
    fn takes(&mut self, event: &notify::Event, file: Option<&str>) -> bool {
        if event.need_rescan() {
            self.lost_count = true;
            return true;
        }
        let mut is_lost = false;
        match event.kind {
            // Our own reading is no change.
            EventKind::Access(_) => return false,
            EventKind::Modify(ModifyKind::Name(_)) | EventKind::Remove(_) => is_lost = true,
            EventKind::Modify(_) => {
                let is_file = |path: &PathBuf| {
                    let name = path.file_name().and_then(|name| name.to_str());
                    file.is_none_or(|file| name.is_some_and(|name| name.eq_ignore_ascii_case(file)))
                };
                if !event.paths.iter().any(is_file) {
                    return false;
                }
            }
            _ => {}
        }
        let is_awaited = |path: &PathBuf| {
            let above = path.parent().and_then(|above| self.above.get(above));
            // A folder itself stands in the folder above it.
            let own = self.above.contains_key(path);
            own || above.is_none_or(|awaited| awaited.contains(path))
        };
        let mut paths = event.paths.iter();
        if !is_lost {
            return event.paths.is_empty() || paths.any(is_awaited);
        }
        // The watches of what lies below it go with it.
        let counts = |path: &&PathBuf| is_awaited(path) || self.holds_below(path);
        let lost: Vec<PathBuf> = paths.filter(counts).cloned().collect();
        let matters = event.paths.is_empty() || !lost.is_empty();
        self.lost.extend(lost);
        matters
    }

    /// Is it watched, or something below it?
    fn holds_below(&self, path: &Path) -> bool {
        let from = (Bound::Included(path), Bound::Unbounded);
        let mut held = self.held.range::<Path, _>(from);
        held.next().is_some_and(|held| held.starts_with(path))
    }
}

fn number(folder: &Path) -> u64 {
    std::fs::metadata(folder).map_or(0, |folder| folder.ino())
}

/// The kind of its file system, if that tells of no changes that others make.
fn without_events(folder: &Path) -> Option<&'static str> {
    const KINDS: &[(u64, &str)] = &[
        (0x6969, "NFS"),
        (0x517b, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB"),
        (0x0102_1997, "9p"),
        (0x6573_5546, "FUSE"),
    ];
    #[cfg(target_os = "linux")]
    {
        let kind = match crate::failpoint::given("watch.file_system") {
            Some(kind) => kind,
            // The number has 32 bits, whatever the type's width and sign.
            None => u64::from(rustix::fs::statfs(folder).ok()?.f_type as u32),
        };
        KINDS
            .iter()
            .find(|(number, _)| *number == kind)
            .map(|(_, name)| *name)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (folder, KINDS);
        None
    }
}

/// A look at folders with the files in them, and the folders of files that links in them lead to.
fn looked(folders: &[PathBuf]) -> Looked {
    let mut looked = Looked {
        signature: signature(folders),
        ..Looked::default()
    };
    for folder in folders {
        if folder.is_symlink() || !folder.is_dir() {
            looked.awaited.push(folder.clone());
        }
        if !folder.is_dir() {
            continue;
        }
        looked.folders.insert(folder.clone(), number(folder));
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_symlink())
                && let Ok(target) = entry.path().canonicalize()
                && let Some(above) = target.parent()
            {
                looked.folders.insert(above.to_owned(), number(above));
            }
        }
    }
    looked
}

/// A number that changes when a file directly in one of `folders` is added, removed, renamed or
/// written to. Cheap: no content is read.
pub fn signature(folders: &[PathBuf]) -> u64 {
    readable_signature(folders).unwrap_or_default()
}

/// As [`signature`]; the fault says what could not be read.
pub fn readable_signature(folders: &[PathBuf]) -> std::io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    for folder in folders {
        let mut files = Vec::new();
        for entry in entries(folder)? {
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
    Ok(hasher.finish())
}

/// What lies in `folder`; nothing where there is none.
fn entries(folder: &Path) -> std::io::Result<Vec<std::fs::DirEntry>> {
    use std::io::ErrorKind::{NotADirectory, NotFound};

    match std::fs::read_dir(folder) {
        Ok(entries) => entries.collect(),
        Err(fault) if matches!(fault.kind(), NotFound | NotADirectory) => Ok(Vec::new()),
        Err(fault) => Err(fault),
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
