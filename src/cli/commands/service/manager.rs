//! What the service managers have in common: the files of a service, its state, start and stop, and
//! the commands of the manager itself.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::launchd::Launchd;
use super::plan::ServicePlan;
use super::systemd::Systemd;
use crate::cli::common::failure::{Failure, exit};

/// Whose service it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstallScope {
    /// Of one user, in that user's service manager.
    User,
    /// Of the machine, in the system's service manager.
    Machine,
}

impl InstallScope {
    /// The flag that selects it, for commands in messages; empty for the default.
    pub(super) fn flag(self) -> &'static str {
        match self {
            InstallScope::User => "",
            InstallScope::Machine => " --system",
        }
    }

    /// `user` or `system`.
    pub(super) fn name(self) -> &'static str {
        match self {
            InstallScope::User => "user",
            InstallScope::Machine => "system",
        }
    }

    /// For whom, as part of a sentence.
    pub(super) fn of_whom(self) -> &'static str {
        match self {
            InstallScope::User => "this user",
            InstallScope::Machine => "the machine",
        }
    }
}

/// A file that installs a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceFile {
    /// Where the manager reads it.
    pub(super) path: PathBuf,
    /// Its whole content.
    pub(super) text: String,
}

/// What a manager knows of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServiceState {
    /// It starts with the machine or at login; `None` if the manager does not say.
    pub(super) enabled: Option<bool>,
    /// The manager's own words, such as `active (running)`.
    pub(super) state: String,
    /// It runs, or is being started.
    pub(super) running: bool,
    /// It has failed, and is not started again.
    pub(super) failed: bool,
    /// Process id of the daemon.
    pub(super) pid: Option<u32>,
    /// Exit status of the last process that ended.
    pub(super) exit_status: Option<u8>,
    /// How often the manager has started it again.
    pub(super) restarts: Option<u64>,
    /// Whether the manager listens for it; `None` without socket activation.
    pub(super) listening: Option<bool>,
}

impl ServiceState {
    /// Why the daemon has failed, in words; `None` if it has not, or if only its log says.
    pub(super) fn reason(&self) -> Option<&'static str> {
        match self.exit_status.filter(|_| self.failed)? {
            exit::HELD => Some("the folder, the port or the store is in use"),
            exit::PERMISSION => Some("it has no permission"),
            exit::CONFIG => Some("its settings are invalid"),
            exit::STORE => Some("its store cannot be used"),
            _ => None,
        }
    }
}

/// A service manager, for one scope.
pub(super) trait ServiceManager {
    /// Its name: `systemd` or `launchd`.
    fn name(&self) -> &'static str;

    /// The scope.
    fn scope(&self) -> InstallScope;

    /// Every file that this program writes for this plan, the service itself first.
    fn files(&self, plan: &ServicePlan) -> Result<Vec<ServiceFile>, Failure>;

    /// The paths of all files that a plan may have, the service itself first.
    fn paths(&self) -> Vec<PathBuf>;

    /// The paths at which packages put the service, in the order in which the manager reads them, after
    /// those of [`ServiceManager::paths`].
    fn paths_of_packages(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// The plan that is recorded in the text of an installed file; `None` if it has none.
    fn recorded(&self, text: &str) -> Option<ServicePlan>;

    /// Is the text the file of a package, installed as it is but for the path of the program?
    fn is_shipped(&self, text: &str) -> bool;

    /// Once this returns, the manager has read the files, starts the service with the machine or at
    /// login, and has started it now. `with_sockets`: the manager listens for it.
    fn enable(&self, with_sockets: bool) -> Result<(), Failure>;

    /// Once this returns, the manager has been asked for a new process of the service.
    fn restart(&self) -> Result<(), Failure>;

    /// Once this returns, the daemon has ended and is not started again before the next boot or login.
    fn stop(&self) -> Result<(), Failure>;

    /// Once this returns, the daemon has ended, and the manager no longer starts it. Files stay.
    fn disable(&self) -> Result<(), Failure>;

    /// Once this returns, the manager does nothing more because of this file, which is about to be
    /// removed while the service stays.
    fn retire(&self, _: &Path) -> Result<(), Failure> {
        Ok(())
    }

    /// Once this returns, the manager has noticed that files were removed.
    fn forget(&self) -> Result<(), Failure>;

    /// The state of the service.
    fn state(&self) -> Result<ServiceState, Failure>;

    /// Whether services of this user go on without a login; `None` if that is no question here.
    fn lingers(&self) -> Option<bool> {
        None
    }

    /// Once this returns, services of this user go on without a login.
    fn linger(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Where its log is.
    fn log(&self) -> ServiceLog;
}

/// Where a service's log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServiceLog {
    /// `journalctl` with these arguments shows it.
    Journal(Vec<String>),
    /// A file.
    File(PathBuf),
}

/// The service manager of this machine, without asking whether it runs, to look at its files.
pub(super) fn unasked(scope: InstallScope) -> Result<Box<dyn ServiceManager>, Failure> {
    if cfg!(target_os = "macos") || is_on_path("launchctl") {
        return Launchd::unasked(scope).map(|manager| Box::new(manager) as _);
    }
    Systemd::unasked(scope).map(|manager| Box::new(manager) as _)
}

/// The service manager of this machine. The failure says how to run the daemon without one.
pub(super) fn find(scope: InstallScope) -> Result<Box<dyn ServiceManager>, Failure> {
    if is_on_path("launchctl") {
        return Launchd::open(scope).map(|manager| Box::new(manager) as _);
    }
    Systemd::open(scope).map(|manager| Box::new(manager) as _)
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The failure where no service manager runs; nothing was changed.
pub(super) fn none(why: &str) -> Failure {
    let message = format!("no service manager can be used here: {why}. Nothing was changed");
    Failure::new(exit::REFUSED, "no_service_manager", message)
        .hint(
            "run the daemon in the foreground under what starts your programs (a container, runit, \
             supervisord; set ABIDE_SUPERVISOR to its name): abide serve",
        )
        .hint("or in the background until the machine stops: abide serve --detach")
}

/// The result of a command of the service manager.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolOutput {
    /// Whether it exited with 0.
    pub(super) ok: bool,
    /// Its exit status; `None` if a signal ended it.
    pub(super) code: Option<i32>,
    /// Its standard output, trimmed.
    pub(super) out: String,
    /// Its standard error, trimmed.
    pub(super) err: String,
}

/// Runs a command of the service manager to its end.
pub(super) fn ask(program: &str, arguments: &[&str]) -> Result<ToolOutput, Failure> {
    let mut command = Command::new(program);
    let output = command.args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|fault| match fault.kind() {
        ErrorKind::NotFound => none(&format!("there is no {program}")),
        _ => Failure::local(program, fault),
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(ToolOutput {
        ok: output.status.success(),
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    })
}

/// As [`ask`], but any other exit status than 0 is a failure with what the command wrote.
pub(super) fn tell(program: &str, arguments: &[&str]) -> Result<ToolOutput, Failure> {
    let output = ask(program, arguments)?;
    if output.ok {
        return Ok(output);
    }
    Err(refused(program, arguments, &output))
}

/// The failure of a command that did not exit with 0.
pub(super) fn refused(program: &str, arguments: &[&str], output: &ToolOutput) -> Failure {
    let said = if output.err.is_empty() {
        &output.out
    } else {
        &output.err
    };
    let command = format!("{program} {}", arguments.join(" "));
    Failure::new(
        exit::FAILED,
        "service_manager",
        format!("`{command}` failed: {said}"),
    )
}
