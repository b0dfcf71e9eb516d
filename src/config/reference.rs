//! Resolves references to values: a variable of the daemon's environment, a file, or a credential
//! of the supervisor. Used for the API keys of providers and for the environment of runs.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::file_work::read_regular;
use crate::kernel::secret::{Reference, Secret};

/// The variable in which a supervisor names its folder of credentials.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// Maximum size of a file in bytes.
const LIMIT: usize = 64 * 1024;

/// The current value, with surrounding whitespace removed. The error names the reference, never its
/// contents.
pub fn read(reference: &Reference) -> Result<Secret, String> {
    let found = match reference {
        Reference::Variable(name) => match std::env::var_os(name) {
            None => return Err(format!("variable {name} is not set")),
            Some(value) => value
                .into_string()
                .map_err(|_| format!("variable {name} is not UTF-8 text"))?,
        },
        Reference::File(path) => file(Path::new(path))?,
        Reference::Credential(name) => file(&credential(name)?)?,
    };
    match found.trim() {
        "" => Err(format!("{reference} is empty")),
        text if text.contains('\0') => Err(format!("{reference} contains U+0000")),
        text => Ok(Secret::new(text)),
    }
}

/// The path of the supervisor's credential of this name.
fn credential(name: &str) -> Result<PathBuf, String> {
    let folder = std::env::var_os(CREDENTIALS)
        .ok_or_else(|| format!("credential {name} needs a supervisor that sets {CREDENTIALS}"))?;
    Ok(Path::new(&folder).join(name))
}

fn file(path: &Path) -> Result<String, String> {
    let refused = |fault: std::io::Error| format!("{}: {fault}", path.display());
    let shown = path.display();
    // Reading a pipe would block, and a device has no end.
    let bytes = read_regular(path, LIMIT).map_err(refused)?;
    if bytes.len() > LIMIT {
        return Err(format!("{shown}: the file is larger than {LIMIT} bytes"));
    }
    if std::fs::metadata(path).map_err(refused)?.mode() & 0o002 != 0 {
        return Err(format!(
            "{shown}: any user can write to it, so it is not a secret; run: chmod 600 {shown}"
        ));
    }
    String::from_utf8(bytes).map_err(|_| format!("{shown}: it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_from_its_file_and_a_missing_one_names_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let place = Reference::File(path.to_str().unwrap().to_owned());
        assert!(read(&place).unwrap_err().contains("key"));
        std::fs::write(&path, " \n").unwrap();
        assert!(read(&place).unwrap_err().contains("is empty"));
        std::fs::write(&path, "sk-1\n").unwrap();
        assert_eq!(read(&place).unwrap().expose(), "sk-1");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&path, open).unwrap();
        assert!(read(&place).unwrap_err().contains("chmod 600"));
        let folder = Reference::File(folder.path().to_str().unwrap().to_owned());
        assert!(read(&folder).unwrap_err().contains("regular file"));
        let unset = Reference::Variable("ABIDE_TEST_NO_SUCH_KEY".to_owned());
        assert!(read(&unset).unwrap_err().contains("ABIDE_TEST_NO_SUCH_KEY"));
        let credential = Reference::Credential("weather".to_owned());
        assert!(read(&credential).unwrap_err().contains("weather"));
    }
}
