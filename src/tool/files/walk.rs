//! Walks a folder of the workspace in a fixed order, and skips what is not source code. `list`,
//! `glob` and `grep` access files only through this.
//!
//! Each folder is opened by name in the one above it and stays open during the walk, so that a
//! folder that is replaced by a link is skipped and nothing outside is seen.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType};

use super::ignored::{IgnoreFiles, Ignored};
use crate::file_work::open_folder::{FOLDER, file_in, folder_in, kind_in};
use crate::tool::Workspace;
use crate::tool::blocking::StopFlag;

/// The maximum number of entries that one walk visits.
const ENTRY_LIMIT: usize = 200_000;
/// The maximum depth, since each level holds a descriptor.
const DEPTH_LIMIT: usize = 100;

/// Folders with fetched or built files.
const SKIPPED: &[&str] = &[
    ".git",
    ".hg",
    ".svn",
    ".jj",
    "node_modules",
    "target",
    ".venv",
    "venv",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".tox",
    ".gradle",
];

/// A visited file or folder.
pub(crate) struct WalkEntry<'a> {
    pub path: PathBuf,
    pub is_folder: bool,
    /// The open folder that contains it.
    folder: &'a OwnedFd,
}

impl WalkEntry<'_> {
    /// Opens the file for reading, if it is still a regular file.
    pub(crate) fn open(&self) -> io::Result<File> {
        let name = self.path.file_name().unwrap_or_default();
        file_in(self.folder, Path::new(name))
    }
}

/// What a walk left out.
#[derive(Default)]
pub(crate) struct Walked {
    /// Whether it reached the entry limit.
    too_many: bool,
    /// Ignore files that could not be read, each with the reason.
    unread: Vec<String>,
}

impl Walked {
    /// Adds the other walk of the same call.
    pub(crate) fn add(&mut self, other: Walked) {
        self.too_many |= other.too_many;
        self.unread.extend(other.unread);
    }

    /// The notes to append to the result.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.unread.clone();
        notes.sort_unstable();
        notes.dedup();
        if self.too_many {
            notes.push(format!(
                "… only the first {ENTRY_LIMIT} entries were visited; name a subfolder in \
                 path"
            ));
        }
        notes
    }
}

/// A folder on the current path of the walk.
struct WalkLevel {
    folder: OwnedFd,
    path: PathBuf,
    entries: std::vec::IntoIter<(OsString, FileType)>,
}

/// Calls `visit` for each file and folder among the descendants of the resolved path `start`, down
/// to `depth` levels, sorted by name within each folder. Links are not followed.
pub(crate) fn walk(
    workspace: &Workspace,
    start: &Path,
    depth: Option<usize>,
    stop: &StopFlag,
    mut visit: impl FnMut(&WalkEntry<'_>) -> Result<(), String>,
) -> Result<Walked, String> {
    let mut walked = Walked::default();
    let unread = |error: io::Error| workspace.unread(start, &error);
    let below = workspace.below(start).map_err(unread)?;
    if !workspace.is_folder(start)? {
        let above = below.parent().unwrap_or(Path::new(""));
        let folder = workspace.held().folder(above).map_err(unread)?;
        let name = Path::new(below.file_name().unwrap_or_default());
        if kind_in(&folder, name).map_err(unread)? == FileType::RegularFile {
            visit(&WalkEntry {
                path: start.to_owned(),
                is_folder: false,
                folder: &folder,
            })?;
        }
        return Ok(walked);
    }
    let mut ignored = Ignored::above(workspace, start, &mut walked.unread);
    let mut levels = Vec::new();
    let folder = workspace.held().folder(below).map_err(unread)?;
    levels.push(
        level(
            workspace,
            folder,
            start.to_owned(),
            &mut ignored,
            &mut walked,
        )
        .map_err(unread)?,
    );
    let deepest = depth.unwrap_or(DEPTH_LIMIT).min(DEPTH_LIMIT);
    let mut seen = 0;
    while let Some(now) = levels.last_mut() {
        stop.check()?;
        let Some((name, kind)) = now.entries.next() else {
            levels.pop();
            ignored.leave();
            continue;
        };
        let path = now.path.join(&name);
        let is_folder = kind == FileType::Directory;
        if is_folder && is_skipped(&name)
            || workspace.denies(&path)
            || ignored.matches(&path, is_folder)
        {
            continue;
        }
        if seen == ENTRY_LIMIT {
            walked.too_many = true;
            break;
        }
        seen += 1;
        let entry = WalkEntry {
            path,
            is_folder,
            folder: &now.folder,
        };
        visit(&entry)?;
        let path = entry.path;
        if is_folder && levels.len() < deepest {
            // A folder that cannot be read, or has become a link, is skipped; the rest of the tree
            // is still useful.
            let opened = levels
                .last()
                .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
                .and_then(|above| folder_in(&above.folder, Path::new(&name), FOLDER));
            let entered =
                opened.and_then(|folder| level(workspace, folder, path, &mut ignored, &mut walked));
            levels.extend(entered.ok());
        }
    }
    Ok(walked)
}

fn is_skipped(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| SKIPPED.contains(&name))
}

/// Enters a folder: reads its sorted files and folders, and its ignore rules.
fn level(
    workspace: &Workspace,
    folder: OwnedFd,
    path: PathBuf,
    ignored: &mut Ignored,
    walked: &mut Walked,
) -> io::Result<WalkLevel> {
    let mut entries = Vec::new();
    let mut files = IgnoreFiles::default();
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        files.see(name);
        let kind = match entry.file_type() {
            // Some file systems do not report the type here.
            FileType::Unknown => match kind_in(&folder, Path::new(name)) {
                Ok(kind) => kind,
                Err(_) => continue,
            },
            kind => kind,
        };
        if matches!(kind, FileType::RegularFile | FileType::Directory) {
            entries.push((name.to_owned(), kind));
        }
        // Entries above the limit would not be visited.
        if entries.len() > ENTRY_LIMIT {
            break;
        }
    }
    entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    ignored.enter(
        &folder,
        &path,
        files,
        &|path| workspace.shown(path),
        &mut walked.unread,
    );
    Ok(WalkLevel {
        folder,
        path,
        entries: entries.into_iter(),
    })
}
