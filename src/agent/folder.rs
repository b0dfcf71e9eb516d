//! Reads a folder of definition files. Each file gets its own result; a broken file affects no
//! other.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::dialects;
use super::fields::{AgentDraft, draft};
use super::names::derived;
use super::raw::{self, DefinitionFormat, FILE_LIMIT, LoadError};
use crate::contract::catalog::AgentMode;
use crate::file_work::read_regular;
use crate::file_work::writers::open_for_writing;

/// The maximum number of files read of one folder; further ones are reported.
pub(super) const FOLDER_LIMIT: usize = 500;

/// The program whose format the definitions in a folder follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// The format of this program.
    Own,
    /// The format of Claude Code.
    Claude,
}

/// A file and its result.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AgentFile {
    /// The file, or the folder if the folder itself cannot be read.
    pub file: PathBuf,
    /// The agent, or why there is none.
    pub outcome: Result<AgentDraft, LoadError>,
    /// Reading failed; nothing is known about the current content.
    pub unread: bool,
}

/// Parses the definition in `bytes`; `stem` is its name unless it states another.
pub(super) fn parse(
    dialect: Dialect,
    format: DefinitionFormat,
    stem: &str,
    bytes: &[u8],
) -> Result<AgentDraft, LoadError> {
    let (mode, begins): (_, Option<raw::FieldPredicate>) = match dialect {
        Dialect::Own => (AgentMode::All, None),
        Dialect::Claude => (AgentMode::Subagent, Some(dialects::begins)),
    };
    let mut raw = raw::read(format, bytes, begins)?;
    dialects::translate(&mut raw, dialect, stem)?;
    draft(format, stem, mode, raw)
}

/// Reads every definition in `folder`, ordered by file name; a missing folder contains none. With
/// `within`, links that lead out of that folder are refused.
pub(super) fn read(folder: &Path, dialect: Dialect, within: Option<&Path>) -> Vec<AgentFile> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(fault) => {
            return vec![unread(folder, &fault)];
        }
    };
    // A listing that fails midway does not show which files exist.
    let mut files: Vec<PathBuf> = match entries.map(|entry| Ok(entry?.path())).collect() {
        Ok(files) => files,
        Err(fault) => return vec![unread(folder, &fault)],
    };
    files = files
        .into_iter()
        .filter(|path| !is_temporary(path))
        .filter(|path| match dialect {
            Dialect::Own => DefinitionFormat::of(path).is_some() || path.is_dir(),
            Dialect::Claude => {
                DefinitionFormat::of(path) == Some(DefinitionFormat::Markdown) || path.is_dir()
            }
        })
        .collect();
    files.sort_unstable();
    let more = files.len().saturating_sub(FOLDER_LIMIT);
    files.truncate(FOLDER_LIMIT);
    let read = files.into_iter().map(|file| {
        let mut unread = false;
        AgentFile {
            outcome: read_one(&file, dialect, within, &mut unread),
            unread,
            file,
        }
    });
    let mut found = last_good(folder, read.collect());
    if more > 0 {
        found.push(AgentFile {
            file: folder.to_owned(),
            outcome: Err(LoadError::whole(format!(
                "{more} more files than the limit of {FOLDER_LIMIT}; the last by name are not read"
            ))),
            unread: false,
        });
    }
    found
}

fn unread(folder: &Path, fault: &std::io::Error) -> AgentFile {
    AgentFile {
        file: folder.to_owned(),
        outcome: Err(LoadError::whole(format!("it cannot be read: {fault}"))),
        unread: true,
    }
}

/// The last valid content of each file. Shared by every reader of a folder: while a file is being
/// saved, it is broken for all of them.
static LAST_GOOD: LazyLock<Mutex<HashMap<PathBuf, AgentDraft>>> = LazyLock::new(Mutex::default);

/// Replaces the result of each broken file by its last valid content, with a warning. Files that no
/// longer exist are forgotten.
fn last_good(folder: &Path, mut found: Vec<AgentFile>) -> Vec<AgentFile> {
    let mut good = LAST_GOOD.lock().unwrap_or_else(PoisonError::into_inner);
    let is_here: HashSet<&Path> = found.iter().map(|one| one.file.as_path()).collect();
    let mut being_written = None;
    good.retain(|file, _| file.parent() != Some(folder) || is_here.contains(file.as_path()));
    for one in &mut found {
        match &one.outcome {
            Ok(draft) if good.get(&one.file) == Some(draft) => {}
            Ok(draft) => {
                let being_written = being_written.get_or_insert_with(|| {
                    open_for_writing(|file| DefinitionFormat::of(file).is_some())
                });
                if let Some(writer) = being_written.get(&canonical(&one.file)) {
                    one.outcome = Err(LoadError::whole(format!(
                        "it cannot be read: {writer} still has it open for writing"
                    )));
                    one.unread = true;
                    continue;
                }
                good.insert(one.file.clone(), draft.clone());
            }
            // Its content is unknown.
            Err(_) if one.unread => {}
            // Its content is complete and refused: the earlier content might grant more.
            Err(_) if !is_half(&one.file) => {
                good.remove(&one.file);
            }
            Err(broken) => {
                if let Some(before) = good.get(&one.file) {
                    let mut draft = before.clone();
                    draft.warnings.push(format!(
                        "changed on disk and not valid; the last valid content stays in effect: {broken}"
                    ));
                    one.outcome = Ok(draft);
                }
            }
        }
    }
    found
}

fn canonical(file: &Path) -> PathBuf {
    file.canonicalize().unwrap_or_else(|_| file.to_owned())
}

/// True if the file is not parseable at all, like a file that is being saved.
fn is_half(file: &Path) -> bool {
    if file.is_symlink() {
        return false;
    }
    let (Ok(bytes), Some(format)) = (bytes_of(file, None, &mut false), DefinitionFormat::of(file))
    else {
        return false;
    };
    raw::read(format, &bytes, Some(dialects::begins)).is_err()
}

/// True for temporary files that editors leave beside the file they write.
fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_none_or(|name| name.starts_with(['.', '#']) || name.ends_with('~'))
}

/// The name that a broken definition file states, as far as it can be parsed.
pub(super) fn stated_name(file: &Path) -> Option<String> {
    let bytes = bytes_of(file, None, &mut false).ok()?;
    let raw = raw::read(DefinitionFormat::of(file)?, &bytes, Some(dialects::begins)).ok()?;
    let (_, name) = raw.fields.iter().find(|(field, _)| field == "name")?;
    Some(derived(name.as_str()?))
}

/// Reads one definition file.
pub(super) fn read_file(
    file: &Path,
    dialect: Dialect,
    within: Option<&Path>,
) -> Result<AgentDraft, LoadError> {
    read_one(file, dialect, within, &mut false)
}

/// Like [`read_file`]; sets `unread` if the file could not be read.
fn read_one(
    file: &Path,
    dialect: Dialect,
    within: Option<&Path>,
    unread: &mut bool,
) -> Result<AgentDraft, LoadError> {
    let format = DefinitionFormat::of(file).ok_or_else(|| {
        LoadError::whole("not a definition file: its name must end in .md, .toml or .json")
    });
    let bytes = bytes_of(file, within, unread)?;
    let stem = file
        .file_stem()
        .and_then(|stem| stem.to_str())
        .ok_or_else(|| LoadError::whole("the file's name is not UTF-8"))?;
    parse(dialect, format?, stem, &bytes)
}

fn bytes_of(file: &Path, within: Option<&Path>, unread: &mut bool) -> Result<Vec<u8>, LoadError> {
    let mut unreadable = |fault: std::io::Error| match fault.kind() {
        std::io::ErrorKind::NotFound => LoadError::whole("the link is broken"),
        // It is no regular file, so its content is irrelevant.
        std::io::ErrorKind::Other => LoadError::whole(fault.to_string()),
        _ => {
            *unread = true;
            LoadError::whole(format!("it cannot be read: {fault}"))
        }
    };
    let whole = file.canonicalize().map_err(&mut unreadable)?;
    if let Some(within) = within
        && !whole.starts_with(within)
    {
        return Err(LoadError::whole(
            "the link leads out of the project; definitions must be inside it",
        ));
    }
    if whole.is_dir() {
        return Err(LoadError::whole(
            "a folder; subfolders are not read, place definition files directly in the agents folder",
        ));
    }
    let bytes = read_regular(&whole, FILE_LIMIT).map_err(unreadable)?;
    if bytes.len() > FILE_LIMIT {
        return Err(LoadError::whole(format!(
            "larger than {FILE_LIMIT} bytes, the maximum for a definition"
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_said_counts_while_it_is_being_saved_and_not_once_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("one.md");
        let write = |text: &str| fs::write(&file, text).unwrap();
        let found = || read(dir.path(), Dialect::Own, None).remove(0).outcome;
        let broken = "---\ndescription: [\n";
        write(broken);
        assert!(found().is_err());
        write("---\ndescription: first\n---\nLook.\n");
        assert!(found().unwrap().warnings.is_empty());
        for half in ["", broken, "---\ndescription: second\n"] {
            write(half);
            let draft = found().unwrap();
            assert_eq!(draft.definition.description, "first", "{half:?}");
            let told = &draft.warnings[0];
            assert!(
                told.contains("the last valid content stays in effect"),
                "{told}"
            );
        }
        write("---\ndescription: second\n---\nLook.\n");
        let draft = found().unwrap();
        assert_eq!(
            (draft.definition.description.as_str(), draft.warnings.len()),
            ("second", 0)
        );
        // A parseable file that is refused is not a file being saved.
        write("---\ndescription: third\nmode: none-of-these\n---\nLook.\n");
        assert!(found().is_err());
        write("---\ndescription: second\n---\nLook.\n");
        assert!(found().is_ok());
        fs::remove_file(&file).unwrap();
        assert!(read(dir.path(), Dialect::Own, None).is_empty());
        write(broken);
        assert!(found().is_err());
    }
}
