//! `fs.list` and `fs.read`: folders and files below the allowed roots. Each folder is opened by name
//! in the one above it without following links, so that no link leads out. What belongs to abide
//! itself, such as the keys of the node, is refused even there.

use std::ffi::OsStr;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, statat};

use super::program::CallFailure;
use crate::file_work::open_folder::{OpenFolder, is_swapped};
use crate::kernel::node::{Entries, Entry, FailureReason, FilePart, OUTPUT_LIMIT};

/// Maximum number of entries that are read of a folder, and that a result has.
const READ_LIMIT: usize = 100_000;
const ENTRY_LIMIT: usize = 2_000;
/// Maximum size of a text in a result after JSON has escaped it, in bytes.
const ENCODED_LIMIT: usize = 600 * 1024;

/// The folders that calls may look into.
#[derive(Clone, Debug)]
pub(super) struct Roots {
    /// The allowed folders.
    pub allowed: Vec<PathBuf>,
    /// Folders of abide itself.
    pub denied: Vec<PathBuf>,
}

/// A place below a root.
struct Place {
    root: OpenFolder,
    /// Relative to the root, without links.
    below: PathBuf,
}

fn failed(path: &str, fault: &std::io::Error) -> CallFailure {
    use std::io::ErrorKind;

    match fault.kind() {
        _ if is_swapped(fault) => (
            FailureReason::Denied,
            format!("{path}: a part of it was replaced by a link meanwhile"),
        ),
        ErrorKind::NotFound | ErrorKind::NotADirectory => (
            FailureReason::NotFound,
            format!("{path}: it does not exist"),
        ),
        ErrorKind::PermissionDenied => (FailureReason::Denied, format!("{path}: {fault}")),
        ErrorKind::IsADirectory => (FailureReason::NotFound, format!("{path}: it is a folder")),
        _ => (FailureReason::Failed, format!("{path}: {fault}")),
    }
}

impl Roots {
    /// Resolves an absolute path, which must be below a root as written and with links resolved.
    fn place(&self, path: &str) -> Result<Place, CallFailure> {
        let written = Path::new(path);
        let is_plain = |part: Component| !matches!(part, Component::ParentDir);
        if !written.is_absolute() || path.contains('\0') || !written.components().all(is_plain) {
            let message = format!("{path}: it is not an absolute path without ..");
            return Err((FailureReason::Invalid, message));
        }
        let outside = || {
            let roots: Vec<String> = self
                .allowed
                .iter()
                .map(|root| root.display().to_string())
                .collect();
            let message = match roots.is_empty() {
                true => "no folder of this machine may be read".to_owned(),
                false => format!(
                    "{path} is outside the allowed folders: {}",
                    roots.join(", ")
                ),
            };
            (FailureReason::Denied, message)
        };
        for root in self.allowed.iter().filter(|root| written.starts_with(root)) {
            let real_root = root.canonicalize().map_err(|fault| failed(path, &fault))?;
            let real = written
                .canonicalize()
                .map_err(|fault| failed(path, &fault))?;
            let Ok(below) = real.strip_prefix(&real_root) else {
                continue;
            };
            let denied = self.denied.iter();
            let denied =
                denied.map(|folder| folder.canonicalize().unwrap_or_else(|_| folder.clone()));
            if denied.into_iter().any(|folder| real.starts_with(folder)) {
                let message = format!("{path} belongs to abide itself, and calls may not read it");
                return Err((FailureReason::Denied, message));
            }
            return Ok(Place {
                root: OpenFolder::open(&real_root).map_err(|fault| failed(path, &fault))?,
                below: below.to_owned(),
            });
        }
        Err(outside())
    }

    /// Lists a folder.
    pub(super) fn list(&self, path: &str) -> Result<Entries, CallFailure> {
        let place = self.place(path)?;
        let folder = place
            .root
            .folder(&place.below)
            .map_err(|fault| failed(path, &fault))?;
        let fault = |fault: rustix::io::Errno| failed(path, &fault.into());
        let mut names = Vec::new();
        let mut truncated = false;
        for entry in Dir::read_from(&folder).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let name = entry.file_name().to_bytes().to_owned();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == READ_LIMIT {
                truncated = true;
                break;
            }
            names.push(name);
        }
        names.sort_unstable();
        truncated |= names.len() > ENTRY_LIMIT;
        names.truncate(ENTRY_LIMIT);
        let entries = names.into_iter().filter_map(|name| {
            // An entry may be gone by now.
            let about =
                statat(&folder, OsStr::from_bytes(&name), AtFlags::SYMLINK_NOFOLLOW).ok()?;
            let kind = match FileType::from_raw_mode(about.st_mode) {
                FileType::RegularFile => "file",
                FileType::Directory => "folder",
                FileType::Symlink => "link",
                _ => "other",
            };
            Some(Entry {
                name: String::from_utf8_lossy(&name).into_owned(),
                kind: kind.to_owned(),
                size: u64::try_from(about.st_size).unwrap_or_default(),
            })
        });
        Ok(Entries {
            entries: entries.collect(),
            truncated,
        })
    }

    /// Reads at most `limit` bytes of a file from `offset` on; fewer if their text would be too
    /// large for a frame.
    pub(super) fn read(
        &self,
        path: &str,
        offset: u64,
        limit: u64,
    ) -> Result<FilePart, CallFailure> {
        let place = self.place(path)?;
        let fault = |fault: std::io::Error| failed(path, &fault);
        let mut file = place.root.file(&place.below).map_err(fault)?;
        let size = file.metadata().map_err(fault)?.len();
        file.seek(SeekFrom::Start(offset)).map_err(fault)?;
        let limit = limit.clamp(1, OUTPUT_LIMIT as u64);
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes).map_err(fault)?;
        let end = offset + bytes.len() as u64;
        let mut part = bytes.as_slice();
        if end < size {
            part = whole_characters(part);
        }
        let mut text = String::from_utf8_lossy(part).into_owned();
        while encoded(&text) > ENCODED_LIMIT {
            part = whole_characters(&part[..part.len() / 2]);
            text = String::from_utf8_lossy(part).into_owned();
        }
        let next = offset + part.len() as u64;
        Ok(FilePart {
            text,
            size,
            next: (next < size && !part.is_empty()).then_some(next),
        })
    }
}

/// The size of a text in JSON, in bytes.
pub(super) fn encoded(text: &str) -> usize {
    let size = |c: char| match c {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    };
    text.chars().map(size).sum()
}

/// The bytes without the beginning of a character at their end, unless nothing else is there.
fn whole_characters(bytes: &[u8]) -> &[u8] {
    let cut = match bytes.utf8_chunks().last() {
        Some(chunk) if !chunk.invalid().is_empty() => {
            let is_begun = std::str::from_utf8(chunk.invalid())
                .is_err_and(|fault| fault.error_len().is_none());
            if is_begun { chunk.invalid().len() } else { 0 }
        }
        _ => 0,
    };
    match bytes.len() - cut {
        0 => bytes,
        whole => &bytes[..whole],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn fixture() -> (tempfile::TempDir, Roots, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let root = base.join("root");
        fs::create_dir_all(root.join("deep/own")).unwrap();
        fs::write(root.join("deep/file"), "aäb").unwrap();
        fs::write(root.join("deep/own/key"), "secret").unwrap();
        fs::write(base.join("secret"), "secret").unwrap();
        symlink(base.join("secret"), root.join("out")).unwrap();
        symlink(&base, root.join("up")).unwrap();
        symlink(root.join("deep/file"), root.join("in")).unwrap();
        let roots = Roots {
            allowed: vec![root.clone()],
            denied: vec![root.join("deep/own")],
        };
        (folder, roots, root)
    }

    #[test]
    fn no_path_leads_out_of_the_roots() {
        let (_folder, roots, root) = fixture();
        let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
        assert_eq!(roots.read(&path("in"), 0, 100).unwrap().text, "aäb");
        for name in ["out", "up/secret", "deep/own/key"] {
            let (reason, message) = roots.read(&path(name), 0, 100).unwrap_err();
            assert_eq!(reason, FailureReason::Denied, "{message}");
        }
        for name in ["up", "deep/own"] {
            let (reason, message) = roots.list(&path(name)).unwrap_err();
            assert_eq!(reason, FailureReason::Denied, "{message}");
        }
        for (given, expected) in [
            (path("../secret"), FailureReason::Invalid),
            ("/etc/passwd".to_owned(), FailureReason::Denied),
            ("relative".to_owned(), FailureReason::Invalid),
            (format!("{}-sibling", root.display()), FailureReason::Denied),
            (path("gone"), FailureReason::NotFound),
            (path("deep"), FailureReason::NotFound),
        ] {
            let (reason, message) = roots.read(&given, 0, 100).unwrap_err();
            assert_eq!(reason, expected, "{message}");
        }
    }

    #[test]
    fn a_folder_is_listed_with_kinds_and_sizes() {
        let (_folder, roots, root) = fixture();
        let found = roots.list(root.to_str().unwrap()).unwrap();
        let rows: Vec<(&str, &str)> = found
            .entries
            .iter()
            .map(|entry| (entry.name.as_str(), entry.kind.as_str()))
            .collect();
        assert_eq!(
            rows,
            [
                ("deep", "folder"),
                ("in", "link"),
                ("out", "link"),
                ("up", "link")
            ]
        );
        assert!(!found.truncated);
        let deep = roots.list(root.join("deep").to_str().unwrap()).unwrap();
        assert_eq!((deep.entries[0].size, &*deep.entries[0].kind), (4, "file"));
    }

    #[test]
    fn a_file_is_read_in_parts_between_characters() {
        let (_folder, roots, root) = fixture();
        let path = root.join("deep/file");
        let path = path.to_str().unwrap();
        let part = roots.read(path, 0, 2).unwrap();
        assert_eq!((&*part.text, part.size, part.next), ("a", 4, Some(1)));
        let part = roots.read(path, 1, 2).unwrap();
        assert_eq!((&*part.text, part.next), ("ä", Some(3)));
        let part = roots.read(path, 3, 10).unwrap();
        assert_eq!((&*part.text, part.next), ("b", None));
        assert_eq!(roots.read(path, 99, 10).unwrap().text, "");
        // One byte of a character at a time still comes to an end.
        assert_eq!(roots.read(path, 1, 1).unwrap().next, Some(2));
        // Control characters are six times as long in JSON.
        fs::write(root.join("zeros"), vec![0; 400_000]).unwrap();
        let zeros = root.join("zeros");
        let mut offset = 0;
        let mut parts = 0;
        while let Some(next) = roots
            .read(zeros.to_str().unwrap(), offset, u64::MAX)
            .unwrap()
            .next
        {
            assert!(next > offset);
            offset = next;
            parts += 1;
        }
        assert!(parts > 3, "{parts}");
    }
}
