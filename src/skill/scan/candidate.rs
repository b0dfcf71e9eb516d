//! A file that a walk has found: read now or in an earlier scan, or a reason why it was not. Used by
//! `walk`, and by `scan`, which has the new ones read.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::settle::PendingChange;
use super::{ScanLimits, SkillFile};
use crate::skill::entries::FileStamp;
use crate::skill::file::{NoSkill, note_variant, read};
use crate::skill::parse::Skill;

/// A file that was read. Compared by the bytes of its path: comparing thousands of paths by
/// component takes longer than querying the files' states.
#[derive(Clone, Debug)]
pub(super) struct CachedFile {
    pub found: Arc<SkillFile>,
    pub state: FileStamp,
    /// Inode number of its folder.
    pub folder: u64,
    /// The pending change: the file's present state, which is not used yet.
    pub next: Option<PendingChange>,
    /// The file could not be read since, so its state says nothing about its content.
    pub is_unread: bool,
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

/// A candidate file during a walk.
pub(super) enum CandidateFile {
    /// An error to report for this path.
    Refused(Arc<SkillFile>),
    /// A file that was read, now or in an earlier scan.
    Known(CachedFile),
    /// A file that could not be read and was never read before, and why.
    Unread(Arc<SkillFile>, String),
    /// A file that could not be read, in the version read before, and why.
    Stale(CachedFile, String),
    /// A file to be read.
    New {
        file: PathBuf,
        is_variant: bool,
        state: FileStamp,
        folder: u64,
        before: Option<CachedFile>,
    },
}

impl CandidateFile {
    /// The path of the file or folder.
    pub(super) fn file(&self) -> &Path {
        match self {
            CandidateFile::Refused(found) | CandidateFile::Unread(found, _) => &found.file,
            CandidateFile::Known(kept) | CandidateFile::Stale(kept, _) => &kept.found.file,
            CandidateFile::New { file, .. } => file,
        }
    }

    /// Reads a new file; any other candidate stays as it is.
    pub(super) fn read(&mut self, limits: ScanLimits, being_written: &HashMap<PathBuf, String>) {
        let CandidateFile::New {
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
                Some(before) => CandidateFile::Stale(before.unread(&reason), why),
                None => {
                    let file = std::mem::take(file);
                    CandidateFile::Unread(Arc::new(SkillFile { file, outcome }), why)
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
        *self = CandidateFile::Known(CachedFile {
            found: Arc::new(SkillFile { file, outcome }),
            state: *state,
            folder: *folder,
            next: None,
            is_unread: false,
        });
    }
}

impl CachedFile {
    /// The same skill, marked as stale: its file cannot be read now.
    pub(super) fn unread(mut self, reason: &str) -> Self {
        if let Ok(good) = &self.found.outcome {
            let outcome = Ok(Skill {
                stale: Some(reason.to_owned()),
                ..good.clone()
            });
            let file = self.found.file.clone();
            self.found = Arc::new(SkillFile { file, outcome });
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
