//! Watches folders for changes; the only user of the file-watching library. Its events are only
//! hints: the caller scans the folders again. Used by every module whose files may change while the
//! daemon runs.

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
pub enum WatchMode {
    /// By file system events.
    Events,
    /// By scanning at this interval, for file systems without events.
    Poll(Duration),
    /// Not watched.
    Off,
}

/// When a change is reported. A burst of changes ends after [`Options::quiet`] without events, and
/// at the latest after [`Options::longest`].
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    /// How folders are watched.
    pub mode: WatchMode,
    /// Time without events that ends a burst.
    pub quiet: Duration,
    /// Maximum length of a burst.
    pub longest: Duration,
    /// Only writes to files of this name count, ignoring case; `None` = any file.
    pub file: Option<&'static str>,
}

/// The result of scanning the watched folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderScan {
    /// A different value means a change.
    pub signature: u64,
    /// The folders to watch, not recursively, each with its inode number: a replaced folder has a
    /// new one.
    pub folders: BTreeMap<PathBuf, u64>,
    /// Paths that may appear or be replaced; watched from their nearest existing ancestor.
    pub awaited: Vec<PathBuf>,
}

/// Scans the folders; called on a thread that may block.
pub type ScanFn = Arc<dyn Fn() -> FolderScan + Send + Sync>;

/// Set to the reason if folders are polled although events were requested.
pub type Notice = Arc<OnceLock<String>>;

/// Watches a set of folders, which may appear and vanish.
pub struct Watcher {
    look: ScanFn,
    options: WatchOptions,
    clock: Clock,
    heard: Arc<Notify>,
    notice: Notice,
    events: Option<RecommendedWatcher>,
    watched: BTreeMap<PathBuf, FolderWatch>,
    shared: Arc<Mutex<WatcherState>>,
    seen: Option<u64>,
}

/// A watch on a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FolderWatch {
    /// The folder's inode number.
    number: u64,
    /// Not essential: if the system refuses this watch, the others stay.
    may_fail: bool,
}

/// State shared by the event thread and the watcher.
#[derive(Default)]
struct WatcherState {
    /// Folders watched only for these paths in them.
    above: Above,
    /// All watched folders.
    held: BTreeSet<PathBuf>,
    /// Removed or replaced folders. Their watches are gone or point elsewhere, and so do those of
    /// their descendants.
    removed: BTreeSet<PathBuf>,
    /// The system dropped events.
    lost_count: bool,
}

impl Watcher {
    /// Starts to watch `folders`, not recursively.
    pub fn new(folders: Vec<PathBuf>, options: WatchOptions, clock: Clock) -> Self {
        let look: ScanFn = Arc::new(move || looked(&folders));
        let seen = Some(look().signature);
        let heard = Arc::default();
        Watcher::over(look, seen, heard, options, clock)
    }

    /// Starts to watch the folders that `look` names, updated at each scan. `seen` is the known
    /// signature; notifying `heard` triggers a scan. If events are unavailable, it polls instead
    /// and sets its notice.
    pub fn over(
        look: ScanFn,
        seen: Option<u64>,
        heard: Arc<Notify>,
        options: WatchOptions,
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
        if options.mode == WatchMode::Events {
            watcher.listen();
            // The first scan finds changes made before the watches existed.
            watcher.heard.notify_one();
        }
        watcher
    }

    /// A handle whose notification triggers a scan.
    pub fn heard(&self) -> Arc<Notify> {
        Arc::clone(&self.heard)
    }

    /// The notice, set if the watcher polls although events were requested.
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
            "file events are unavailable ({why}); folders are checked every {FALL_BACK:?} \
             instead"
        );
        tracing::warn!("{notice}");
        // Only the first reason is kept.
        let _ = self.notice.set(notice);
        self.events = None;
        self.watched.clear();
        self.options.mode = WatchMode::Poll(FALL_BACK);
    }

    /// Sets the watches that `looked` requires; returns whether any were added.
    fn arm(&mut self, looked: &FolderScan) -> bool {
        let Some(events) = &mut self.events else {
            return false;
        };
        let needed = above(&looked.awaited);
        let above = around(looked, needed.clone());
        let found = looked.folders.iter().map(|(folder, number)| {
            let watch = FolderWatch {
                number: *number,
                may_fail: false,
            };
            (folder.clone(), watch)
        });
        let mut wanted: BTreeMap<PathBuf, FolderWatch> = found.collect();
        for folder in above.keys() {
            wanted.entry(folder.clone()).or_insert_with(|| FolderWatch {
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
            let lost = std::mem::take(&mut shared.removed);
            (lost, std::mem::take(&mut shared.lost_count))
        };
        // The usual case: one comparison of both maps instead of a lookup for each of thousands of
        // folders.
        if lost.is_empty() && !lost_count && is_same {
            return false;
        }
        let is_lost = |folder: &Path| {
            let mut above = folder.ancestors();
            !lost.is_empty() && above.any(|above| lost.contains(above))
        };
        let is_gone = |folder: &PathBuf, watch: &FolderWatch| {
            lost_count || wanted.get(folder) != Some(watch) || is_lost(folder)
        };
        let gone = self
            .watched
            .extract_if(.., |folder, watch| is_gone(folder, watch));
        for (folder, _) in gone {
            // The watch of a removed folder is gone already.
            let _ = events.unwatch(&folder);
        }
        match self.watch_new(wanted) {
            Ok(is_more) => is_more,
            Err(why) => {
                self.fall_back(&why);
                false
            }
        }
    }

    /// Adds the watches of `wanted` that are missing; returns whether any were added. The error says
    /// why a folder cannot be watched.
    fn watch_new(&mut self, wanted: BTreeMap<PathBuf, FolderWatch>) -> Result<bool, String> {
        let Some(events) = &mut self.events else {
            return Ok(false);
        };
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
                return Err(format!("{} is on {kind}", folder.display()));
            }
            match events.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    is_more = true;
                    self.watched.insert(folder, watch);
                }
                // Removed in between: the watch on its parent reports it.
                Err(_) if !folder.exists() => {}
                // The daemon may have no permission for an optional folder.
                Err(fault) if watch.may_fail && matches!(fault.kind, ErrorKind::Io(_)) => {
                    self.watched.insert(folder, watch);
                }
                Err(fault) => return Err(fault.to_string()),
            }
        }
        Ok(is_more)
    }

    /// Returns once the folders have changed and the burst is over. Meant for one loop that always
    /// awaits it to the end: after a cancellation, a noticed change is only reported with the next
    /// one.
    pub async fn changed(&mut self) {
        loop {
            let mut seen = match self.options.mode {
                WatchMode::Off => std::future::pending().await,
                WatchMode::Poll(each) => {
                    tokio::time::sleep(each).await;
                    self.look_now().await
                }
                WatchMode::Events => {
                    self.heard.notified().await;
                    self.look_when_quiet().await
                }
            };
            // Another scan finds changes made before a new watch existed.
            while self.arm(&seen) {
                seen = self.look_now().await;
            }
            if self.seen != Some(seen.signature) {
                self.seen = Some(seen.signature);
                return;
            }
        }
    }

    /// Starts a scan on a thread that may block.
    fn begin_look(&self) -> JoinHandle<FolderScan> {
        let look = Arc::clone(&self.look);
        tokio::task::spawn_blocking(move || look())
    }

    async fn look_now(&self) -> FolderScan {
        self.end_look(self.begin_look().await).await
    }

    async fn end_look(&self, ended: Result<FolderScan, JoinError>) -> FolderScan {
        match ended {
            Ok(looked) => looked,
            Err(fault) if fault.is_panic() => std::panic::resume_unwind(fault.into_panic()),
            // The runtime is shutting down.
            Err(_) => std::future::pending().await,
        }
    }

    /// Scans at the end of a burst. The scan starts shortly before the quiet time is over, so that
    /// it causes no delay, and is discarded if an event arrives until then.
    async fn look_when_quiet(&self) -> FolderScan {
        let began = self.clock.monotonic();
        let mut in_vain: Option<JoinHandle<FolderScan>> = None;
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
            // Scans of a slow disk must not pile up.
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

/// Maximum time by which a scan starts before the end of a burst.
const AHEAD: Duration = Duration::from_millis(100);

/// Poll interval when events are unavailable.
const FALL_BACK: Duration = Duration::from_secs(5);

fn lock(shared: &Mutex<WatcherState>) -> MutexGuard<'_, WatcherState> {
    // The data are hints: the next scan finds what a panic left out.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WatcherState {
    /// Records folders that an event removes; returns whether the event may mean a change.
    fn takes(&mut self, event: &notify::Event, file: Option<&str>) -> bool {
        if event.need_rescan() {
            self.lost_count = true;
            return true;
        }
        let mut is_lost = false;
        match event.kind {
            // The daemon's own reads are not changes.
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
            // A watched folder is also an entry of its parent.
            let own = self.above.contains_key(path);
            own || above.is_none_or(|awaited| awaited.contains(path))
        };
        let mut paths = event.paths.iter();
        if !is_lost {
            return event.paths.is_empty() || paths.any(is_awaited);
        }
        // The watches of its descendants are lost with it.
        let counts = |path: &&PathBuf| is_awaited(path) || self.holds_below(path);
        let lost: Vec<PathBuf> = paths.filter(counts).cloned().collect();
        let matters = event.paths.is_empty() || !lost.is_empty();
        self.removed.extend(lost);
        matters
    }

    /// Whether the path or one of its descendants is watched.
    fn holds_below(&self, path: &Path) -> bool {
        let from = (Bound::Included(path), Bound::Unbounded);
        let mut held = self.held.range::<Path, _>(from);
        held.next().is_some_and(|held| held.starts_with(path))
    }
}

fn number(folder: &Path) -> u64 {
    std::fs::metadata(folder).map_or(0, |folder| folder.ino())
}

/// The kind of the folder's file system, if it reports no events for changes by other machines.
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
        let kind = match crate::failpoint::substituted("watch.file_system") {
            Some(kind) => kind,
            // The number has 32 bits, whatever the field's width and sign.
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

/// Scans `folders`, and names the folders of files that links in them point to.
fn looked(folders: &[PathBuf]) -> FolderScan {
    let mut looked = FolderScan {
        signature: signature(folders),
        ..FolderScan::default()
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

/// A hash that changes when a file directly in one of `folders` is added, removed, renamed or
/// written to. Cheap: no content is read; 0 if a folder cannot be read.
pub fn signature(folders: &[PathBuf]) -> u64 {
    readable_signature(folders).unwrap_or_default()
}

/// Like [`signature`], but fails if a folder cannot be read.
pub fn readable_signature(folders: &[PathBuf]) -> std::io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    for folder in folders {
        let mut files = Vec::new();
        for entry in entries(folder)? {
            // Links are followed: the target file counts.
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

/// The entries of `folder`; empty if it does not exist.
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
