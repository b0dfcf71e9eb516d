//! Finds the skills under one root: folders with a `SKILL.md`, at the top level or in groups. A
//! scan reads names and file states; only files changed since the previous scan are read again.
//! Called by `library`, and by `abide skills check` for the folders given to it.

mod candidate;
mod settle;
mod walk;

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candidate::{CachedFile, CandidateFile};
pub(super) use settle::Now;
use walk::{Walk, walk};

use super::entries::{FolderListing, list};
use super::file::{NoSkill, file_in, note_variant, read};
use super::parse::Skill;
use super::sources::SkillRoot;
use super::spread::spread;
use crate::file_work::writers::open_for_writing;
use crate::front_matter::LoadError;

/// Minimum number of files to read that is worth a thread.
const READ_BY_ONE: usize = 64;

/// Limits of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanLimits {
    /// Maximum number of skills per root.
    pub skills: usize,
    /// Maximum bytes of one file.
    pub bytes: usize,
}

impl Default for ScanLimits {
    fn default() -> Self {
        ScanLimits {
            skills: 10_000,
            bytes: 1 << 20,
        }
    }
}

/// A file that was found, and its skill or error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFile {
    /// The file, or the folder if the error concerns the folder.
    pub file: PathBuf,
    /// The skill, or why there is none.
    pub outcome: Result<Skill, LoadError>,
}

/// The result of scanning a root.
#[derive(Clone, Debug, Default)]
pub(super) struct Looked {
    /// Changes with everything that was found.
    pub signature: u64,
    /// The files that were found, by path.
    pub found: Vec<Arc<SkillFile>>,
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
    limits: ScanLimits,
    /// The listing of a root that contains only valid skills: no groups, links or errors. Nearly
    /// every root is like this, and while the listing is unchanged, so is the result of a scan.
    plain: Option<FolderListing>,
}

impl Looked {
    /// True only if the root is provably unchanged; false negatives are possible.
    pub fn is_unchanged(&self, root: &SkillRoot, limits: ScanLimits) -> bool {
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

/// Scans a root. Returns `before`, the result of the previous scan, if nothing has changed.
pub(super) fn look(
    root: &SkillRoot,
    limits: ScanLimits,
    before: Option<&Arc<Looked>>,
    now: Now,
) -> Arc<Looked> {
    match before {
        Some(before) if before.is_unchanged(root, limits) => Arc::clone(before),
        before => {
            let now = scan(root, limits, before.map(Arc::as_ref), now);
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

fn scan(root: &SkillRoot, limits: ScanLimits, before: Option<&Looked>, now: Now) -> Looked {
    let Walk {
        is_plain,
        listing,
        mut looked,
        mut found,
        mut hasher,
        ..
    } = walk(root, limits, before, now);
    let new = found
        .iter_mut()
        .filter(|seen| matches!(seen, CandidateFile::New { .. }));
    let mut new: Vec<&mut CandidateFile> = new.collect();
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
            CandidateFile::Refused(found) => looked.found.push(found),
            CandidateFile::Known(kept) => {
                looked.found.push(Arc::clone(&kept.found));
                looked.files.insert(kept);
            }
            // Not kept, so that it is read again in the next scan.
            CandidateFile::Unread(found, why) => {
                looked.unread.push(why);
                looked.found.push(found);
            }
            CandidateFile::Stale(kept, why) => {
                looked.unread.push(why);
                looked.found.push(Arc::clone(&kept.found));
                looked.files.insert(kept);
            }
            CandidateFile::New { .. } => unreachable!("every new one was read"),
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

/// Reads the skill in `folder`, or all skills below it if it is no skill itself. `folder` may also
/// be a skill file.
pub fn check(folder: &Path, limits: ScanLimits) -> Vec<SkillFile> {
    let root = SkillRoot::given(folder);
    if folder.is_file() {
        let outcome = read(folder, limits).map_err(NoSkill::broken);
        let file = folder.to_owned();
        return vec![SkillFile { file, outcome }];
    }
    if let Some((file, is_variant)) = file_in(folder) {
        let mut outcome = read(&file, limits).map_err(NoSkill::broken);
        if is_variant {
            note_variant(&mut outcome);
        }
        return vec![SkillFile { file, outcome }];
    }
    let looked = look(&root, limits, None, Now::default());
    let found = looked.found.iter();
    found.map(|found| (**found).clone()).collect()
}
