//! Reads and atomically replaces text files, for `write` and `edit`. Each folder is opened by name
//! in the one above it without following links, so that the path cannot change between check and
//! write. The file appears completely, by a rename, or not at all. Uses rustix descriptors instead
//! of a crate for sandboxed paths, of which only two calls would be needed.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::file_work::open_folder::{OpenFolder, is_swapped};
use crate::tool::Workspace;

/// The maximum size of a changed or written file, in bytes.
pub(crate) const FILE_LIMIT: usize = 8 * 1024 * 1024;

/// A location in the workspace where a file may be written.
pub(crate) struct WriteTarget {
    root: OpenFolder,
    /// The folders from the root to the file.
    folders: PathBuf,
    name: PathBuf,
    /// The path as results show it.
    pub shown: String,
}

/// An existing text file.
pub(crate) struct Existing {
    /// The content.
    pub text: String,
    mode: Mode,
}

/// The identity and state of a file at a point in time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    file: [u64; 3],
    changed: [i64; 2],
    /// The ctime, which programs cannot set.
    moved: [i64; 2],
    mode: u32,
}

impl Stamp {
    /// True if it was changed within 2 seconds before `seconds` (system clock), so that another
    /// change could have the same stamp.
    pub(crate) fn is_fresh_at(&self, seconds: i64) -> bool {
        self.moved[0] >= seconds - 2 || self.changed[0] >= seconds - 2
    }
}

impl Existing {
    /// True if all its lines end with CRLF.
    pub(crate) fn has_crlf(&self) -> bool {
        let ends = self.text.matches('\n').count();
        ends > 0 && self.text.matches("\r\n").count() == ends
    }
}

impl WriteTarget {
    /// Resolves `path`; the error says why it may not be written, and where writing is permitted.
    pub(crate) fn of(workspace: &Workspace, path: &str) -> Result<WriteTarget, String> {
        let place = workspace.resolve_for_writing(path)?;
        let below = place.strip_prefix(workspace.root());
        let below = below.map_err(|_| format!("access denied: {path}"))?;
        let (Some(folders), Some(name)) = (below.parent(), below.file_name()) else {
            return Err(format!("{path} is the workspace itself; name a file in it"));
        };
        Ok(WriteTarget {
            root: workspace.held().clone(),
            folders: folders.to_owned(),
            name: name.into(),
            shown: workspace.shown(&place),
        })
    }

    /// The identity of the existing file and its last change; `None` if there is no file.
    pub(crate) fn stamp(&self) -> io::Result<Option<Stamp>> {
        match self.root.file(&self.folders.join(&self.name)) {
            Ok(file) => file.metadata().map(|found| {
                Some(Stamp {
                    file: [found.dev(), found.ino(), found.size()],
                    changed: [found.mtime(), found.mtime_nsec()],
                    moved: [found.ctime(), found.ctime_nsec()],
                    mode: found.mode(),
                })
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the existing text file; `None` if there is none. The error says why it is no text
    /// file.
    pub(crate) fn existing(&self) -> Result<Option<Existing>, String> {
        let opened = self.root.file(&self.folders.join(&self.name));
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                return Err(format!("{} is a folder", self.shown));
            }
            Err(error) => return Err(self.failed(&error)),
        };
        let found = file.metadata().map_err(|error| self.failed(&error))?;
        let mode = Mode::from_raw_mode(found.mode());
        if !mode.intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH) {
            return Err(format!("{} is read-only; nothing was changed", self.shown));
        }
        let mut bytes = Vec::new();
        file.take(FILE_LIMIT as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| self.failed(&error))?;
        if bytes.len() > FILE_LIMIT {
            return Err(format!(
                "{} is larger than {FILE_LIMIT} bytes, the maximum for a change",
                self.shown
            ));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            format!(
                "{} is not UTF-8 text (byte {at}); nothing was changed",
                self.shown
            )
        })?;
        if let Some(at) = text.find('\0') {
            return Err(format!(
                "{} is not a text file (a NUL at byte {at}); nothing was changed",
                self.shown
            ));
        }
        Ok(Some(Existing { text, mode }))
    }

    /// Once this returns, the file contains `text`, synced to disk, with its previous mode bits.
    /// Missing folders are created.
    pub(crate) fn put(&self, text: &str, existing: Option<&Existing>) -> Result<(), String> {
        self.replace_atomically(text, existing)
            .map_err(|error| self.failed(&error))
    }

    fn replace_atomically(&self, text: &str, existing: Option<&Existing>) -> io::Result<()> {
        let folder = self.root.made_folder(&self.folders)?;
        // Derived from the call, so that a repeated call replaces the file that a kill left behind.
        let digest = blake3::hash(
            [self.shown.as_bytes(), b"\0", text.as_bytes()]
                .concat()
                .as_slice(),
        );
        let passing = format!(".abide-{}.tmp", &digest.to_hex()[..16]);
        let written = write_new(&folder, &passing, text, existing.map(|one| one.mode));
        let placed = written.and_then(|()| {
            Ok(rustix::fs::renameat(
                &folder,
                passing.as_str(),
                &folder,
                &self.name,
            )?)
        });
        if let Err(error) = placed {
            // A temporary file that cannot be removed stays; the first error says why.
            let _ = rustix::fs::unlinkat(&folder, passing.as_str(), AtFlags::empty());
            return Err(error);
        }
        Ok(rustix::fs::fsync(&folder)?)
    }

    fn failed(&self, error: &io::Error) -> String {
        match is_swapped(error) {
            true => format!(
                "access denied: {} or a parent folder was replaced by a link meanwhile",
                self.shown
            ),
            false => format!("{}: {error}; nothing was changed", self.shown),
        }
    }
}

/// Once this returns, a new file in `folder` contains `text`, synced to disk.
fn write_new(folder: &OwnedFd, name: &str, text: &str, mode: Option<Mode>) -> io::Result<()> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let new = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o666))?;
    let mut file = File::from(new);
    file.write_all(text.as_bytes())?;
    if let Some(mode) = mode {
        rustix::fs::fchmod(&file, mode)?;
    }
    file.sync_all()
}

/// `text` with CRLF line ends, if it contains no carriage return yet.
pub(crate) fn with_crlf(text: &str) -> String {
    match text.contains('\r') {
        true => text.to_owned(),
        false => text.replace('\n', "\r\n"),
    }
}
