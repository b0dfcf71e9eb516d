//! Finds the skills below one root: folders that hold a `SKILL.md`, alone or in groups. A look
//! reads names and states; only a file that has changed since the look before is read again.
//! Called by `library`, and by `abide skills check` for the folders that it is given.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, DirEntry, File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use super::parse::{Note, Skill, parse};
use super::sources::Root;
use crate::front_matter::Broken;

/// The file that makes a folder a skill.
pub const FILE: &str = "SKILL.md";
/// As some people write it.
const VARIANTS: &[&str] = &["skill.md", "Skill.md", "SKILL.MD"];
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
    /// The folders in which a change can count, by path, each with its number on its file system.
    pub folders: Vec<(PathBuf, u64)>,
    /// What is not there, or can be swapped for another.
    pub awaited: Vec<PathBuf>,
    /// By the bytes of their paths: to compare thousands of paths part by part takes longer than
    /// to ask for the states of what they name.
    files: HashMap<OsString, (State, Arc<Found>)>,
}

/// A file's state: while it is the same, so is its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    place: (u64, u64),
    length: u64,
    times: [i64; 4],
}

impl State {
    fn of(file: &Metadata) -> Self {
        State {
            place: (file.dev(), file.ino()),
            length: file.len(),
            times: [
                file.mtime(),
                file.mtime_nsec(),
                file.ctime(),
                file.ctime_nsec(),
            ],
        }
    }
}

/// Looks at a root, where `before` is what the last look has found.
pub(super) fn look(root: &Root, limits: Limits, before: Option<&Looked>) -> Looked {
    let mut walk = Walk {
        root,
        limits,
        before,
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
    }
    if let Ok(folder) = fs::metadata(&root.folder)
        && folder.is_dir()
    {
        walk.enter(&root.folder, &folder, 0);
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
    let Walk {
        mut looked,
        mut found,
        mut hasher,
        ..
    } = walk;
    read_new(&mut found, limits);
    looked.files.reserve(found.len());
    for seen in found {
        match seen {
            Seen::Known(found, None) => looked.found.push(found),
            Seen::Known(found, Some(state)) => {
                let name = found.file.clone().into_os_string();
                looked.files.insert(name, (state, Arc::clone(&found)));
                looked.found.push(found);
            }
            Seen::New(..) => unreachable!("every new one was read"),
        }
    }
    for (folder, number) in &looked.folders {
        (folder.as_os_str(), number).hash(&mut hasher);
    }
    looked.awaited.hash(&mut hasher);
    looked.signature = hasher.finish();
    looked
}

/// What a walk has come to.
enum Seen {
    /// This, and if it is a file its state.
    Known(Arc<Found>, Option<State>),
    /// A file that is to be read, and whether it is a variant of its name.
    New(PathBuf, bool, State),
}

/// So many files are worth a thread.
const READ_BY_ONE: usize = 64;

/// Reads what is new, on all processors: of a folder of thousands that is all of it, and somebody
/// waits for it.
fn read_new(found: &mut [Seen], limits: Limits) {
    let mut new: Vec<&mut Seen> = found
        .iter_mut()
        .filter(|seen| matches!(seen, Seen::New(..)))
        .collect();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = processors.min(new.len().div_ceil(READ_BY_ONE)).max(1);
    let share = new.len().div_ceil(threads).max(1);
    let read_all = |seen: &mut [&mut Seen]| seen.iter_mut().for_each(|seen| seen.read(limits));
    thread::scope(|scope| {
        let mut shares = new.chunks_mut(share);
        let own = shares.next();
        for others in shares {
            // Where the system gives no thread, they are read below.
            let work = move || read_all(others);
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        read_all(own.unwrap_or_default());
    });
    read_all(&mut new);
}

impl Seen {
    fn read(&mut self, limits: Limits) {
        let Seen::New(file, is_variant, state) = self else {
            return;
        };
        let mut outcome = read(file, limits);
        if *is_variant {
            note_variant(&mut outcome);
        }
        let file = std::mem::take(file);
        *self = Seen::Known(Arc::new(Found { file, outcome }), Some(*state));
    }
}

/// Reads the skill in `folder`, which may be its file, too.
pub fn check(folder: &Path, limits: Limits) -> Vec<Found> {
    let root = Root::given(folder);
    if folder.is_file() {
        let outcome = read(folder, limits);
        let file = folder.to_owned();
        return vec![Found { file, outcome }];
    }
    if let Some((file, is_variant)) = file_in(folder) {
        let mut outcome = read(&file, limits);
        if is_variant {
            note_variant(&mut outcome);
        }
        return vec![Found { file, outcome }];
    }
    let looked = look(&root, limits, None);
    let found = looked.found.into_iter();
    found.map(|found| (*found).clone()).collect()
}

struct Walk<'a> {
    root: &'a Root,
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
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(fault) if fault.kind() == ErrorKind::NotFound => return,
            Err(fault) => return self.refuse(folder, format!("it cannot be read: {fault}")),
        };
        let mut entries: Vec<DirEntry> = entries.filter_map(Result::ok).collect();
        entries.sort_by_cached_key(DirEntry::file_name);
        for entry in entries {
            self.entry(&entry, depth + 1);
        }
    }

    fn entry(&mut self, entry: &DirEntry, depth: usize) {
        let Ok(kind) = entry.file_type() else { return };
        if kind.is_file() || entry.file_name().as_encoded_bytes().starts_with(b".") {
            return;
        }
        let folder = entry.path();
        let mut number = entry.ino();
        if kind.is_symlink() {
            match self.follow(&folder) {
                Some(target) => number = target.ino(),
                None => return,
            }
        }
        let file = folder.join(FILE);
        if let Ok(state) = fs::metadata(&file) {
            return self.skill(&folder, number, (file, false), &state, depth);
        }
        let is_skipped = SKIPPED.iter().any(|name| entry.file_name() == *name);
        if is_skipped {
            return;
        }
        if let Some((file, is_variant)) = file_in(&folder)
            && let Ok(state) = fs::metadata(&file)
        {
            return self.skill(&folder, number, (file, is_variant), &state, depth);
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
        folder: &Path,
        number: u64,
        (file, is_variant): (PathBuf, bool),
        state: &Metadata,
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
        self.looked.folders.push((folder.to_owned(), number));
        let state = State::of(state);
        let known = self
            .before
            .and_then(|before| before.files.get(file.as_os_str()))
            .filter(|(before, _)| *before == state)
            .map(|(_, found)| Arc::clone(found));
        if known.is_none() && file.is_symlink() && !self.may_lie_at(&file) {
            return;
        }
        (file.as_os_str(), state).hash(&mut self.hasher);
        self.skills += 1;
        self.found.push(match known {
            Some(found) => Seen::Known(found, Some(state)),
            None => Seen::New(file, is_variant, state),
        });
    }

    fn refuse(&mut self, file: &Path, reason: String) {
        (file, &reason).hash(&mut self.hasher);
        let found = Found {
            file: file.to_owned(),
            outcome: Err(Broken::whole(reason)),
        };
        self.found.push(Seen::Known(Arc::new(found), None));
    }
}

/// The file that makes a folder a skill, and whether it is a variant of its name.
fn file_in(folder: &Path) -> Option<(PathBuf, bool)> {
    let file = folder.join(FILE);
    if file.is_file() {
        return Some((file, false));
    }
    let variants = VARIANTS.iter().map(|name| folder.join(name));
    variants
        .into_iter()
        .find(|file| file.is_file())
        .map(|file| (file, true))
}

fn note_variant(outcome: &mut Result<Skill, Broken>) {
    if let Ok(skill) = outcome {
        skill.notes.push(Note {
            line: None,
            text: format!("the file's name is {FILE}, all capitals"),
        });
    }
}

fn read(file: &Path, limits: Limits) -> Result<Skill, Broken> {
    let unreadable = |fault: std::io::Error| Broken::whole(format!("it cannot be read: {fault}"));
    let state = fs::metadata(file).map_err(unreadable)?;
    // A pipe would be waited for.
    if !state.is_file() {
        return Err(Broken::whole("it is no regular file"));
    }
    // A file that has grown meanwhile is read on.
    let expected = usize::try_from(state.len()).unwrap_or(usize::MAX);
    let mut bytes = Vec::with_capacity(expected.min(limits.bytes) + 1);
    File::open(file)
        // One byte more, so that a longer file is seen to be one.
        .and_then(|file| file.take(limits.bytes as u64 + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() > limits.bytes {
        return Err(Broken::whole(format!(
            "{} bytes; a skill has {} at most (setting skills.max_file_bytes)",
            state.len(),
            limits.bytes
        )));
    }
    let absolute = std::path::absolute(file).map_err(unreadable)?;
    let folder = absolute.parent().and_then(Path::file_name);
    let folder = folder
        .and_then(|name| name.to_str())
        .ok_or_else(|| Broken::whole("its folder's name is not UTF-8"))?;
    parse(folder, &bytes, limits.bytes)
}
