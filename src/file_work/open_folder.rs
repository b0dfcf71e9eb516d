//! An open folder and file access within it. Each path component is opened by name in the folder
//! above it without following links, so that a folder that is replaced by a link between check and
//! use leads nowhere. Callers resolve paths, including links, beforehand.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::regular;

/// Flags for an intermediate folder, which need not be readable.
#[cfg(target_os = "linux")]
const THROUGH: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Flags for an intermediate folder.
#[cfg(not(target_os = "linux"))]
const THROUGH: OFlags = FOLDER;
/// Flags for a folder that is listed or written to.
pub(crate) const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Flags for a file that is read; opening a pipe does not block.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// An open folder.
#[derive(Clone, Debug)]
pub(crate) struct OpenFolder(Arc<OwnedFd>);

impl OpenFolder {
    /// Opens the folder at `path`, which must not contain links.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut at = rustix::fs::open("/", THROUGH, Mode::empty())?;
        let below = path.strip_prefix("/").unwrap_or(path);
        for part in below {
            at = folder_in(&at, Path::new(part), THROUGH)?;
        }
        Ok(OpenFolder(Arc::new(at)))
    }

    /// Opens the folder at this relative path, which must not contain `..`; `None` is this folder
    /// itself.
    fn through(&self, folders: &Path) -> io::Result<Option<OwnedFd>> {
        let mut at: Option<OwnedFd> = None;
        for part in folders.components() {
            // Any other component leads out of this folder.
            let Component::Normal(part) = part else {
                return Err(Errno::LOOP.into());
            };
            let from = at.as_ref().map_or(self.0.as_fd(), AsFd::as_fd);
            at = Some(folder_in(from, Path::new(part), THROUGH)?);
        }
        Ok(at)
    }

    /// Opens a descendant folder, or this one for an empty path, for listing or writing.
    pub(crate) fn folder(&self, below: &Path) -> io::Result<OwnedFd> {
        let at = self.through(below)?;
        let at = at.as_ref().map_or(self.0.as_fd(), AsFd::as_fd);
        Ok(rustix::fs::openat(at, ".", FOLDER, Mode::empty())?)
    }

    /// Like [`OpenFolder::folder`]; creates missing folders.
    pub(crate) fn made_folder(&self, below: &Path) -> io::Result<OwnedFd> {
        let mut made = PathBuf::new();
        for part in below {
            let above = self.folder(&made)?;
            match rustix::fs::mkdirat(&above, Path::new(part), Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            made.push(part);
        }
        self.folder(below)
    }

    /// Opens a regular file among the descendants of this folder.
    pub(crate) fn file(&self, below: &Path) -> io::Result<File> {
        let (Some(folders), Some(name)) = (below.parent(), below.file_name()) else {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        };
        let at = self.through(folders)?;
        let at = at.as_ref().map_or(self.0.as_fd(), AsFd::as_fd);
        file_in(at, Path::new(name))
    }

    /// True if the path is a folder and not a link to one.
    pub(crate) fn is_folder(&self, below: &Path) -> io::Result<bool> {
        let (Some(folders), Some(name)) = (below.parent(), below.file_name()) else {
            return Ok(true);
        };
        let at = self.through(folders)?;
        let at = at.as_ref().map_or(self.0.as_fd(), AsFd::as_fd);
        Ok(kind_in(at, Path::new(name))? == FileType::Directory)
    }
}

/// Opens a folder by name in an open folder.
pub(crate) fn folder_in(above: impl AsFd, name: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    match rustix::fs::openat(&above, name, flags, Mode::empty()) {
        // A link where a folder is expected gives this error on some systems.
        Err(Errno::NOTDIR) if kind_in(&above, name)? == FileType::Symlink => {
            Err(Errno::LOOP.into())
        }
        opened => Ok(opened?),
    }
}

/// Opens a regular file by name in an open folder.
pub(crate) fn file_in(folder: impl AsFd, name: &Path) -> io::Result<File> {
    // Checked before opening: opening some devices has side effects.
    match kind_in(&folder, name)? {
        FileType::RegularFile => {}
        FileType::Symlink => return Err(Errno::LOOP.into()),
        FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
        _ => return Err(io::Error::other("it is not a regular file")),
    }
    regular(rustix::fs::openat(&folder, name, FILE, Mode::empty())?)
}

/// The file type of a name in an open folder; links are not followed.
pub(crate) fn kind_in(folder: impl AsFd, name: &Path) -> io::Result<FileType> {
    let state = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(state.st_mode))
}

/// True if the error comes from a link that did not exist when the path was resolved.
pub(crate) fn is_swapped(fault: &io::Error) -> bool {
    Errno::from_io_error(fault) == Some(Errno::LOOP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_names_leads_anywhere() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("ws/in")).unwrap();
        std::fs::write(root.join("secret"), "").unwrap();
        std::fs::write(root.join("ws/in/file"), "").unwrap();
        let held = OpenFolder::open(&root.join("ws")).unwrap();
        assert!(held.file(Path::new("in/file")).is_ok());
        assert!(held.folder(Path::new("")).is_ok());
        for path in [
            root.join("secret"),
            "../secret".into(),
            "in/../../secret".into(),
            "/".into(),
        ] {
            assert!(held.file(&path).is_err(), "{}", path.display());
            assert!(held.folder(&path).is_err(), "{}", path.display());
        }
    }
}
