//! Compares the installed files of a service with those that this program would write.

use std::fs;
use std::path::{Path, PathBuf};

use super::launchd::Launchd;
use super::manager::{InstallScope, ServiceManager};
use super::paths;
use super::plan::ServicePlan;
use super::systemd::Systemd;
use crate::cli::common::Common;
use crate::contract::finding::{Finding, Health};

/// How the installed files relate to this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UnitDrift {
    /// Nothing is installed.
    NotInstalled,
    /// They are what this program would write.
    None,
    /// The first was written by hand or by another tool.
    Foreign(PathBuf),
    /// These differ, or are missing.
    Differs(Vec<PathBuf>),
    /// The program that the service starts does not exist.
    NoProgram(PathBuf),
}

/// The unit of a service that is installed.
pub(super) struct InstalledUnit {
    /// Its file.
    pub(super) path: PathBuf,
    /// A package has put it there, and removes it.
    pub(super) is_of_package: bool,
    /// What it was written with, which is nothing for the unit of a package; `None` if it was written by
    /// hand or by another tool, so that its folders are unknown.
    pub(super) plan: Option<ServicePlan>,
    text: String,
}

impl InstalledUnit {
    /// The unit that the manager uses; `None` if there is none. A file that cannot be read counts as one
    /// that was written by hand.
    pub(super) fn find(manager: &dyn ServiceManager) -> Option<InstalledUnit> {
        let own = manager.paths().into_iter().take(1);
        let own = own.map(|path| (path, false));
        let packages = manager.paths_of_packages().into_iter();
        let mut paths = own.chain(packages.map(|path| (path, true)));
        let (path, is_of_package) = paths.find(|(path, _)| path.exists())?;
        let text = fs::read_to_string(&path).unwrap_or_default();
        let shipped = || manager.is_shipped(&text).then(ServicePlan::default);
        Some(InstalledUnit {
            plan: manager.recorded(&text).or_else(shipped),
            path,
            is_of_package,
            text,
        })
    }
}

impl UnitDrift {
    /// The drift of the service of this manager.
    pub(super) fn of(manager: &dyn ServiceManager) -> UnitDrift {
        let Some(unit) = InstalledUnit::find(manager) else {
            return UnitDrift::NotInstalled;
        };
        if manager.is_shipped(&unit.text) {
            return UnitDrift::None;
        }
        let Some(plan) = unit.plan.filter(|_| !unit.is_of_package) else {
            return UnitDrift::Foreign(unit.path);
        };
        if !plan.program.exists() {
            return UnitDrift::NoProgram(plan.program);
        }
        let files = manager.files(&plan).unwrap_or_default();
        let wanted = |path: &Path| files.iter().find(|file| file.path == path);
        let differs = manager.paths().into_iter().filter(|path| {
            let found = fs::read_to_string(path).ok();
            found.as_ref() != wanted(path).map(|file| &file.text)
        });
        match differs.collect::<Vec<_>>() {
            none if none.is_empty() => UnitDrift::None,
            differs => UnitDrift::Differs(differs),
        }
    }

    /// What an operator should know and do; `None` if there is nothing to do.
    pub(super) fn message(&self, scope: InstallScope) -> Option<(String, String)> {
        let flag = scope.flag();
        let again = format!("write it again: abide service install{flag}");
        match self {
            UnitDrift::NotInstalled | UnitDrift::None => None,
            UnitDrift::Foreign(path) => Some((
                format!(
                    "{} was not written by abide service install, so it is not compared with this \
                     version",
                    path.display()
                ),
                format!("{again}, and put what you have changed into a drop-in"),
            )),
            UnitDrift::Differs(paths) => {
                let paths: Vec<String> = paths
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect();
                Some((
                    format!(
                        "the installed unit differs from what this version of abide would write ({})",
                        paths.join(", ")
                    ),
                    format!("{again}; changes of your own belong into a drop-in"),
                ))
            }
            UnitDrift::NoProgram(program) => Some((
                format!(
                    "the service starts {}, which does not exist",
                    program.display()
                ),
                again,
            )),
        }
    }
}

/// The findings on the services that are installed for this state folder, for `abide doctor`. Asks no
/// service manager.
pub(crate) fn findings(common: &Common) -> Vec<Finding> {
    let scopes = [InstallScope::User, InstallScope::Machine];
    let systemd = scopes.map(|scope| Systemd::unasked(scope).map(|one| Box::new(one) as _));
    let launchd = Launchd::unasked(InstallScope::User).map(|one| Box::new(one) as _);
    let managers: Vec<Box<dyn ServiceManager>> =
        systemd.into_iter().chain([launchd]).flatten().collect();
    let state = common.place.state_dir().ok();
    let mut findings = Vec::new();
    for manager in managers {
        let scope = manager.scope();
        let Some(unit) = InstalledUnit::find(&*manager) else {
            continue;
        };
        // One whose folder is unknown may be of this folder.
        let of_state = unit.plan.as_ref().map(|plan| plan.state_dir.clone());
        let of_state = of_state.map(|named| named.or_else(|| paths::default_state(scope).ok()));
        if of_state.is_some_and(|of_state| of_state != state) {
            continue;
        }
        let drift = UnitDrift::of(&*manager);
        findings.push(finding(&drift, scope, &unit.path.display().to_string()));
    }
    findings
}

fn finding(drift: &UnitDrift, scope: InstallScope, path: &str) -> Finding {
    let id = "service.unit";
    match drift.message(scope) {
        None => Finding::new(
            id,
            Health::Ok,
            format!("{path} is what this version of abide writes"),
        ),
        Some((message, fix)) => {
            let health = match drift {
                UnitDrift::NoProgram(_) => Health::Fail,
                _ => Health::Warn,
            };
            Finding::new(id, health, message).fix(fix)
        }
    }
}
