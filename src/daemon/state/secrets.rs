//! The secrets in the state folder, which backups do not include: the token of clients, and the key
//! that encrypts the variables which callers give to runs.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{GATEWAY_KEY, KEY, TOKEN, refused};
use crate::config::{self, SecretFileRule, Unusable};
use crate::daemon::DaemonFailure;
use crate::gateway::GatewayKey;
use crate::kernel::secret::Reference;
use crate::store::Seal;

/// The supervisor's credential that replaces the key of values.
const SEAL_CREDENTIAL: &str = "abide-env-key";
/// The supervisor's credential that replaces the gateway's key.
const GATEWAY_CREDENTIAL: &str = "abide-gateway-key";
/// What to do about an unusable key file.
const ADVICE: &str = "Restore the right key, or remove it: the next start creates a new one, and \
                      values that were encrypted with the old one are lost";
/// The key derivation context: any text can be the secret.
const PURPOSE: &str = "abide 2026 key for values of environments";

/// The token and its file.
pub struct Token {
    /// The text that clients send.
    pub text: String,
    /// The path of the file.
    pub path: PathBuf,
}

/// The key from the supervisor's credential, else from the state folder's file, created if missing.
pub fn seal(state: &Path) -> Result<Seal, DaemonFailure> {
    let text = match credential(SEAL_CREDENTIAL)? {
        Some(text) => text,
        None => load_or_create(state, KEY, ADVICE)?.text,
    };
    Ok(Seal::new(blake3::derive_key(PURPOSE, text.as_bytes())))
}

/// The admin token, created at the first start. It is never logged.
pub fn token(folder: &Path) -> Result<Token, DaemonFailure> {
    let advice = "Remove it; the next start creates a new one";
    load_or_create(folder, TOKEN, advice)
}

/// The supervisor's credential of this name; `None` if it gives none. One that is there and cannot be
/// read is an error, so that no other key silently replaces it.
fn credential(name: &str) -> Result<Option<String>, DaemonFailure> {
    let Some(folder) = std::env::var_os("CREDENTIALS_DIRECTORY") else {
        return Ok(None);
    };
    let path = Path::new(&folder).join(name);
    match fs::symlink_metadata(&path) {
        Ok(_) => {}
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(fault) => {
            return Err(DaemonFailure::Config(format!(
                "credential {name}: {} cannot be read: {fault}. Nothing was started, so that no other \
                 key takes its place. Correct the credentials of the service manager, or remove them",
                path.display()
            )));
        }
    }
    let secret = config::read(&Reference::Credential(name.to_owned()));
    let secret = secret.map_err(DaemonFailure::Config)?;
    Ok(Some(secret.expose().to_owned()))
}

/// The key by which nodes recognize this gateway: the supervisor's credential, else that in the state
/// folder, created at the first start.
pub fn gateway_key(folder: &Path) -> Result<GatewayKey, DaemonFailure> {
    if let Some(seed) = credential(GATEWAY_CREDENTIAL)? {
        return GatewayKey::from_seed(&seed).map_err(|fault| {
            DaemonFailure::Config(format!(
                "credential {GATEWAY_CREDENTIAL}: {}",
                fault.message
            ))
        });
    }
    let advice = "Restore it, or remove it: the next start creates a new one, and every node must be \
                  paired again";
    let seed = load_or_create(folder, GATEWAY_KEY, advice)?;
    GatewayKey::from_seed(&seed.text).map_err(|fault| DaemonFailure::Unsafe {
        path: seed.path,
        why: fault.message,
        advice: advice.to_owned(),
    })
}

/// The secret in this file, created from random bytes if missing. `advice` says what to do about an
/// unusable file.
fn load_or_create(folder: &Path, name: &str, advice: &str) -> Result<Token, DaemonFailure> {
    let path = folder.join(name);
    match config::read_secret(&path, SecretFileRule::Own) {
        Ok(text) => return Ok(Token { text, path }),
        Err(Unusable::Missing) => {}
        Err(Unusable::Unreadable(fault)) => return Err(refused(&path, fault)),
        Err(why @ (Unusable::Impossible(_) | Unusable::Foreign(_))) => {
            return Err(DaemonFailure::Unsafe {
                path,
                why: why.to_string(),
                advice: advice.to_owned(),
            });
        }
    }
    let refused = |fault: io::Error| refused(&path, fault);
    let text = fresh()?;
    // Written to a temporary file and renamed, so that a kill leaves no partial secret. A leftover
    // of such a kill, or a link at that path, is removed and not written through.
    let aside = folder.join(format!(".{name}.new"));
    match fs::remove_file(&aside) {
        Err(fault) if fault.kind() != io::ErrorKind::NotFound => return Err(refused(fault)),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&aside)
        .map_err(refused)?;
    writeln!(file, "{text}")
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&aside, &path))
        .map_err(refused)?;
    Ok(Token { text, path })
}

fn fresh() -> Result<String, DaemonFailure> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|fault| {
        DaemonFailure::System(
            "the system gave no random bytes for a secret".to_owned(),
            io::Error::other(fault.to_string()),
        )
    })?;
    Ok(blake3::Hash::from(bytes).to_hex().to_string())
}
