//! Reads files that hold a secret of this user, such as the token and keys. A file that cannot be a
//! secret, or that another user could have written, is refused with the reason.

use std::fs::{File, Metadata, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Maximum size of such a file in bytes.
pub const LARGEST: u64 = 4096;
/// Minimum length of a secret in characters; a shorter one could be guessed.
pub const SHORTEST: usize = 16;

/// Why a secret file is not used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The file does not exist.
    #[error("it does not exist")]
    Missing,
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(std::io::Error),
    /// It is not a regular file, or its contents are not a secret.
    #[error("{0}")]
    Impossible(String),
    /// Another user could have written it.
    #[error("{0}")]
    Foreign(String),
}

/// Which checks a secret file must pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretFileRule {
    /// A file that the daemon made in its own folder: no link, owned by this user, long enough. If
    /// others may read it, its mode is changed to 600.
    Own,
    /// A file that the user names: links are followed, and root, as a supervisor, may own it.
    Named,
}

/// The secret in `path`, with surrounding whitespace removed.
pub fn read_secret(path: &Path, rule: SecretFileRule) -> Result<String, Unusable> {
    use rustix::fs::OFlags;

    let mut flags = OFlags::NONBLOCK;
    if rule == SecretFileRule::Own {
        let about = std::fs::symlink_metadata(path).map_err(unreadable)?;
        if about.is_symlink() {
            return Err(Unusable::Foreign(
                "it is a symbolic link, which could point anywhere".to_owned(),
            ));
        }
        flags |= OFlags::NOFOLLOW;
    }
    // Opening a pipe without a writer would block.
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let mut file = File::options()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    if !about.is_file() {
        return Err(Unusable::Impossible("it is not a regular file".to_owned()));
    }
    check_owner(&about, rule)?;
    let text = read_text(&mut file)?;
    let text = text.trim();
    if text.is_empty() {
        return Err(Unusable::Impossible("it is empty".to_owned()));
    }
    if !text.chars().all(|one| one.is_ascii_graphic()) {
        return Err(Unusable::Impossible(
            "it has more than one line, whitespace, or characters that no token has".to_owned(),
        ));
    }
    if rule == SecretFileRule::Own && text.len() < SHORTEST {
        return Err(Unusable::Impossible(format!(
            "it has {} characters, but a secret needs at least {SHORTEST}",
            text.len()
        )));
    }
    if rule == SecretFileRule::Own && about.mode() & 0o077 != 0 {
        close(&file, path, &about)?;
    }
    Ok(text.to_owned())
}

/// True if other users may read the file.
pub fn is_readable_by_others(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.mode() & 0o044 != 0)
}

fn unreadable(fault: std::io::Error) -> Unusable {
    match fault.kind() {
        ErrorKind::NotFound => Unusable::Missing,
        _ => Unusable::Unreadable(fault),
    }
}

fn check_owner(about: &Metadata, rule: SecretFileRule) -> Result<(), Unusable> {
    let own = rustix::process::geteuid();
    let trusted = match rule {
        SecretFileRule::Own => about.uid() == own.as_raw(),
        // Root acts for other users, and supervisors run as root.
        SecretFileRule::Named => about.uid() == own.as_raw() || about.uid() == 0 || own.is_root(),
    };
    if !trusted {
        return Err(Unusable::Foreign(format!(
            "it is owned by user {}, who could have written anything into it",
            about.uid()
        )));
    }
    let mode = about.mode() & 0o777;
    if mode & 0o022 != 0 {
        return Err(Unusable::Foreign(format!(
            "other users can write to it (mode {mode:o})"
        )));
    }
    Ok(())
}

fn read_text(file: &mut File) -> Result<String, Unusable> {
    let mut bytes = Vec::new();
    file.take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(Unusable::Unreadable)?;
    if bytes.len() as u64 > LARGEST {
        return Err(Unusable::Impossible(format!(
            "it has more than {LARGEST} bytes"
        )));
    }
    String::from_utf8(bytes).map_err(|_| Unusable::Impossible("it is not UTF-8 text".to_owned()))
}

/// Others may read the file, but they cannot enter its folder, so the secret is not exposed yet.
fn close(file: &File, path: &Path, about: &Metadata) -> Result<(), Unusable> {
    file.set_permissions(Permissions::from_mode(0o600))
        .map_err(Unusable::Unreadable)?;
    tracing::warn!(
        path = %path.display(),
        mode = format!("{:o}", about.mode() & 0o777),
        "others could read this secret; its mode is 600 now. Replace it if they could enter its \
         folder"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(mode: u32, bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    fn refused(path: &Path) -> [String; 2] {
        [SecretFileRule::Own, SecretFileRule::Named].map(|rule| match read_secret(path, rule) {
            Ok(text) => format!("taken: {text}"),
            Err(why) => why.to_string(),
        })
    }

    #[test]
    fn a_secret_is_one_printable_line_and_nothing_else_is_taken() {
        let good = b"0123456789abcdef\n";
        let (_folder, path) = written(0o600, good);
        assert_eq!(refused(&path), ["taken: 0123456789abcdef"; 2]);
        let huge = vec![b'a'; 5000];
        for (bytes, says) in [
            (&b""[..], "empty"),
            (b" \n\t\n", "empty"),
            (b"0123456789\nabcdef0123456789", "more than one line"),
            (b"0123456789 abcdef0123456789", "more than one line"),
            (
                b"0123456789\0abcdef0123456789",
                "characters that no token has",
            ),
            (b"\x7fELF\x02\x01\xff\xfe0123456789", "not UTF-8 text"),
            ("schl\u{fc}ssel-schl\u{fc}ssel".as_bytes(), "characters"),
            (&huge, "more than 4096 bytes"),
        ] {
            let (_folder, path) = written(0o600, bytes);
            for said in refused(&path) {
                assert!(said.contains(says), "{bytes:?}: {said}");
            }
        }
        // A secret in a file that the user names may be short, since another service may define it.
        let (_folder, path) = written(0o600, b"short");
        let [own, named] = refused(&path);
        assert!(own.contains("needs at least 16"), "{own}");
        assert_eq!(named, "taken: short");
    }

    #[test]
    fn what_is_no_file_or_was_put_there_by_others_is_refused() {
        let (folder, path) = written(0o622, b"0123456789abcdef");
        assert!(
            refused(&path)
                .iter()
                .all(|said| said.contains("other users can write to it"))
        );
        let inside = |name: &str| folder.path().join(name);
        assert_eq!(refused(&inside("none")), ["it does not exist"; 2]);
        std::fs::create_dir(inside("folder")).unwrap();
        assert_eq!(refused(&inside("folder")), ["it is not a regular file"; 2]);
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            inside("pipe"),
            rustix::fs::Mode::from_raw_mode(0o600),
        )
        .unwrap();
        assert_eq!(refused(&inside("pipe")), ["it is not a regular file"; 2]);
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&path, inside("link")).unwrap();
        let [own, named] = refused(&inside("link"));
        assert!(own.contains("it is a symbolic link"), "{own}");
        assert_eq!(named, "taken: 0123456789abcdef");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            let [own, named] = refused(&path);
            assert!(own.contains("owned by user 65534"), "{own}");
            assert_eq!(named, "taken: 0123456789abcdef", "root acts for others");
        }
    }

    #[test]
    fn the_daemons_own_file_that_others_may_read_is_closed() {
        let (_folder, path) = written(0o644, b"0123456789abcdef");
        assert!(is_readable_by_others(&path));
        assert!(read_secret(&path, SecretFileRule::Named).is_ok());
        assert!(
            is_readable_by_others(&path),
            "a named file is left as it is"
        );
        assert!(read_secret(&path, SecretFileRule::Own).is_ok());
        assert!(!is_readable_by_others(&path));
    }
}
