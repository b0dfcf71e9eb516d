//! The state folder: 0700, its files 0600, and the token in it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::Failure;

pub(super) const TOKEN: &str = "token";

/// The token and where it is kept.
pub struct Token {
    /// The text that clients show.
    pub text: String,
    /// The file.
    pub path: PathBuf,
}

/// Once this returns, the folder is there and open to its owner alone. A folder that others
/// use as well is refused and not taken over.
pub fn prepare(folder: &Path) -> Result<PathBuf, Failure> {
    let refused = |fault: io::Error| refused(folder, fault);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(refused)?;
    let folder = folder.canonicalize().map_err(refused)?;
    let mode = fs::metadata(&folder).map_err(refused)?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(folder);
    }
    // A service manager makes its folder 0755 and hands it over empty.
    let is_ours = [super::lock::FILE, "abide.db"]
        .iter()
        .any(|file| folder.join(file).exists());
    let is_empty = fs::read_dir(&folder).map_err(refused)?.next().is_none();
    if !is_ours && !is_empty {
        return Err(Failure::NotOurs {
            folder,
            mode: mode & 0o777,
        });
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).map_err(refused)?;
    Ok(folder)
}

/// The admin token, made at the first start. It is never logged.
pub fn token(folder: &Path) -> Result<Token, Failure> {
    kept(folder, TOKEN)
}

/// The secret in the file of this name, which is made of chance where there is none.
pub(super) fn kept(folder: &Path, name: &str) -> Result<Token, Failure> {
    let path = folder.join(name);
    let refused = |fault: io::Error| refused(&path, fault);
    match fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => {
            return Ok(Token {
                text: text.trim().to_owned(),
                path,
            });
        }
        Ok(_) => {}
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => {}
        Err(fault) => return Err(refused(fault)),
    }
    let text = fresh()?;
    // Written aside and renamed: a kill in between leaves no half of it behind.
    let aside = folder.join(format!(".{name}.new"));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&aside)
        .map_err(refused)?;
    writeln!(file, "{text}")
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&aside, &path))
        .map_err(refused)?;
    Ok(Token { text, path })
}

fn fresh() -> Result<String, Failure> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|fault| {
        Failure::System(
            "the system gave no random bytes for a secret".to_owned(),
            io::Error::other(fault.to_string()),
        )
    })?;
    Ok(blake3::Hash::from(bytes).to_hex().to_string())
}

/// Reads a small file of the state folder; `None` where it cannot be read.
pub fn read_small(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path)
        .ok()?
        .take(4096)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

/// A fault of the state folder as a failure: what is not permitted has its own exit code.
pub fn refused(path: &Path, fault: io::Error) -> Failure {
    let what = format!("the state folder cannot be used: {}", path.display());
    match fault.kind() {
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::AlreadyExists => Failure::NotPermitted(what, fault),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Failure::NoRoom(path.to_owned())
        }
        _ => Failure::System(what, fault),
    }
}
