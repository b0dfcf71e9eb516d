//! The access to the state folder: mode 0700, its files 0600.

use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{GATEWAY_KEY, KEY, TOKEN};
use crate::daemon::DaemonFailure;

/// Once this returns, the folder exists and only its owner can access it. A folder in use for
/// something else is refused and not taken over.
pub fn prepare(folder: &Path) -> Result<PathBuf, DaemonFailure> {
    let refused = |fault: io::Error| refused(folder, fault);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(refused)?;
    let folder = folder.canonicalize().map_err(refused)?;
    let about = fs::metadata(&folder).map_err(refused)?;
    check_owner(&folder, &about)?;
    let mode = about.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(folder);
    }
    // A service manager creates its folder with mode 0755 and hands it over empty.
    let is_ours = [super::lock::FILE, "abide.db"]
        .iter()
        .any(|file| folder.join(file).exists());
    let is_empty = fs::read_dir(&folder).map_err(refused)?.next().is_none();
    if !is_ours && !is_empty {
        return Err(DaemonFailure::NotOurs {
            folder,
            mode: mode & 0o777,
        });
    }
    // Files that others could write are not trusted.
    if !is_empty && mode & 0o022 != 0 {
        return Err(writable(folder, mode));
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).map_err(refused)?;
    Ok(folder)
}

/// Refuses a state folder that another user could have filled, as [`prepare`] does. Changes
/// nothing. A folder that is missing or cannot be inspected passes: its later use reports why.
pub fn check(folder: &Path) -> Result<(), DaemonFailure> {
    let Ok(about) = fs::metadata(folder) else {
        return Ok(());
    };
    check_owner(folder, &about)?;
    let mode = about.permissions().mode();
    let is_filled = || fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    match mode & 0o022 != 0 && is_filled() {
        true => Err(writable(folder.to_owned(), mode)),
        false => Ok(()),
    }
}

/// Refuses a state folder with a pipe or device, which would block, or with a file of the store
/// that another user owns or may write. Changes nothing.
pub fn check_files(folder: &Path) -> Result<(), DaemonFailure> {
    for path in entries(folder) {
        let Ok(about) = fs::metadata(&path) else {
            continue;
        };
        // These have checks, and advice, of their own.
        if [TOKEN, KEY, GATEWAY_KEY]
            .iter()
            .any(|name| path.ends_with(name))
        {
            continue;
        }
        let kind = about.file_type();
        if kind.is_fifo() || kind.is_char_device() || kind.is_block_device() {
            return Err(DaemonFailure::Unsafe {
                why: "it is a pipe or a device, not a regular file".to_owned(),
                advice: "Find out what created it, and move it away".to_owned(),
                path,
            });
        }
        if !is_of_store(&path) || !about.is_file() {
            continue;
        }
        let own = rustix::process::geteuid().as_raw();
        let (uid, mode) = (about.uid(), about.mode() & 0o777);
        let why = if uid != own && uid != 0 {
            format!("it is owned by user {uid}, who could have written anything into it")
        } else if mode & 0o022 != 0 {
            format!("other users can write to it (mode {mode:o})")
        } else {
            continue;
        };
        return Err(DaemonFailure::Unsafe {
            advice: format!(
                "Restore a backup (abide restore FILE --force), or take ownership once you \
                 know where it comes from: chown {own} {0} && chmod 600 {0}",
                path.display()
            ),
            path,
            why,
        });
    }
    Ok(())
}

/// Restricts the mode of store files that others may read, such as a backup copied by hand. Others
/// could not enter the folder, so nothing was exposed.
pub fn close_files(folder: &Path) {
    for path in entries(folder).filter(|path| is_of_store(path)) {
        let is_open = |about: &Metadata| about.is_file() && about.mode() & 0o077 != 0;
        if !fs::symlink_metadata(&path).is_ok_and(|about| is_open(&about)) {
            continue;
        }
        match fs::set_permissions(&path, fs::Permissions::from_mode(0o600)) {
            Ok(()) => tracing::warn!(
                path = %path.display(),
                "other users could read this file of the store; its mode is now 600"
            ),
            Err(fault) => {
                tracing::warn!(path = %path.display(), %fault, "other users can read this file of the store");
            }
        }
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

fn is_of_store(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(crate::store::DATABASE)
}

fn check_owner(folder: &Path, about: &Metadata) -> Result<(), DaemonFailure> {
    let own = rustix::process::geteuid().as_raw();
    if about.uid() == own {
        return Ok(());
    }
    let uid = about.uid();
    Err(DaemonFailure::Unsafe {
        path: folder.to_owned(),
        why: format!(
            "it is owned by user {uid}, but this process runs as user {own}: that user could have \
             put a token or a store into it"
        ),
        advice: format!(
            "Run as user {uid}, choose another --state-dir, or take it over once you know what is \
             in it: chown -R {own} {}",
            folder.display()
        ),
    })
}

fn writable(folder: PathBuf, mode: u32) -> DaemonFailure {
    DaemonFailure::Unsafe {
        why: format!(
            "other users can write to it (mode {:o}) and could have put a token or a store into it",
            mode & 0o777
        ),
        advice: format!(
            "Check its contents, remove what is not yours, then: chmod 700 {}",
            folder.display()
        ),
        path: folder,
    }
}

/// Reads at most 4096 bytes of a file in the state folder; `None` if it cannot be read.
pub fn read_small(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path)
        .ok()?
        .take(4096)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

/// Converts an I/O error on the state folder; missing permissions have their own exit code.
pub fn refused(path: &Path, fault: io::Error) -> DaemonFailure {
    let what = format!(
        "the state folder cannot be used (name another: --state-dir DIR): {}",
        path.display()
    );
    match fault.kind() {
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::AlreadyExists => DaemonFailure::NotPermitted(what, fault),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            DaemonFailure::NoRoom(path.to_owned())
        }
        _ => DaemonFailure::System(what, fault),
    }
}
