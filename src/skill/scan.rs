//! Finds the skills below one root: folders that hold a `SKILL.md`, alone or in groups. A look
//! reads names and states; only a file that has changed since the look before is read again.
//! Called by `library`, and by `abide skills check` for the folders that it is given.

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

/// A skill's folder lies at most so many levels below its root.
const DEPTH: usize = 6;
/// Folders that hold what tools have put there. A skill of such a name is one all the same.
const SKIPPED: &[&str] = &[
    "node_modules",
    "target",
    "venv",
    "__pycache__",
    "dist",
    "build",
];

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Skills of one root.
    pub skills: usize,
    /// Bytes of one file.
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

/// A file and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The file, or the folder if that is at fault.
    pub file: PathBuf,
    /// The skill, or why there is none.
    pub outcome: Result<Skill, Broken>,
}

/// What a look at a root has found.
#[derive(Clone, Debug, Default)]
pub(super) struct Looked {
    /// Changes with whatever was found.
    pub signature: u64,
    /// By path.
    pub found: Vec<Arc<Found>>,
    /// What is not there, or can be swapped for another.
    pub awaited: Vec<PathBuf>,
    /// The folders in which a change can count and that are no skill's, by path, each with its
    /// number on its file system.
    folders: Vec<(PathBuf, u64)>,
    files: HashSet<Kept>,
    /// What could not be read, and why: what was found there before counts.
    pub unread: Vec<String>,
    /// Something of it changes and is not taken before it is still.
    pub unsettled: bool,
    /// By what was read.
    limits: Limits,
    /// What lies at a root that holds skills and nothing else: no groups, no links, nothing that
    /// is refused. That is nearly every root, and while it is the same, so is all that a look
    /// makes of it.
    plain: Option<Listing>,
}

impl Looked {
    /// Is all of it as it was? It may be also where this says no.
    pub fn is_unchanged(&self, root: &Root, limits: Limits) -> bool {
        self.plain.as_ref().is_some_and(|plain| {
            self.limits == limits
                && self.unread.is_empty()
                && !root.folder.is_symlink()
                && list(&root.folder).is_ok_and(|now| now == *plain)
        })
    }

    /// The folders in which a change can count, nearly by path, each with its number on its file
    /// system.
    pub fn folders(&self) -> impl Iterator<Item = (PathBuf, u64)> {
        let skills = self.found.iter().filter_map(|found| {
            let kept = self.files.get(found.file.as_os_str())?;
            Some((found.file.parent()?.to_owned(), kept.folder))
        });
        self.folders.iter().cloned().chain(skills)
    }
}

/// A file that was read. They are told apart by the bytes of their paths: to compare thousands
/// of paths part by part takes longer than to ask for the states of what they name.
#[derive(Clone, Debug)]
struct Kept {
    found: Arc<Found>,
    state: State,
    /// Its folder's number on its file system.
    folder: u64,
    /// What is there now and does not count yet.
    next: Option<Next>,
    /// The file could not be read since, so that its state does not say what is in it.
    is_unread: bool,
}

/// A change that is not taken before it is still.
#[derive(Clone, Copy, Debug)]
struct Next {
    /// The file's state; `None`: it is gone.
    state: Option<State>,
    /// Since when it was seen so.
    since: Duration,
    /// Since when it changes.
    began: Duration,
}

/// What keeps changing for so long is taken as it is then, if it is good.
const LONGEST: Duration = Duration::from_secs(2);

/// When a look is made, and how long a file must be still before it is read in place of a good
/// version of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Now {
    /// The time of day, as files have it.
    pub wall: Timestamp,
    /// The time that does not jump.
    pub steady: Duration,
    /// How long.
    pub settle: Duration,
}

impl Now {
    /// Since when what is there is so, if it is not still yet.
    fn unsettled(&self, state: Option<State>, before: Option<Next>) -> Option<Next> {
        let same = before.filter(|next| next.state == state);
        let since = same.map_or(self.steady, |next| next.since);
        let began = before.map_or(self.steady, |next| next.began);
        let passed = |from: Duration| self.steady.saturating_sub(from);
        let wall = i64::try_from(self.settle.as_millis()).unwrap_or(i64::MAX);
        let is_still = state.is_some_and(|state| self.wall.0 - state.changed_ms() >= wall)
            || passed(since) >= self.settle
            || passed(began) >= LONGEST.max(self.settle);
        (!is_still).then_some(Next {
            state,
            since,
            began,
        })
    }
}

impl Borrow<OsStr> for Kept {
    fn borrow(&self) -> &OsStr {
        self.found.file.as_os_str()
    }
}

impl Hash for Kept {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.found.file.as_os_str().hash(hasher);
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.found.file.as_os_str() == other.found.file.as_os_str()
    }
}

impl Eq for Kept {}

/// Looks at a root, where `before` is what the last look has found. It is found again if nothing
/// has changed.
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
                // What does not count may lie there otherwise than before.
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
        // What was too long may be taken now, and the other way round.
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
    // Where a link leads may change without the folder's knowing.
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
                "{more} skills more than the {} that are read, the last by name \
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
        .filter(|seen| matches!(seen, Seen::New { .. }));
    let mut new: Vec<&mut Seen> = new.collect();
    let being_written = match new.is_empty() {
        true => HashMap::new(),
        false => open_for_writing(|file| file.extension().is_some_and(|md| md == "md")),
    };
    // Of a folder of thousands that is new, that is nearly all of the time.
    spread(&mut new, READ_BY_ONE, |part| {
        part.iter_mut()
            .for_each(|seen| seen.read(limits, &being_written));
    });
    looked.files.reserve(found.len());
    for seen in found {
        match seen {
            Seen::Refused(found) => looked.found.push(found),
            Seen::Known(kept) => {
                looked.found.push(Arc::clone(&kept.found));
                looked.files.insert(kept);
            }
            // Read again at the next look.
            Seen::Unread(found, why) => {
                looked.unread.push(why);
                looked.found.push(found);
            }
            Seen::Stale(kept, why) => {
                looked.unread.push(why);
                looked.found.push(Arc::clone(&kept.found));
                looked.files.insert(kept);
            }
            Seen::New { .. } => unreachable!("every new one was read"),
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

/// What a walk has come to.
enum Seen {
    /// What cannot be read, and why.
    Refused(Arc<Found>),
    /// A file that was read.
    Known(Kept),
    /// A file that could not be read, of which nothing is known, and why.
    Unread(Arc<Found>, String),
    /// One that could not be read, as it was read before, and why.
    Stale(Kept, String),
    /// A file that is to be read.
    New {
        file: PathBuf,
        is_variant: bool,
        state: State,
        folder: u64,
        before: Option<Kept>,
    },
}

/// Does it say that there is nothing, and not that it cannot be seen?
fn is_absence(fault: &std::io::Error) -> bool {
    matches!(fault.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// So many files are worth a thread.
const READ_BY_ONE: usize = 64;

impl Seen {
    fn file(&self) -> &Path {
        match self {
            Seen::Refused(found) | Seen::Unread(found, _) => &found.file,
            Seen::Known(kept) | Seen::Stale(kept, _) => &kept.found.file,
            Seen::New { file, .. } => file,
        }
    }

    fn read(&mut self, limits: Limits, being_written: &HashMap<PathBuf, String>) {
        let Seen::New {
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
                Some(before) => Seen::Stale(before.unread(&reason), why),
                None => {
                    let file = std::mem::take(file);
                    Seen::Unread(Arc::new(Found { file, outcome }), why)
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
                    Some("nothing stands below the front matter".to_owned())
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
        *self = Seen::Known(Kept {
            found: Arc::new(Found { file, outcome }),
            state: *state,
            folder: *folder,
            next: None,
            is_unread: false,
        });
    }
}

impl Kept {
    /// The same, where its file cannot be read now: what it said before counts, and says why.
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

/// Reads the skill in `folder`, which may be its file, too.
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
    /// Is there nothing but skills?
    is_plain: bool,
    /// What lies at the root.
    listing: Option<Listing>,
    limits: Limits,
    before: Option<&'a Looked>,
    real: PathBuf,
    looked: Looked,
    found: Vec<Seen>,
    /// How many of them are skills.
    skills: usize,
    seen: BTreeSet<(u64, u64)>,
    hasher: DefaultHasher,
    left_out: usize,
}

impl Walk<'_> {
    /// A folder of skills: the root, or a group in it.
    fn enter(&mut self, folder: &Path, state: &Metadata, depth: usize) {
        // Links may lead round in a circle.
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
        // Of each of thousands that are known, this is the one path that is made.
        let mut file =
            PathBuf::with_capacity(above.as_os_str().len() + entry.name.len() + FILE.len() + 2);
        file.extend([above, Path::new(&entry.name), Path::new(FILE)]);
        if let Some(state) = entry.file {
            return self.skill(number, (file, false), state, depth);
        }
        let folder = above.join(&entry.name);
        if let Some(fault) = entry.fault {
            // It may be no skill at all, and then nothing is lost.
            if self.knows(&folder) {
                self.keep(&folder, &std::io::Error::from_raw_os_error(fault));
            }
            return;
        }
        let is_skipped = SKIPPED.iter().any(|name| entry.name == *name);
        if is_skipped {
            return;
        }
        // What it is may change without the root's knowing.
        self.is_plain = false;
        if let Some((file, is_variant)) = file_in(&folder)
            && let Ok(state) = fs::metadata(&file)
        {
            return self.skill(number, (file, is_variant), State::of(&state), depth);
        }
        // A link to a file whose target is gone is one all the same.
        if file.is_symlink() {
            return self.refuse(&file, "the link leads nowhere".to_owned());
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

    /// Where a link leads, if that is a folder in which skills may lie.
    fn follow(&mut self, link: &Path) -> Option<Metadata> {
        let target = fs::metadata(link).ok().filter(Metadata::is_dir)?;
        self.may_lie_at(link).then_some(target)
    }

    fn may_lie_at(&mut self, path: &Path) -> bool {
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
                    "the link leads out of {}, to {} (setting skills.link_targets)",
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
                "its folder lies {depth} levels below {}, and {DEPTH} are looked at",
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
        // A good version stays until what is there in its place is still, and good as well.
        let before = before.filter(|kept| kept.found.outcome.is_ok());
        if known.is_none()
            && let Some(good) = &before
            && let Some(next) = self.now.unsettled(Some(state), good.next)
        {
            self.skills += 1;
            return self.keep_good(good, next);
        }
        if known.is_none() && file.is_symlink() && !self.may_lie_at(&file) {
            // The link may be swapped for a file.
            let above = file.parent().map(Path::to_owned);
            self.looked
                .folders
                .extend(above.map(|above| (above, folder)));
            return;
        }
        (file.as_os_str(), state, folder).hash(&mut self.hasher);
        self.skills += 1;
        self.found.push(match known {
            Some(found) => Seen::Known(Kept {
                found,
                state,
                folder,
                next: None,
                is_unread: false,
            }),
            None => Seen::New {
                file,
                is_variant,
                state,
                folder,
                before,
            },
        });
    }

    /// Was anything found at or below `place` before?
    fn knows(&self, place: &Path) -> bool {
        self.known_at(place).next().is_some()
    }

    fn known_at<'b>(&'b self, place: &'b Path) -> impl Iterator<Item = &'b Kept> {
        let files = self.before.into_iter().flat_map(|before| &before.files);
        files.filter(move |kept| kept.found.file.starts_with(place))
    }

    /// Takes what was found at or below `place` before: the system does not let it be read now.
    fn keep(&mut self, place: &Path, fault: &std::io::Error) {
        self.is_plain = false;
        let why = format!("{}: {fault}", place.display());
        let mut known: Vec<Kept> = self.known_at(place).cloned().collect();
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
            self.found.push(Seen::Known(kept.unread(&reason)));
        }
    }

    /// What was good before counts for now.
    fn keep_good(&mut self, good: &Kept, next: Next) {
        self.looked.unsettled = true;
        (good.found.file.as_os_str(), good.state, next.state).hash(&mut self.hasher);
        self.found.push(Seen::Known(Kept {
            next: Some(next),
            ..good.clone()
        }));
    }

    /// Files that were good and are gone may come back: some editors save so. One that has moved
    /// within the root does not.
    fn keep_gone(&mut self) {
        let Some(before) = self.before else { return };
        let there: HashSet<&Path> = self.found.iter().map(Seen::file).collect();
        let gone = before.files.iter().filter(|kept| {
            let refused_for_good = kept.found.outcome.is_err();
            !refused_for_good && !there.contains(kept.found.file.as_path())
        });
        let gone: Vec<&Kept> = gone.collect();
        for kept in gone {
            let moved = self.found.iter().any(|seen| match seen {
                Seen::New { folder, .. } => *folder == kept.folder,
                Seen::Known(other) | Seen::Stale(other, _) => other.folder == kept.folder,
                Seen::Refused(_) | Seen::Unread(..) => false,
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
        self.found.push(Seen::Refused(Arc::new(found)));
    }
}
