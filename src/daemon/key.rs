//! The key with which values that callers give to runs are sealed: a credential of the
//! supervisor's, or a file beside the store that no backup takes along.

use std::path::Path;

use super::Failure;
use super::folder;
use crate::config;
use crate::kernel::secret::Reference;
use crate::store::Seal;

/// Its name among the credentials.
const CREDENTIAL: &str = "abide-env-key";
/// Its file in the state folder.
pub(super) const FILE: &str = "env.key";
/// What to do about a file that cannot be used.
const ADVICE: &str = "Put the right key back, or remove it: the next start makes a new one, and \
                      values that were sealed with the old one are lost";
/// Any text can be a key; this is what makes one of it.
const PURPOSE: &str = "abide 2026 key for values of environments";

/// The supervisor's key, or else the one in the state folder, which is made at the first start.
pub fn seal(state: &Path) -> Result<Seal, Failure> {
    let given = std::env::var_os("CREDENTIALS_DIRECTORY")
        .map(|folder| Path::new(&folder).join(CREDENTIAL))
        .filter(|path| path.exists());
    let text = match given {
        // One that is there and cannot be read is not replaced by another in silence.
        Some(_) => config::read(&Reference::Credential(CREDENTIAL.to_owned()))
            .map_err(Failure::Config)?
            .expose()
            .to_owned(),
        None => folder::kept(state, FILE, ADVICE)?.text,
    };
    Ok(Seal::new(blake3::derive_key(PURPOSE, text.as_bytes())))
}
