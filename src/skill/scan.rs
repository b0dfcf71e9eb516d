//! Finds the skills under one root: folders with a `SKILL.md`, at the top level or in groups. A
//! scan reads names and file states; only files changed since the previous scan are read again.
//! Called by `library`, and by `abide skills check` for the folders given to it.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::entries::{Entry, Listing, State, list};
use super::file::{FILE, NoSkill, file_in, note_variant, read};
use super::parse::Skill;
use super::sources::Root;
use super::spread::spread;
use crate::file_work::writers::open_for_writing;
use crate::front_matter::Broken;
use crate::kernel::time::Timestamp;

/// Maximum depth of a skill's folder under its root.
const DEPTH: usize = 6;
/// Folders that tools create; not searched. A folder of such a name with a `SKILL.md` is a skill
/// nevertheless.
const SKIPPED: &[&str] = &[
    "node_modules",
    "target",
    "venv",
    "__pycache__",
    "dist",
    "build",
];

/// Limits of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Maximum number of skills per root.
    pub skills: usize,
    /// Maximum bytes of one file.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            skills: 10_000,
            bytes: 1 << 20,
        }
    }
}

/// A file that was found, and its skill or error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The file, or the folder if the error concerns the folder.
    pub file: PathBuf,
    /// The skill, or why there is none.
    pub outcome: Result<Skill, Broken>,
}

/// The result of scanning a root.
#[derive(Clone, Debug, Default)]
pub(super) struct Looked {
    /// Changes with everything that was found.
    pub signature: u64,
    /// The files that were found, by path.
    pub found: Vec<Arc<Found>>,
    /// Paths that do not exist yet or may be replaced; the watcher waits for them.
    pub awaited: Vec<PathBuf>,
    /// Folders other than skills in which a change matters, by path, each with its inode number.
    folders: Vec<(PathBuf, u64)>,
    files: HashSet<CachedFile>,
    /// What could not be read, and why; the versions read before stay in use.
    pub unread: Vec<String>,
    /// A file is still changing and not taken over yet.
    pub unsettled: bool,
    /// The limits used in this scan.
    limits: Limits,
    /// The listing of a root that contains only valid skills: no groups, links or errors. Nearly
    /// every root is like this, and while the listing is unchanged, so is the result of a scan.
    plain: Option<Listing>,
}

impl Looked {
    /// True only if the root is provably unchanged; false negatives are possible.
    pub fn is_unchanged(&self, root: &Root, limits: Limits) -> bool {
        self.plain.as_ref().is_some_and(|plain| {
            self.limits == limits
                && self.unread.is_empty()
                && !root.folder.is_symlink()
                && list(&root.folder).is_ok_and(|now| now == *plain)
        })
    }

    /// The folders in which a change matters, each with its inode number; nearly sorted by path.
    pub fn folders(&self) -> impl Iterator<Item = (PathBuf, u64)> {
        let skills = self.found.iter().filter_map(|found| {
            let kept = self.files.get(found.file.as_os_str())?;
            Some((found.file.parent()?.to_owned(), kept.folder))
        });
        self.folders.iter().cloned().chain(skills)
    }
}

/// A file that was read. Compared by the bytes of its path: comparing thousands of paths by
/// component takes longer than querying the files' states.
#[derive(Clone, Debug)]
struct CachedFile {
    found: Arc<Found>,
    state: State,
    /// Inode number of its folder.
    folder: u64,
    /// The pending change: the file's present state, which is not used yet.
    next: Option<PendingChange>,
    /// The file could not be read since, so its state says nothing about its content.
    is_unread: bool,
}

/// A change that is not taken over until it settles.
#[derive(Clone, Copy, Debug)]
struct PendingChange {
    /// The file's new state; `None` if it is gone.
    state: Option<State>,
    /// When this state was first seen (monotonic).
    since: Duration,
    /// When the file began to change (monotonic).
    began: Duration,
}

/// A file that keeps changing for this long is taken over as it is then, if it is valid.
const LONGEST: Duration = Duration::from_secs(2);

/// The time of a scan, and how long a file must be unchanged before it replaces a valid version.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Now {
    /// Wall clock time, comparable with file times.
    pub wall: Timestamp,
    /// Monotonic time.
    pub steady: Duration,
    /// How long a file must be unchanged.
    pub settle: Duration,
}

impl Now {
    /// The pending change to remember if the file has not settled yet; `None` if it has.
    fn unsettled(
        &self,
        state: Option<State>,
        before: Option<PendingChange>,
    ) -> Option<PendingChange> {
        let same = before.filter(|next| next.state == state);
        let since = same.map_or(self.steady, |next| next.since);
        let began = before.map_or(self.steady, |next| next.began);
        let passed = |from: Duration| self.steady.saturating_sub(from);
        let wall = i64::try_from(self.settle.as_millis()).unwrap_or(i64::MAX);
        let is_still = state.is_some_and(|state| self.wall.0 - state.changed_ms() >= wall)
            || passed(since) >= self.settle
            || passed(began) >= LONGEST.max(self.settle);
        (!is_still).then_some(PendingChange {
            state,
            since,
            began,
        })
    }
}

impl Borrow<OsStr> for CachedFile {
    fn borrow(&self) -> &OsStr {
        self.found.file.as_os_str()
    }
}

impl Hash for CachedFile {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.found.file.as_os_str().hash(hasher);
    }
}

impl PartialEq for CachedFile {
    fn eq(&self, other: &Self) -> bool {
        self.found.file.as_os_str() == other.found.file.as_os_str()
    }
}

impl Eq for CachedFile {}

/// Scans a root. Returns `before`, the result of the previous scan, if nothing has changed.
pub(super) fn look(
    root: &Root,
    limits: Limits,
    before: Option<&Arc<Looked>>,
    now: Now,
) -> Arc<Looked> {
    match before {
        Some(before) if before.is_unchanged(root, limits) => Arc::clone(before),
        before => {
            let now = walk(root, limits, before.map(Arc::as_ref), now);
            match before {
                // What does not count may have changed there.
                Some(before)
                    if before.signature == now.signature
                        && before.plain == now.plain
                        && before.unread == now.unread =>
                {
                    Arc::clone(before)
                }
                _ => Arc::new(now),
            }
        }
    }
}

fn walk(root: &Root, limits: Limits, before: Option<&Looked>, now: Now) -> Looked {
    let mut walk = Walk {
        root,
        now,
        limits,
        // With another size limit, a file that was too long may be accepted now, or the reverse.
        before: before.filter(|before| before.limits.bytes == limits.bytes),
        is_plain: true,
        listing: None,
        real: root.folder.canonicalize().unwrap_or_default(),
        looked: Looked::default(),
        found: Vec::new(),
        skills: 0,
        seen: BTreeSet::new(),
        hasher: DefaultHasher::new(),
        left_out: 0,
    };
    // A link's target may change without a change in the root.
    if root.folder.is_symlink() || !root.folder.is_dir() {
        walk.looked.awaited.push(root.folder.clone());
        walk.is_plain = false;
    }
    match fs::metadata(&root.folder) {
        Ok(folder) if folder.is_dir() => walk.enter(&root.folder, &folder, 0),
        Ok(_) => {}
        Err(fault) if is_absence(&fault) => {}
        Err(fault) => walk.keep(&root.folder, &fault),
    }
    if walk.left_out > 0 {
        let more = walk.left_out;
        walk.refuse(
            &root.folder,
            format!(
                "{more} skills over the limit of {} are not read, the last by name \
                 (setting skills.max_per_root)",
                limits.skills
            ),
        );
    }
    walk.keep_gone();
    let Walk {
        is_plain,
        listing,
        mut looked,
        mut found,
        mut hasher,
        ..
    } = walk;
    let new = found
        .iter_mut()
        .filter(|seen| matches!(seen, Candidate::New { .. }));
    let mut new: Vec<&mut Candidate> = new.collect();
    let being_written = match new.is_empty() {
        true => HashMap::new(),
        false => open_for_writing(|file| file.extension().is_some_and(|md| md == "md")),
    };
    // In a new folder of thousands of skills, reading takes nearly all of the time.
    spread(&mut new, READ_BY_ONE, |part| {
        part.iter_mut()
            .for_each(|seen| seen.read(limits, &being_written));
    });
    looked.files.reserve(found.len());
    for seen in found {
        match seen {
            Candidate::Refused(found) => looked.found.push(found),
            Candidate::Known(kept) => {
                looked.found.push(Arc::clone(&kept.found));
                looked.files.insert(kept);
            }
            // Not kept, so that it is read again in the next scan.
            Candidate::Unread(found, why) => {
                looked.unread.push(why);
                looked.found.push(found);
            }
            Candidate::Stale(kept, why) => {
                looked.unread.push(why);
                looked.found.push(Arc::clone(&kept.found));
                looked.files.insert(kept);
            }
            Candidate::New { .. } => unreachable!("every new one was read"),
        }
    }
    for (folder, number) in &looked.folders {
        (folder.as_os_str(), number).hash(&mut hasher);
    }
    looked.awaited.hash(&mut hasher);
    limits.hash(&mut hasher);
    looked.signature = hasher.finish();
    looked.limits = limits;
    looked.plain = listing.filter(|_| is_plain && !looked.unsettled);
    looked
}

/// A candidate file during a walk.
enum Candidate {
    /// An error to report for this path.
    Refused(Arc<Found>),
    /// A file that was read, now or in an earlier scan.
    Known(CachedFile),
    /// A file that could not be read and was never read before, and why.
    Unread(Arc<Found>, String),
    /// A file that could not be read, in the version read before, and why.
    Stale(CachedFile, String),
    /// A file to be read.
    New {
        file: PathBuf,
        is_variant: bool,
        state: State,
        folder: u64,
        before: Option<CachedFile>,
    },
}

/// Whether the error means that nothing exists there, rather than that it cannot be read.
fn is_absence(fault: &std::io::Error) -> bool {
    matches!(fault.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Minimum number of files to read that is worth a thread.
const READ_BY_ONE: usize = 64;

impl Candidate {
    fn file(&self) -> &Path {
        match self {
            Candidate::Refused(found) | Candidate::Unread(found, _) => &found.file,
            Candidate::Known(kept) | Candidate::Stale(kept, _) => &kept.found.file,
            Candidate::New { file, .. } => file,
        }
    }

    fn read(&mut self, limits: Limits, being_written: &HashMap<PathBuf, String>) {
        let Candidate::New {
            file,
            is_variant,
            state,
            folder,
            before,
        } = self
        else {
            return;
        };
        let outcome = match writer(file, being_written) {
            Some(writer) => Err(NoSkill::Unread(std::io::Error::other(format!(
                "{writer} still has it open for writing"
            )))),
            None => read(file, limits),
        };
        let (mut outcome, why) = match outcome {
            Ok(skill) => (Ok(skill), None),
            Err(NoSkill::Broken(broken)) => (Err(broken), None),
            Err(NoSkill::Unread(fault)) => {
                let why = format!("{}: {fault}", file.display());
                let broken = NoSkill::Unread(fault).broken();
                let reason = broken.reason.clone();
                (Err(broken), Some((why, reason)))
            }
        };
        if let Some((why, reason)) = why {
            *self = match before.take() {
                Some(before) => Candidate::Stale(before.unread(&reason), why),
                None => {
                    let file = std::mem::take(file);
                    Candidate::Unread(Arc::new(Found { file, outcome }), why)
                }
            };
            return;
        }
        if *is_variant {
            note_variant(&mut outcome);
        }
        if let Some(Ok(good)) = before.as_ref().map(|before| &before.found.outcome) {
            let invalid = match &outcome {
                Err(broken) => Some(broken.to_string()),
                Ok(skill) if is_empty(skill) && !is_empty(good) => {
                    Some("there is no text after the front matter".to_owned())
                }
                Ok(_) => None,
            };
            if let Some(why) = invalid {
                outcome = Ok(Skill {
                    stale: Some(format!("changed on disk, not valid yet ({why})")),
                    ..good.clone()
                });
            }
        }
        let file = std::mem::take(file);
        *self = Candidate::Known(CachedFile {
            found: Arc::new(Found { file, outcome }),
            state: *state,
            folder: *folder,
            next: None,
            is_unread: false,
        });
    }
}

impl CachedFile {
    /// The same skill, marked as stale: its file cannot be read now.
    fn unread(mut self, reason: &str) -> Self {
        if let Ok(good) = &self.found.outcome {
            let outcome = Ok(Skill {
                stale: Some(reason.to_owned()),
                ..good.clone()
            });
            let file = self.found.file.clone();
            self.found = Arc::new(Found { file, outcome });
        }
        self.is_unread = true;
        self
    }
}

/// The process that still has `file` open for writing.
fn writer<'a>(file: &Path, being_written: &'a HashMap<PathBuf, String>) -> Option<&'a String> {
    if being_written.is_empty() {
        return None;
    }
    being_written.get(&file.canonicalize().ok()?)
}

fn is_empty(skill: &Skill) -> bool {
    skill.body.body.trim().is_empty()
}

/// Reads the skill in `folder`, or all skills below it if it is no skill itself. `folder` may also
/// be a skill file.
pub fn check(folder: &Path, limits: Limits) -> Vec<Found> {
    let root = Root::given(folder);
    if folder.is_file() {
        let outcome = read(folder, limits).map_err(NoSkill::broken);
        let file = folder.to_owned();
        return vec![Found { file, outcome }];
    }
    if let Some((file, is_variant)) = file_in(folder) {
        let mut outcome = read(&file, limits).map_err(NoSkill::broken);
        if is_variant {
            note_variant(&mut outcome);
        }
        return vec![Found { file, outcome }];
    }
    let looked = look(&root, limits, None, Now::default());
    let found = looked.found.iter();
    found.map(|found| (**found).clone()).collect()
}

struct Walk<'a> {
    root: &'a Root,
    now: Now,
    /// The root contains nothing but valid skills so far.
    is_plain: bool,
    /// The listing of the root.
    listing: Option<Listing>,
    limits: Limits,
    before: Option<&'a Looked>,
    real: PathBuf,
    looked: Looked,
    found: Vec<Candidate>,
    /// Number of skills in `found`.
    skills: usize,
    seen: BTreeSet<(u64, u64)>,
    hasher: DefaultHasher,
    left_out: usize,
}

impl Walk<'_> {
    /// Visits a folder of skills: the root or a group in it.
    fn enter(&mut self, folder: &Path, state: &Metadata, depth: usize) {
        // Links may form a cycle.
        if !self.seen.insert((state.dev(), state.ino())) {
            return;
        }
        self.looked.folders.push((folder.to_owned(), state.ino()));
        let listing = match list(folder) {
            Ok(listing) => listing,
            Err(fault) if is_absence(&fault) => return,
            Err(fault) => return self.keep(folder, &fault),
        };
        for entry in &listing.entries {
            self.entry(folder, entry, depth + 1);
        }
        if depth == 0 {
            self.listing = Some(listing);
        }
    }

    fn entry(&mut self, above: &Path, entry: &Entry, depth: usize) {
        let mut number = entry.number;
        if entry.is_link {
            self.is_plain = false;
            match self.follow(&above.join(&entry.name)) {
                Some(target) => number = target.ino(),
                None => return,
            }
        }
        // For each of thousands of known skills, this is the only path that is built.
        let mut file =
            PathBuf::with_capacity(above.as_os_str().len() + entry.name.len() + FILE.len() + 2);
        file.extend([above, Path::new(&entry.name), Path::new(FILE)]);
        if let Some(state) = entry.file {
            return self.skill(number, (file, false), state, depth);
        }
        let folder = above.join(&entry.name);
        if let Some(fault) = entry.fault {
            // If it was no skill before, nothing is lost by ignoring it.
            if self.knows(&folder) {
                self.keep(&folder, &std::io::Error::from_raw_os_error(fault));
            }
            return;
        }
        let is_skipped = SKIPPED.iter().any(|name| entry.name == *name);
        if is_skipped {
            return;
        }
        // It may become a skill without a change in the root.
        self.is_plain = false;
        if let Some((file, is_variant)) = file_in(&folder)
            && let Ok(state) = fs::metadata(&file)
        {
            return self.skill(number, (file, is_variant), State::of(&state), depth);
        }
        // A broken link in place of the skill file is reported.
        if file.is_symlink() {
            return self.refuse(&file, "the link is broken".to_owned());
        }
        if depth > DEPTH {
            return;
        }
        if let Ok(state) = fs::metadata(&folder)
            && state.is_dir()
        {
            self.enter(&folder, &state, depth);
        }
    }

    /// The target of a link, if it is a folder in which skills are allowed.
    fn follow(&mut self, link: &Path) -> Option<Metadata> {
        let target = fs::metadata(link).ok().filter(Metadata::is_dir)?;
        self.is_allowed_at(link).then_some(target)
    }

    fn is_allowed_at(&mut self, path: &Path) -> bool {
        if self.root.trusts_links {
            return true;
        }
        let real = path.canonicalize().unwrap_or_default();
        let trusted = self.root.link_targets.iter();
        let is_within = real.starts_with(&self.real)
            || trusted
                .filter_map(|target| target.canonicalize().ok())
                .any(|target| real.starts_with(target));
        if !is_within {
            self.refuse(
                path,
                format!(
                    "the link points outside {}, to {} (setting skills.link_targets)",
                    self.root.folder.display(),
                    real.display()
                ),
            );
        }
        is_within
    }

    fn skill(
        &mut self,
        folder: u64,
        (file, is_variant): (PathBuf, bool),
        state: State,
        depth: usize,
    ) {
        if depth > DEPTH {
            let reason = format!(
                "its folder is {depth} levels below {}; the limit is {DEPTH}",
                self.root.folder.display()
            );
            return self.refuse(&file, reason);
        }
        if self.skills >= self.limits.skills {
            self.left_out += 1;
            return;
        }
        let before = self
            .before
            .and_then(|before| before.files.get(file.as_os_str()))
            .cloned();
        let known = before
            .as_ref()
            .filter(|kept| kept.state == state && !kept.is_unread)
            .map(|kept| Arc::clone(&kept.found));
        // A valid version stays until its replacement is settled and valid as well.
        let before = before.filter(|kept| kept.found.outcome.is_ok());
        if known.is_none()
            && let Some(good) = &before
            && let Some(next) = self.now.unsettled(Some(state), good.next)
        {
            self.skills += 1;
            return self.keep_good(good, next);
        }
        if known.is_none() && file.is_symlink() && !self.is_allowed_at(&file) {
            // The link may be replaced by a file.
            let above = file.parent().map(Path::to_owned);
            self.looked
                .folders
                .extend(above.map(|above| (above, folder)));
            return;
        }
        (file.as_os_str(), state, folder).hash(&mut self.hasher);
        self.skills += 1;
        self.found.push(match known {
            Some(found) => Candidate::Known(CachedFile {
                found,
                state,
                folder,
                next: None,
                is_unread: false,
            }),
            None => Candidate::New {
                file,
                is_variant,
                state,
                folder,
                before,
            },
        });
    }

    /// Whether something was found at `place` or under it before.
    fn knows(&self, place: &Path) -> bool {
        self.known_at(place).next().is_some()
    }

    fn known_at<'b>(&'b self, place: &'b Path) -> impl Iterator<Item = &'b CachedFile> {
        let files = self.before.into_iter().flat_map(|before| &before.files);
        files.filter(move |kept| kept.found.file.starts_with(place))
    }

    /// Keeps what was found at `place` or under it before, because the system cannot read it now.
    fn keep(&mut self, place: &Path, fault: &std::io::Error) {
        self.is_plain = false;
        let why = format!("{}: {fault}", place.display());
        let mut known: Vec<CachedFile> = self.known_at(place).cloned().collect();
        if known.is_empty() {
            self.looked.unread.push(why);
            return self.refuse(place, format!("it cannot be read: {fault}"));
        }
        known.sort_unstable_by(|one, other| one.found.file.cmp(&other.found.file));
        if let Some(before) = self.before {
            let folders = before.folders.iter();
            let inside = folders.filter(|(folder, _)| folder.starts_with(place));
            let inside = inside.filter(|folder| !self.looked.folders.contains(folder));
            let inside: Vec<(PathBuf, u64)> = inside.cloned().collect();
            self.looked.folders.extend(inside);
        }
        self.looked.unread.push(why);
        for kept in known {
            (kept.found.file.as_os_str(), kept.state, kept.folder).hash(&mut self.hasher);
            self.skills += 1;
            let reason = format!("it cannot be read: {fault}");
            self.found.push(Candidate::Known(kept.unread(&reason)));
        }
    }

    /// Keeps the previous valid version while a change is pending.
    fn keep_good(&mut self, good: &CachedFile, next: PendingChange) {
        self.looked.unsettled = true;
        (good.found.file.as_os_str(), good.state, next.state).hash(&mut self.hasher);
        self.found.push(Candidate::Known(CachedFile {
            next: Some(next),
            ..good.clone()
        }));
    }

    /// Keeps valid files that disappeared for now: some editors save by removing and creating. A
    /// file that moved within the root is not kept.
    fn keep_gone(&mut self) {
        let Some(before) = self.before else { return };
        let there: HashSet<&Path> = self.found.iter().map(Candidate::file).collect();
        let gone = before.files.iter().filter(|kept| {
            let refused_for_good = kept.found.outcome.is_err();
            !refused_for_good && !there.contains(kept.found.file.as_path())
        });
        let gone: Vec<&CachedFile> = gone.collect();
        for kept in gone {
            let moved = self.found.iter().any(|seen| match seen {
                Candidate::New { folder, .. } => *folder == kept.folder,
                Candidate::Known(other) | Candidate::Stale(other, _) => other.folder == kept.folder,
                Candidate::Refused(_) | Candidate::Unread(..) => false,
            });
            if !moved && let Some(next) = self.now.unsettled(None, kept.next) {
                self.keep_good(kept, next);
            }
        }
    }

    fn refuse(&mut self, file: &Path, reason: String) {
        self.is_plain = false;
        (file, &reason).hash(&mut self.hasher);
        let found = Found {
            file: file.to_owned(),
            outcome: Err(Broken::whole(reason)),
        };
        self.found.push(Candidate::Refused(Arc::new(found)));
    }
}
