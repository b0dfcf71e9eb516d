//! `abide service uninstall`: stops the service and removes its files. State and settings stay.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::manager::{self, InstallScope};
use super::{ScopeArgs, drift, paths};
use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
use crate::cli::output::print;

/// Stop the service and remove its files
///
/// The state folder stays, with all sessions, runs and keys, and so do the settings. It says where they
/// are, and how to remove them.
#[derive(Debug, Args)]
#[command(after_help = "abide service uninstall")]
pub(super) struct UninstallArgs {
    #[command(flatten)]
    scope: ScopeArgs,
}

impl UninstallArgs {
    pub(super) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let scope = self.scope.scope();
        let manager = manager::find(scope)?;
        let Some(plan) = drift::plan_of(&*manager) else {
            if common.json {
                print::object(&json!({ "uninstalled": false }))?;
            } else {
                print::note(&format!(
                    "nothing to remove: no service of abide is installed for {}",
                    scope.of_whom()
                ));
            }
            return Ok(0);
        };
        manager.disable()?;
        let mut removed = Vec::new();
        for path in manager.paths() {
            if remove(&path)? {
                removed.push(path);
            }
        }
        manager.forget()?;
        let state = match plan.state_dir {
            Some(state) => state,
            None => paths::default_state(scope)?,
        };
        let config = plan.config.or_else(|| match scope {
            InstallScope::User => paths::default_config(),
            InstallScope::Machine => Some(paths::machine_config()),
        });
        let config = config.filter(|config| config.exists());
        if common.json {
            print::object(&json!({
                "uninstalled": true,
                "removed": removed,
                "kept": { "stateDir": state, "config": config },
            }))?;
            return Ok(0);
        }
        let removed: Vec<String> = removed
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        print::folded(&format!("stopped, and removed {}", removed.join(", ")))?;
        print::note(&kept(scope, &state, config.as_deref()));
        Ok(0)
    }
}

/// What stays, and how to remove it.
fn kept(scope: InstallScope, state: &Path, config: Option<&Path>) -> String {
    let mut folders: Vec<PathBuf> = vec![state.to_owned()];
    if scope == InstallScope::Machine {
        folders.push(PathBuf::from("/var/lib/abide-work"));
    }
    folders.extend(config.map(Path::to_owned));
    let shown: Vec<String> = folders
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let sudo = if scope == InstallScope::Machine {
        "sudo "
    } else {
        ""
    };
    format!(
        "kept: sessions, runs, keys and tokens in {}{}. Open runs continue with the next start. Programs \
         of runs go on until their time limit. To remove all of it for good: {sudo}rm -r {}",
        state.display(),
        config.map_or(String::new(), |config| format!(
            ", settings in {}",
            config.display()
        )),
        shown.join(" ")
    )
}

/// Removes the file; false if there is none.
pub(super) fn remove(path: &Path) -> Result<bool, Failure> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(fault) if fault.kind() == ErrorKind::NotFound => Ok(false),
        Err(fault) => Err(Failure::local(path.display(), fault)),
    }
}
