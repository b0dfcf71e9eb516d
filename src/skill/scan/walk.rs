//! Walks through a root: its folders, groups and links, and the skill files in them. Called by
//! `scan`.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::candidate::{CachedFile, CandidateFile};
use super::settle::{Now, PendingChange};
use super::{Looked, ScanLimits, SkillFile};
use crate::front_matter::LoadError;
use crate::skill::entries::{FileStamp, FolderEntry, FolderListing, list};
use crate::skill::file::{FILE, file_in};
use crate::skill::sources::SkillRoot;

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

/// A walk through one root.
pub(super) struct Walk<'a> {
    root: &'a SkillRoot,
    now: Now,
    /// The root contains nothing but valid skills so far.
    pub is_plain: bool,
    /// The listing of the root.
    pub listing: Option<FolderListing>,
    limits: ScanLimits,
    before: Option<&'a Looked>,
    real: PathBuf,
    pub looked: Looked,
    pub found: Vec<CandidateFile>,
    /// Number of skills in `found`.
    skills: usize,
    seen: BTreeSet<(u64, u64)>,
    pub hasher: DefaultHasher,
    left_out: usize,
}

/// Walks through a root and returns what it found; new files are not read yet.
pub(super) fn walk<'a>(
    root: &'a SkillRoot,
    limits: ScanLimits,
    before: Option<&'a Looked>,
    now: Now,
) -> Walk<'a> {
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
    walk
}

/// Whether the error means that nothing exists there, rather than that it cannot be read.
fn is_absence(fault: &std::io::Error) -> bool {
    matches!(fault.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
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

    fn entry(&mut self, above: &Path, entry: &FolderEntry, depth: usize) {
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
            return self.skill(number, (file, is_variant), FileStamp::of(&state), depth);
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
        state: FileStamp,
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
            Some(found) => CandidateFile::Known(CachedFile {
                found,
                state,
                folder,
                next: None,
                is_unread: false,
            }),
            None => CandidateFile::New {
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
            self.found.push(CandidateFile::Known(kept.unread(&reason)));
        }
    }

    /// Keeps the previous valid version while a change is pending.
    fn keep_good(&mut self, good: &CachedFile, next: PendingChange) {
        self.looked.unsettled = true;
        (good.found.file.as_os_str(), good.state, next.state).hash(&mut self.hasher);
        self.found.push(CandidateFile::Known(CachedFile {
            next: Some(next),
            ..good.clone()
        }));
    }

    /// Keeps valid files that disappeared for now: some editors save by removing and creating. A
    /// file that moved within the root is not kept.
    fn keep_gone(&mut self) {
        let Some(before) = self.before else { return };
        let there: HashSet<&Path> = self.found.iter().map(CandidateFile::file).collect();
        let gone = before.files.iter().filter(|kept| {
            let refused_for_good = kept.found.outcome.is_err();
            !refused_for_good && !there.contains(kept.found.file.as_path())
        });
        let gone: Vec<&CachedFile> = gone.collect();
        for kept in gone {
            let moved = self.found.iter().any(|seen| match seen {
                CandidateFile::New { folder, .. } => *folder == kept.folder,
                CandidateFile::Known(other) | CandidateFile::Stale(other, _) => {
                    other.folder == kept.folder
                }
                CandidateFile::Refused(_) | CandidateFile::Unread(..) => false,
            });
            if !moved && let Some(next) = self.now.unsettled(None, kept.next) {
                self.keep_good(kept, next);
            }
        }
    }

    fn refuse(&mut self, file: &Path, reason: String) {
        self.is_plain = false;
        (file, &reason).hash(&mut self.hasher);
        let found = SkillFile {
            file: file.to_owned(),
            outcome: Err(LoadError::whole(reason)),
        };
        self.found.push(CandidateFile::Refused(Arc::new(found)));
    }
}
