//! The key that encrypts the variables which callers give to runs: a credential of the supervisor,
//! or a file beside the store that backups do not include.

use std::path::Path;

use super::Failure;
use super::folder;
use crate::config;
use crate::kernel::secret::Reference;
use crate::store::Seal;

/// Name of the supervisor's credential.
const CREDENTIAL: &str = "abide-env-key";
/// Name of the file in the state folder.
pub(super) const FILE: &str = "env.key";
/// What to do about an unusable key file.
const ADVICE: &str = "Restore the right key, or remove it: the next start creates a new one, and \
                      values that were encrypted with the old one are lost";
/// The key derivation context: any text can be the secret.
const PURPOSE: &str = "abide 2026 key for values of environments";

/// The key from the supervisor's credential, else from the state folder's file, created if missing.
pub fn seal(state: &Path) -> Result<Seal, Failure> {
    let given = std::env::var_os("CREDENTIALS_DIRECTORY")
        .map(|folder| Path::new(&folder).join(CREDENTIAL))
        .filter(|path| path.exists());
    let text = match given {
        // An unreadable credential is an error, so that no other key silently replaces it.
        Some(_) => config::read(&Reference::Credential(CREDENTIAL.to_owned()))
            .map_err(Failure::Config)?
            .expose()
            .to_owned(),
        None => folder::load_or_create_secret(state, FILE, ADVICE)?.text,
    };
    Ok(Seal::new(blake3::derive_key(PURPOSE, text.as_bytes())))
}
