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

impl UnitDrift {
    /// The drift of the service of this manager.
    pub(super) fn of(manager: &dyn ServiceManager) -> UnitDrift {
        let paths = manager.paths();
        let Some(service) = paths.first().filter(|path| path.exists()) else {
            return UnitDrift::NotInstalled;
        };
        let text = fs::read_to_string(service).unwrap_or_default();
        if manager.is_shipped(&text) {
            return UnitDrift::None;
        }
        let Some(plan) = manager.recorded(&text) else {
            return UnitDrift::Foreign(service.clone());
        };
        if !plan.program.exists() {
            return UnitDrift::NoProgram(plan.program);
        }
        let files = manager.files(&plan).unwrap_or_default();
        let wanted = |path: &Path| files.iter().find(|file| file.path == path);
        let differs = paths.into_iter().filter(|path| {
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

/// The plan that the installed service was written with, as far as it is known; `None` if nothing is
/// installed.
pub(super) fn plan_of(manager: &dyn ServiceManager) -> Option<ServicePlan> {
    let text = fs::read_to_string(manager.paths().first()?).ok()?;
    Some(manager.recorded(&text).unwrap_or_default())
}

/// The findings on the services that are installed for this state folder, for `abide doctor`. Asks no
/// service manager.
pub(crate) fn findings(common: &Common) -> Vec<Finding> {
    let managers: [Option<Box<dyn ServiceManager>>; 3] = [
        Systemd::unasked(InstallScope::User)
            .ok()
            .map(|one| Box::new(one) as _),
        Systemd::unasked(InstallScope::Machine)
            .ok()
            .map(|one| Box::new(one) as _),
        Launchd::unasked().ok().map(|one| Box::new(one) as _),
    ];
    let state = common.place.state_dir().ok();
    let mut findings = Vec::new();
    for manager in managers.into_iter().flatten() {
        let scope = manager.scope();
        let drift = UnitDrift::of(&*manager);
        let of_state = plan_of(&*manager).and_then(|plan| plan.state_dir);
        let of_state = of_state.or_else(|| paths::default_state(scope).ok());
        if drift == UnitDrift::NotInstalled || of_state != state {
            continue;
        }
        let path = manager
            .paths()
            .first()
            .map(|path| path.display().to_string());
        findings.push(finding(&drift, scope, &path.unwrap_or_default()));
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
