//! The paths of a service: the program at a place that an upgrade keeps, and the default folders.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::manager::InstallScope;
use crate::cli::common::failure::Failure;

/// The file with variables of the user's service that are secret.
pub(super) const SECRETS: &str = "~/.config/abide/service.env";
/// The state folder of the machine-wide service.
pub(super) const MACHINE_STATE: &str = "/var/lib/abide";
/// The working folder of the machine-wide service, beside its state.
pub(super) const MACHINE_WORK: &str = "/var/lib/abide-work";
/// Folders that the machine-wide unit hides or replaces (`ProtectHome`, `PrivateTmp`).
const HIDDEN: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];
/// Folders of build and package tools, whose content is replaced or cleaned.
const PASSING: [&str; 6] = ["target", "_npx", ".cache", "tmp", "archive-v0", "builds-v0"];

/// The path of this program that the service gets, and remarks about it. A link that is on the PATH is
/// preferred to the file that it leads to: an upgrade changes the link.
pub(super) fn program() -> Result<(PathBuf, Vec<String>), Failure> {
    let file = env::current_exe()
        .and_then(|path| path.canonicalize())
        .map_err(|fault| Failure::local("the path of this program is unknown", fault))?;
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = env::split_paths(&path).collect();
    if let Some(home) = env::home_dir() {
        places.extend([home.join(".cargo/bin"), home.join(".local/bin")]);
    }
    places.extend(["/usr/local/bin", "/usr/bin"].map(PathBuf::from));
    let chosen = stable(&file, &places);
    let mut remarks = Vec::new();
    if chosen != file {
        remarks.push(format!(
            "the program is {}, a link to {}: an upgrade that changes the link is followed",
            chosen.display(),
            file.display()
        ));
    } else if let Some(folder) = passing(&file) {
        remarks.push(format!(
            "the program is {}, below {folder}, whose content a tool replaces or removes: copy it to \
             a folder such as ~/.local/bin and install the service from there",
            file.display()
        ));
    }
    Ok((chosen, remarks))
}

/// The first link in `places` that leads to `file`, else `file`.
fn stable(file: &Path, places: &[PathBuf]) -> PathBuf {
    let Some(name) = file.file_name() else {
        return file.to_owned();
    };
    let names = [Path::new("abide"), Path::new(name)];
    let links = places
        .iter()
        .filter(|place| place.is_absolute())
        .flat_map(|place| names.map(|name| place.join(name)));
    let mut links = links.filter(|path| {
        // `/bin` is often a link to `/usr/bin`: that is no other place of the program.
        let is_elsewhere = path.as_path() != file && fs::symlink_metadata(path).is_ok();
        let is_link = fs::read_link(path).is_ok();
        is_elsewhere && is_link && path.canonicalize().is_ok_and(|found| found == file)
    });
    links.next().unwrap_or_else(|| file.to_owned())
}

fn passing(file: &Path) -> Option<String> {
    let mut parts = file.parent()?.components();
    let found = parts.find(|part| PASSING.iter().any(|name| part.as_os_str() == *name))?;
    Some(found.as_os_str().to_string_lossy().into_owned())
}

/// Why the machine-wide service, which has a user of its own, cannot start this program; `None` if it can.
pub(super) fn closed_to_machine(program: &Path) -> Option<String> {
    let file = program
        .canonicalize()
        .unwrap_or_else(|_| program.to_owned());
    let hidden = |path: &Path| HIDDEN.into_iter().find(|folder| path.starts_with(folder));
    for path in [program, &file] {
        if let Some(folder) = hidden(path) {
            return Some(format!(
                "{} is below {folder}, which the service does not see",
                path.display()
            ));
        }
    }
    let others_may =
        |path: &Path| fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o001 != 0);
    let folders = program.ancestors().chain(file.ancestors()).skip(1);
    let mut closed = folders.filter(|path| *path != file && !others_may(path));
    if let Some(folder) = closed.next() {
        return Some(format!(
            "the service's user may not enter {}",
            folder.display()
        ));
    }
    (!others_may(&file)).then(|| format!("the service's user may not execute {}", file.display()))
}

/// The state folder of a service that names none.
pub(super) fn default_state(scope: InstallScope) -> Result<PathBuf, Failure> {
    match scope {
        InstallScope::User => Ok(home()?.join(".local/state/abide")),
        InstallScope::Machine => Ok(PathBuf::from(MACHINE_STATE)),
    }
}

/// The configuration file of a user's service that names none.
pub(super) fn default_config() -> Option<PathBuf> {
    Some(env::home_dir()?.join(".config/abide/abide.toml"))
}

/// The configuration file of the machine-wide service.
pub(super) fn machine_config() -> PathBuf {
    PathBuf::from("/etc/abide/abide.toml")
}

/// The home folder of this user.
pub(super) fn home() -> Result<PathBuf, Failure> {
    env::home_dir()
        .ok_or_else(|| Failure::usage("the home folder of this user is unknown").hint("set HOME"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_on_the_path_is_preferred_to_the_versioned_file() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let (versioned, bin, other) =
            (folder.join("abide-1"), folder.join("bin"), folder.join("o"));
        for folder in [&versioned, &bin, &other] {
            fs::create_dir(folder).unwrap();
        }
        let file = versioned.join("abide");
        fs::write(&file, "").unwrap();
        let places = [other.clone(), bin.clone()];
        assert_eq!(stable(&file, &places), file);
        // A program of the same name that is another one is not chosen.
        fs::write(other.join("abide"), "").unwrap();
        symlink(&file, bin.join("abide")).unwrap();
        assert_eq!(stable(&file, &places), bin.join("abide"));
        // A copy on the path is the program itself.
        assert_eq!(stable(&other.join("abide"), &places), other.join("abide"));
    }

    #[test]
    fn a_program_that_the_user_of_the_machine_wide_service_cannot_start_is_found() {
        for folder in HIDDEN {
            let path = Path::new(folder).join("bin/abide");
            let why = closed_to_machine(&path).unwrap();
            assert!(why.contains("does not see"), "{why}");
        }
        // A program of every machine.
        assert_eq!(closed_to_machine(Path::new("/bin/sh")), None);
    }

    #[test]
    fn a_program_in_a_folder_that_a_tool_cleans_is_remarked() {
        for (path, folder) in [
            ("/srv/abide/target/release/abide", Some("target")),
            ("/srv/a/.npm/_npx/17/node_modules/abide", Some("_npx")),
            ("/usr/local/bin/abide", None),
        ] {
            assert_eq!(passing(Path::new(path)).as_deref(), folder);
        }
    }
}
