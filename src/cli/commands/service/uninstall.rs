//! `abide service uninstall`: stops the service and removes its files. State and settings stay.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::drift::InstalledUnit;
use super::manager::{self, InstallScope};
use super::plan::ServicePlan;
use super::{ScopeArgs, paths};
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
        let Some(unit) = InstalledUnit::find(&*manager) else {
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
        let kept = unit
            .plan
            .map(|plan| KeptFiles::of(scope, plan))
            .transpose()?;
        if common.json {
            print::object(&json!({
                "uninstalled": true,
                "removed": removed,
                "kept": kept,
            }))?;
            return Ok(0);
        }
        let removed: Vec<String> = removed
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let path = unit.path.display();
        print::folded(&match unit.is_of_package {
            true => format!("stopped and disabled; {path} belongs to a package, which removes it"),
            false => format!("stopped, and removed {}", removed.join(", ")),
        })?;
        print::note(&match kept {
            Some(kept) => kept.message(scope),
            None => format!(
                "kept: the state folder with sessions, runs and keys, and the settings. {path} had no \
                 record of abide service install, so where they are is not known here"
            ),
        });
        Ok(0)
    }
}

/// What an uninstallation leaves behind.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct KeptFiles {
    /// The state folder.
    state_dir: PathBuf,
    /// The settings file, if there is one.
    config: Option<PathBuf>,
}

impl KeptFiles {
    /// That of a service with this plan.
    fn of(scope: InstallScope, plan: ServicePlan) -> Result<KeptFiles, Failure> {
        let state_dir = match plan.state_dir {
            Some(state) => state,
            None => paths::default_state(scope)?,
        };
        let config = plan.config.or_else(|| match scope {
            InstallScope::User => paths::default_config(),
            InstallScope::Machine => Some(paths::machine_config()),
        });
        Ok(KeptFiles {
            state_dir,
            config: config.filter(|config| config.exists()),
        })
    }

    /// What stays, and how to remove it.
    fn message(&self, scope: InstallScope) -> String {
        let (sudo, work) = match scope {
            InstallScope::Machine => ("sudo ", Some(Path::new(paths::MACHINE_WORK))),
            InstallScope::User => ("", None),
        };
        let paths = [Some(self.state_dir.as_path()), work, self.config.as_deref()];
        let shown: Vec<String> = paths
            .into_iter()
            .flatten()
            .map(|path| path.display().to_string())
            .collect();
        let settings = self.config.as_ref().map_or(String::new(), |config| {
            format!(", settings in {}", config.display())
        });
        format!(
            "kept: sessions, runs, keys and tokens in {}{settings}. Open runs continue with the next \
             start. Programs of runs go on until their limits. To remove all of it for good: {sudo}rm \
             -r {}",
            self.state_dir.display(),
            shown.join(" ")
        )
    }
}

/// Removes the file; false if there is none.
pub(super) fn remove(path: &Path) -> Result<bool, Failure> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(fault) if fault.kind() == ErrorKind::NotFound => Ok(false),
        Err(fault) => Err(Failure::local(path.display(), fault)),
    }
}
