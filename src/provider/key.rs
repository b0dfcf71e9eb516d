//! The key of a provider: where it is to be found, and reading it. Its value goes into a
//! header that is marked as secret, and nowhere else.

use std::path::{Path, PathBuf};

use http::HeaderValue;

/// Where a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyPlace {
    /// Nowhere: the provider wants none.
    None,
    /// In this variable of the daemon's environment.
    Variable(String),
    /// In this file.
    File(PathBuf),
    /// In the supervisor's credential of this name.
    Credential(String),
}

impl KeyPlace {
    /// The key, read anew at each call, so that a changed file needs no restart. The fault
    /// names the place, never what is in it.
    pub(super) fn read(&self) -> Result<Option<String>, String> {
        let found = match self {
            KeyPlace::None => return Ok(None),
            KeyPlace::Variable(name) => match std::env::var_os(name) {
                None => return Err(format!("its key is missing: variable {name} is not set")),
                Some(value) => value
                    .into_string()
                    .map_err(|_| format!("its key in variable {name} is no text"))?,
            },
            KeyPlace::File(path) => read(path)?,
            KeyPlace::Credential(name) => {
                let folder = std::env::var_os("CREDENTIALS_DIRECTORY").ok_or_else(|| {
                    format!(
                        "its key is missing: credential {name} needs a supervisor that sets \
                         CREDENTIALS_DIRECTORY"
                    )
                })?;
                read(&Path::new(&folder).join(name))?
            }
        };
        match found.trim() {
            "" => Err(format!("its key is missing: {self} is empty")),
            key => Ok(Some(key.to_owned())),
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path)
        .map_err(|fault| format!("its key is missing: {}: {fault}", path.display()))
}

impl std::fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeyPlace::None => f.write_str("none"),
            KeyPlace::Variable(name) => write!(f, "variable {name}"),
            KeyPlace::File(path) => write!(f, "file {}", path.display()),
            KeyPlace::Credential(name) => write!(f, "credential {name}"),
        }
    }
}

/// A header's value that no debug output shows.
pub(super) fn secret(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| "it has characters that no header can have".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_from_its_file_and_a_missing_one_names_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let place = KeyPlace::File(path.clone());
        assert!(place.read().unwrap_err().contains("key"));
        std::fs::write(&path, " \n").unwrap();
        assert!(place.read().unwrap_err().contains("is empty"));
        std::fs::write(&path, "sk-1\n").unwrap();
        assert_eq!(place.read().unwrap().as_deref(), Some("sk-1"));
        assert_eq!(KeyPlace::None.read().unwrap(), None);
        let unset = KeyPlace::Variable("ABIDE_TEST_NO_SUCH_KEY".to_owned());
        assert!(unset.read().unwrap_err().contains("ABIDE_TEST_NO_SUCH_KEY"));
        let value = secret("Bearer sk-1").unwrap();
        assert!(!format!("{value:?}").contains("sk-1"));
    }
}
