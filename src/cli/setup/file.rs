//! The file of settings while `abide setup` changes it: it can be put back as it was.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::cli::failure::{Failure, exit};
use crate::config;

/// A file that is changed, as it was and as it was last written.
pub(super) struct File {
    path: PathBuf,
    before: Option<String>,
    written: Option<String>,
}

impl File {
    /// The file as it is now; it may be missing.
    pub(super) fn open(path: &Path) -> Result<File, Failure> {
        let before = match fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(fault) if fault.kind() == ErrorKind::NotFound => None,
            Err(fault) => return Err(Failure::local(path.display(), fault)),
        };
        Ok(File {
            // Where it is a link, what it leads to is changed and the link stays.
            path: fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
            before,
            written: None,
        })
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes these settings into it. `false`: they stood there already.
    pub(super) fn set(&mut self, settings: &[(Vec<&str>, String)]) -> Result<bool, Failure> {
        self.change(|text| config::edit(text, settings))
    }

    /// Writes a setting into it that is a list of texts. `false`: it stood there already.
    pub(super) fn set_list(&mut self, key: &[&str], list: &[String]) -> Result<bool, Failure> {
        self.change(|text| config::edit_list(text, key, list))
    }

    fn change(
        &mut self,
        edit: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<bool, Failure> {
        let now = self.written.as_ref().or(self.before.as_ref());
        let text = now.map_or("", String::as_str);
        let new = edit(text).map_err(|why| {
            let what = format!("{} cannot be changed: {why}", self.path.display());
            Failure::new(exit::CONFIG, "config", what).hint("nothing was changed")
        })?;
        if new == text {
            return Ok(false);
        }
        write(&self.path, &new).map_err(|fault| Failure::local(self.path.display(), fault))?;
        self.written = Some(new);
        Ok(true)
    }

    /// Puts it back as it was, unless somebody else has changed it since. Says which.
    pub(super) fn put_back(&mut self) -> String {
        let path = self.path.display().to_string();
        let Some(written) = self.written.take() else {
            return format!("{path} was not changed");
        };
        if fs::read_to_string(&self.path).ok().as_ref() != Some(&written) {
            return format!("{path} was changed by somebody else meanwhile and is left as it is");
        }
        let done = match &self.before {
            Some(text) => write(&self.path, text),
            None => fs::remove_file(&self.path),
        };
        match done {
            Ok(()) => format!("{path} is as it was before"),
            Err(fault) => format!("{path} could not be put back: {fault}"),
        }
    }
}

/// In one piece: a reader sees the old text or the new.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // What a kill has left of an earlier one is written over.
    let beside = path.with_extension("toml.new");
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            if let Ok(about) = fs::metadata(path) {
                file.set_permissions(about.permissions())?;
            }
            file.sync_all()
        })
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // What is left of it is of no use; the fault says what matters.
        drop(fs::remove_file(&beside));
    }
    written
}
