//! `known_gateways` in the configuration folder: the certificates that the user has accepted, one
//! line `HOST:PORT FINGERPRINT` each. Used when a connection with TLS is opened.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::cli::common::failure::{Failure, exit};
use crate::config;
use crate::tls::Fingerprint;

const FILE: &str = "known_gateways";
/// Maximum size of the file in bytes.
const LIMIT: u64 = 1 << 20;

/// The remembered certificates.
pub(crate) struct KnownGateways {
    path: PathBuf,
}

impl KnownGateways {
    /// Those of this user.
    pub(crate) fn of_user() -> Result<Self, Failure> {
        let folder = config::folder().ok_or_else(|| {
            let message = "the configuration folder is unknown, so accepted certificates cannot \
                           be remembered";
            Failure::new(exit::CONFIG, "config", message)
                .hint("set HOME, or name the certificate: --pin SHA256")
        })?;
        Ok(KnownGateways {
            path: folder.join(FILE),
        })
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The fingerprint that is remembered for this host and port.
    pub(crate) fn find(&self, authority: &str) -> Result<Option<Fingerprint>, Failure> {
        let mut found = None;
        for (number, line) in self.read()?.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parsed = line.split_once(char::is_whitespace);
            let parsed = parsed.and_then(|(host, text)| Some((host, text.parse().ok()?)));
            let Some((host, fingerprint)) = parsed else {
                return Err(self.unusable(&format!(
                    "line {} is not HOST:PORT and a SHA-256 fingerprint",
                    number + 1
                )));
            };
            if host.eq_ignore_ascii_case(authority) {
                found = Some(fingerprint);
            }
        }
        Ok(found)
    }

    /// The fingerprint is remembered once this returns; the other lines stay as they are.
    pub(crate) fn add(&self, authority: &str, fingerprint: Fingerprint) -> Result<(), Failure> {
        let mut text = self.read()?;
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!(
            "{} {fingerprint}\n",
            authority.to_ascii_lowercase()
        ));
        self.write(&text)
            .map_err(|error| Failure::local(self.path.display(), error))
    }

    fn read(&self) -> Result<String, Failure> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
            Err(error) => return Err(self.unusable(&error.to_string())),
        };
        let about = file
            .metadata()
            .map_err(|error| self.unusable(&error.to_string()))?;
        let own = rustix::process::geteuid();
        if about.uid() != own.as_raw() && about.uid() != 0 || about.mode() & 0o022 != 0 {
            return Err(self.unusable("another user could have written it"));
        }
        let mut text = String::new();
        file.take(LIMIT)
            .read_to_string(&mut text)
            .map_err(|error| self.unusable(&error.to_string()))?;
        Ok(text)
    }

    /// Replaces the file atomically.
    fn write(&self, text: &str) -> std::io::Result<()> {
        if let Some(folder) = self.path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let aside = self
            .path
            .with_file_name(format!(".{FILE}.{}", std::process::id()));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&aside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&aside, &self.path)
    }

    fn unusable(&self, why: &str) -> Failure {
        let path = self.path.display();
        Failure::new(
            exit::AUTH,
            "certificate",
            format!("{path} cannot be used: {why}. Nothing was sent"),
        )
        .hint("correct the file, or name the certificate: --pin SHA256")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_added_is_found_and_other_lines_stay() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownGateways {
            path: folder.path().join("new/known_gateways"),
        };
        let [one, other] = [b"1", b"2"].map(|bytes| Fingerprint::of(bytes));
        assert_eq!(known.find("a:1").unwrap(), None);
        known.add("A:1", one).unwrap();
        known.add("[::1]:7", other).unwrap();
        assert_eq!(known.find("a:1").unwrap(), Some(one));
        assert_eq!(known.find("[::1]:7").unwrap(), Some(other));
        assert_eq!(known.find("a:2").unwrap(), None);
        let mode = fs::metadata(known.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let text = fs::read_to_string(known.path()).unwrap();
        fs::write(known.path(), format!("# mine\n\n{text}")).unwrap();
        known.add("a:1", other).unwrap();
        let text = fs::read_to_string(known.path()).unwrap();
        assert!(text.starts_with("# mine\n\na:1 "), "{text}");
        // The newest line counts.
        assert_eq!(known.find("a:1").unwrap(), Some(other));
    }

    #[test]
    fn a_file_that_is_broken_or_open_to_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownGateways {
            path: folder.path().join("known_gateways"),
        };
        fs::write(known.path(), "a:1 abc\n").unwrap();
        let refused = known.find("b:1").unwrap_err();
        assert!(refused.message.contains("line 1"), "{refused}");
        fs::write(known.path(), "").unwrap();
        fs::set_permissions(known.path(), fs::Permissions::from_mode(0o622)).unwrap();
        let refused = known.find("b:1").unwrap_err();
        assert!(refused.message.contains("another user"), "{refused}");
        assert!(known.add("b:1", Fingerprint::of(b"")).is_err());
    }
}
