//! A configuration file that a command changes: changes are serialized by a lock, each write is
//! atomic, and the previous text can be restored.

use std::ffi::OsString;
use std::fs::{self, File as Handle};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::cli::common::failure::{Failure, exit};
use crate::config::{self, SettingEdit};

/// The changes of one command, each with the path of names to its setting.
pub(in crate::cli) type SettingEdits<'a> = Vec<(Vec<&'a str>, SettingEdit)>;

/// Maximum number of symbolic links that are followed to the file.
const LINKS: usize = 16;

/// A file with its text before the first change and the text that was written last.
pub(in crate::cli) struct ConfigFile {
    path: PathBuf,
    /// `None` if the file did not exist.
    before: Option<String>,
    written: Option<String>,
}

impl ConfigFile {
    /// Reads the current text; the file may be missing.
    pub(in crate::cli) fn open(path: &Path) -> Result<ConfigFile, Failure> {
        // Of a symbolic link the target is changed; the link stays.
        let path = target(path).map_err(|fault| Failure::local(path.display(), fault))?;
        Ok(ConfigFile {
            before: read(&path).map_err(|fault| Failure::local(path.display(), fault))?,
            path,
            written: None,
        })
    }

    /// Path of the file, with links resolved.
    pub(in crate::cli) fn path(&self) -> &Path {
        &self.path
    }

    /// True if the current text has this table or setting.
    pub(in crate::cli) fn has(&self, path: &[&str]) -> bool {
        let now = self.written.as_ref().or(self.before.as_ref());
        now.is_some_and(|text| config::has(text, path))
    }

    /// True if the file existed before the change.
    pub(in crate::cli) fn was_there(&self) -> bool {
        self.before.is_some()
    }

    /// The file contains these changes once this returns `Ok`, if `judge` accepts the new text;
    /// returns the value of `judge` and whether the text changed. The lock keeps concurrent changes
    /// of other commands.
    pub(in crate::cli) fn change<T, E: Into<Failure>>(
        &mut self,
        changes: &SettingEdits<'_>,
        judge: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<(T, bool), Failure> {
        let failure = |fault: io::Error| Failure::local(self.path.display(), fault);
        let _alone = self.lock().map_err(failure)?;
        let now = read(&self.path).map_err(failure)?;
        let text = now.as_deref().unwrap_or_default();
        let new = config::edit(text, changes).map_err(|why| {
            let what = format!("{} cannot be changed: {why}", self.path.display());
            Failure::new(exit::CONFIG, "config", what).hint("nothing was changed")
        })?;
        let said = judge(&new).map_err(Into::into)?;
        if new == text {
            return Ok((said, false));
        }
        write(&self.path, &new).map_err(failure)?;
        if self.written.is_none() {
            self.before = now;
        }
        self.written = Some(new);
        Ok((said, true))
    }

    /// Restores the previous text, unless another program has changed the file since; returns a
    /// note about the result.
    pub(in crate::cli) fn put_back(&mut self) -> String {
        let path = self.path.display().to_string();
        let Some(written) = self.written.take() else {
            return format!("{path} was not changed");
        };
        let alone = self.lock();
        if read(&self.path).ok().flatten().as_ref() != Some(&written) {
            return format!("another program has changed {path} meanwhile; it was not restored");
        }
        let done = alone.and_then(|_alone| match &self.before {
            Some(text) => write(&self.path, text),
            None => fs::remove_file(&self.path),
        });
        match done {
            Ok(()) => format!("{path} was restored"),
            Err(fault) => format!("{path} could not be restored: {fault}"),
        }
    }

    fn folder(&self) -> &Path {
        let folder = self.path.parent();
        folder
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."))
    }

    /// Exclusive lock on the file's folder; while it is held no other command changes a file there.
    fn lock(&self) -> io::Result<Handle> {
        fs::create_dir_all(self.folder())?;
        let folder = Handle::open(self.folder())?;
        flock(&folder, FlockOperation::LockExclusive)?;
        Ok(folder)
    }
}

/// Resolves symbolic links; the last one may point to a missing file.
fn target(path: &Path) -> io::Result<PathBuf> {
    let mut path = std::path::absolute(path)?;
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            Ok(next) => path = path.parent().unwrap_or(Path::new("/")).join(next),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many levels of symbolic links"))
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(fault) if fault.kind() == ErrorKind::NotFound => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Replaces the file atomically; owner and permissions stay the same.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = OsString::from(".");
    beside.push(path.file_name().unwrap_or_default());
    beside.push(".new");
    let beside = path.with_file_name(beside);
    // Left over from a killed process; the lock rules out another command.
    match fs::remove_file(&beside) {
        Err(fault) if fault.kind() != ErrorKind::NotFound => return Err(fault),
        _ => {}
    }
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            if let Ok(about) = fs::metadata(path) {
                keep_owner(&file, (about.uid(), about.gid()))?;
                file.set_permissions(about.permissions())?;
            }
            file.sync_all()
        })
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The incomplete file is useless, and the first error is the one to report.
        drop(fs::remove_file(&beside));
    }
    written
}

/// Gives the new file the owner and group of the old one, so that the same user can read it.
fn keep_owner(file: &Handle, (user, group): (u32, u32)) -> io::Result<()> {
    let now = file.metadata()?;
    if (now.uid(), now.gid()) == (user, group) {
        return Ok(());
    }
    std::os::unix::fs::fchown(file, Some(user), Some(group)).map_err(|fault| {
        io::Error::other(format!(
            "it belongs to user {user}, and the owner could not be kept: {fault}. Change it \
             as that user"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn set(key: &'static str, value: i64) -> SettingEdits<'static> {
        vec![(config::path(key), SettingEdit::Set(value.into()))]
    }

    fn taken(_: &str) -> Result<(), Failure> {
        Ok(())
    }

    #[test]
    fn changes_at_once_are_all_kept_and_no_reader_sees_less() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abide.toml");
        fs::write(&path, "# by hand\n").unwrap();
        let keys = ["a.b", "c.d", "e.f", "g.h"];
        std::thread::scope(|scope| {
            let writers = keys.map(|key| {
                let path = &path;
                scope.spawn(move || {
                    for value in 0..25 {
                        let mut file = ConfigFile::open(path).unwrap();
                        file.change(&set(key, value), taken).unwrap();
                    }
                })
            });
            while !writers.iter().all(|writer| writer.is_finished()) {
                let text = fs::read_to_string(&path).unwrap();
                assert!(text.starts_with("# by hand\n"), "{text:?}");
            }
        });
        let text: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        for key in keys {
            let (table, field) = key.split_once('.').unwrap();
            assert_eq!(text[table][field].as_integer(), Some(24), "{key}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn owner_permissions_and_links_stay_and_it_is_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("real.toml");
        let link = folder.path().join("abide.toml");
        symlink("real.toml", &link).unwrap();
        // A dangling link: its target is created.
        let mut file = ConfigFile::open(&link).unwrap();
        file.change(&set("a.b", 1), taken).unwrap();
        assert!(link.is_symlink() && path.is_file());
        assert!(file.put_back().contains("was restored"));
        assert!(!path.exists());

        fs::write(&path, "x = 1\r\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
        }
        let mut file = ConfigFile::open(&link).unwrap();
        file.change(&set("a.b", 1), taken).unwrap();
        let about = fs::metadata(&path).unwrap();
        assert_eq!(about.permissions().mode() & 0o777, 0o640);
        assert_eq!(about.uid() == 65534, is_root);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "x = 1\r\n\r\n[a]\r\nb = 1\r\n");
        fs::write(&path, "y = 1\n").unwrap();
        assert!(file.put_back().contains("another program has changed"));
    }
}
