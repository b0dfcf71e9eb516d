//! Walks a folder of the workspace in a fixed order, past what belongs to no source tree.
//! `list`, `glob` and `grep` see files only through this.

use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use super::Workspace;
use super::blocking::Stop;

/// The most entries that one call looks at.
const ENTRY_LIMIT: usize = 200_000;

/// Folders that hold what was fetched or built, not written.
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

/// An entry of a walk.
pub(super) struct Entry {
    pub path: PathBuf,
    pub is_folder: bool,
}

/// Calls `visit` for each file and folder below `start`, each folder's entries by name and
/// down to `depth` levels; links are not followed. True if there were too many to see all.
pub(super) fn walk(
    workspace: &Workspace,
    start: &Path,
    depth: Option<usize>,
    stop: &Stop,
    mut visit: impl FnMut(Entry) -> Result<(), String>,
) -> Result<bool, String> {
    let seen_from = workspace.clone();
    let mut builder = WalkBuilder::new(start);
    builder
        .hidden(false)
        .require_git(false)
        // A user's own global list is no part of the tree: the answer would differ by machine.
        .git_global(false)
        .follow_links(false)
        .max_depth(depth)
        .sort_by_file_name(|a, b| a.cmp(b))
        .filter_entry(move |entry| {
            let skipped = entry.depth() > 0
                && entry.file_type().is_some_and(|kind| kind.is_dir())
                && entry
                    .file_name()
                    .to_str()
                    .is_some_and(|name| SKIPPED.contains(&name));
            !skipped && !seen_from.denies(entry.path())
        });
    // An entry that cannot be read is passed over: the rest of the tree is still worth seeing.
    for (seen, entry) in builder.build().flatten().enumerate() {
        stop.check()?;
        if seen == ENTRY_LIMIT {
            return Ok(true);
        }
        let Some(kind) = entry.file_type() else {
            continue;
        };
        let is_start_folder = entry.depth() == 0 && kind.is_dir();
        if is_start_folder || !(kind.is_file() || kind.is_dir()) {
            continue;
        }
        visit(Entry {
            is_folder: kind.is_dir(),
            path: entry.into_path(),
        })?;
    }
    Ok(false)
}

/// The note below a result of a walk that did not see all.
pub(super) fn too_many() -> String {
    format!("… looked at the first {ENTRY_LIMIT} entries only; name a folder further down in path")
}
