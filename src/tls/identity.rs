//! The certificate and key by which the gateway identifies itself, read from their files.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{CertificateFacts, provider};

/// Maximum size of each file in bytes.
const LIMIT: u64 = 1 << 20;

/// A certificate with its key, ready for handshakes.
#[derive(Debug)]
pub struct ServerIdentity {
    /// Facts about the certificate.
    pub facts: CertificateFacts,
    /// The settings of handshakes: TLS 1.2 and 1.3, HTTP/1.1.
    pub config: Arc<ServerConfig>,
}

/// Why a certificate and its key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be used: {why}")]
pub struct UnusableIdentity {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl ServerIdentity {
    /// Reads a certificate, followed by those that link it to an authority, and its key, both in
    /// PEM form. Without `key`, the key is in the file of the certificate. The key must be readable
    /// by its owner alone. Validity is not checked. May block.
    pub fn read(certificate: &Path, key: Option<&Path>) -> Result<Self, UnusableIdentity> {
        let unusable = |path: &Path, why: String| UnusableIdentity {
            path: path.to_owned(),
            why,
        };
        let rule = match key {
            Some(_) => PemFileRule::Public,
            None => PemFileRule::Private,
        };
        let pem = read(certificate, rule).map_err(|why| unusable(certificate, why))?;
        let chain = CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|fault| unusable(certificate, format!("it is not PEM text: {fault}")))?;
        let Some(first) = chain.first() else {
            return Err(unusable(certificate, "it has no certificate".to_owned()));
        };
        let facts = CertificateFacts::read(first)
            .map_err(|fault| unusable(certificate, fault.to_string()))?;
        let key_path = key.unwrap_or(certificate);
        let key = match key {
            Some(path) => {
                let pem = read(path, PemFileRule::Private).map_err(|why| unusable(path, why))?;
                PrivateKeyDer::from_pem_slice(&pem)
            }
            None => PrivateKeyDer::from_pem_slice(&pem),
        };
        let key = key.map_err(|_| unusable(key_path, "it has no private key".to_owned()))?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map(|builder| builder.with_no_client_auth())
            .and_then(|builder| builder.with_single_cert(chain, key));
        let mut config = config.map_err(|fault| match fault {
            rustls::Error::InconsistentKeys(_) => {
                let other = certificate.display();
                unusable(key_path, format!("it is not the key of {other}"))
            }
            fault => unusable(key_path, fault.to_string()),
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(ServerIdentity {
            facts,
            config: Arc::new(config),
        })
    }
}

/// What the owner and mode of a file must be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PemFileRule {
    /// No other user may write it.
    Public,
    /// No other user may read it, either.
    Private,
}

fn read(path: &Path, rule: PemFileRule) -> Result<Vec<u8>, String> {
    // Opening a pipe without a writer would block.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path);
    let file = file.map_err(|fault| fault.to_string())?;
    let about = file.metadata().map_err(|fault| fault.to_string())?;
    check(&about, rule)?;
    let mut bytes = Vec::new();
    file.take(LIMIT)
        .read_to_end(&mut bytes)
        .map_err(|fault| fault.to_string())?;
    Ok(bytes)
}

fn check(about: &Metadata, rule: PemFileRule) -> Result<(), String> {
    if !about.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let own = rustix::process::geteuid();
    // Root acts for other users, and supervisors run as root.
    if about.uid() != own.as_raw() && about.uid() != 0 && !own.is_root() {
        return Err(format!(
            "it is owned by user {}, who could have written anything into it",
            about.uid()
        ));
    }
    let (others, may, fix) = match rule {
        PemFileRule::Public => (0o022, "write to", "chmod go-w"),
        PemFileRule::Private => (0o077, "access", "chmod 600"),
    };
    if about.mode() & others != 0 {
        let mode = about.mode() & 0o777;
        return Err(format!(
            "other users can {may} it (mode {mode:o}); correct it: {fix}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::kernel::time::Timestamp;
    use crate::tls::{SelfSigned, self_signed};

    fn made() -> SelfSigned {
        self_signed(&["localhost".to_owned()], 1, Timestamp(0)).unwrap()
    }

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_pair_or_one_file_with_both_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let [cert, key, both] = ["cert", "key", "both"].map(|name| folder.path().join(name));
        let made = made();
        write(&cert, &made.certificate_pem(), 0o644);
        write(&key, &made.key_pem(), 0o600);
        write(&both, &(made.key_pem() + &made.certificate_pem()), 0o400);
        for (cert, key) in [(&cert, Some(&*key)), (&both, None)] {
            let identity = ServerIdentity::read(cert, key).unwrap();
            assert_eq!(identity.facts.fingerprint, made.fingerprint());
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_file_and_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let [cert, key] = ["cert", "key"].map(|name| folder.path().join(name));
        let made = made();
        let other = self::made();
        let refused = |text: &str, mode: u32, key_text: &str, key_mode: u32| {
            write(&cert, text, mode);
            write(&key, key_text, key_mode);
            let refused = ServerIdentity::read(&cert, Some(&key));
            refused.unwrap_err().to_string()
        };
        let (text, key_text) = (made.certificate_pem(), made.key_pem());
        for (said, file, why) in [
            (
                refused("", 0o644, &key_text, 0o600),
                &cert,
                "no certificate",
            ),
            (refused(&text[..100], 0o644, &key_text, 0o600), &cert, "PEM"),
            (
                refused(
                    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                    0o644,
                    &key_text,
                    0o600,
                ),
                &cert,
                "not an X.509 certificate",
            ),
            (refused(&text, 0o666, &key_text, 0o600), &cert, "chmod go-w"),
            (refused(&text, 0o644, &key_text, 0o640), &key, "chmod 600"),
            (refused(&text, 0o644, &text, 0o600), &key, "no private key"),
            (
                refused(&text, 0o644, &other.key_pem(), 0o600),
                &key,
                "not the key of",
            ),
        ] {
            let file = file.display().to_string();
            assert!(said.starts_with(&file) && said.contains(why), "{said}");
        }
        fs::remove_file(&key).unwrap();
        let said = ServerIdentity::read(&cert, Some(&key)).unwrap_err();
        assert!(said.to_string().contains("No such file"), "{said}");
        let said = ServerIdentity::read(folder.path(), None).unwrap_err();
        assert!(said.to_string().contains("not a regular file"), "{said}");
    }
}
