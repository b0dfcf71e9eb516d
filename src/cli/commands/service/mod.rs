//! `abide service`: the daemon as a service of systemd or launchd. `manager.rs` is what both have in
//! common; a file for each command.

mod came_up;
mod drift;
mod install;
mod launchd;
mod logs;
mod manager;
mod paths;
mod plan;
mod plist;
mod restart;
mod status;
mod stop;
mod systemd;
mod uninstall;
mod unit;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use self::drift::InstalledUnit;
use self::manager::{InstallScope, ServiceManager};
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link;
use crate::cli::link::discover::Where;
use crate::daemon::offline;

pub(crate) use drift::findings;

/// Run the daemon as a service of systemd or launchd
///
/// A service starts with the machine or at login, is started again after a crash, and keeps its log.
/// Stopping it keeps all accepted work; the next start continues it.
#[derive(Debug, Args)]
#[command(after_help = "abide service install
abide service status
abide service restart")]
pub(crate) struct ServiceArgs {
    #[command(subcommand)]
    what: ServiceCommand,
}

#[derive(Debug, Subcommand)]
enum ServiceCommand {
    Install(install::InstallArgs),
    Uninstall(uninstall::UninstallArgs),
    Status(status::ServiceStatusArgs),
    Restart(restart::RestartArgs),
    Logs(logs::ServiceLogsArgs),
    Stop(stop::ServiceStopArgs),
}

impl ServiceArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        common.place.refuse_address("service", "--state-dir")?;
        match self.what {
            ServiceCommand::Install(command) => command.run(common).await,
            ServiceCommand::Uninstall(command) => command.run(common).await,
            ServiceCommand::Status(command) => command.run(common).await,
            ServiceCommand::Restart(command) => command.run(common).await,
            ServiceCommand::Logs(command) => command.run(common).await,
            ServiceCommand::Stop(command) => command.run(common).await,
        }
    }
}

/// Flags that select the service.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ScopeArgs {
    /// The service of this user, which is the default
    #[arg(long)]
    user: bool,

    /// The service of the whole machine, under systemd; needs root
    #[arg(long, conflicts_with = "user")]
    system: bool,
}

impl ScopeArgs {
    fn scope(self) -> InstallScope {
        match self.system {
            true => InstallScope::Machine,
            false => InstallScope::User,
        }
    }
}

/// A service that is installed.
struct InstalledService {
    manager: Box<dyn ServiceManager>,
    unit: InstalledUnit,
    /// Its state folder; `None` if the unit has no record of it and none was named.
    state: Option<PathBuf>,
}

impl InstalledService {
    /// The service of this scope.
    fn find(scope: ScopeArgs, common: &Common) -> Result<InstalledService, Failure> {
        let scope = scope.scope();
        let manager = manager::find(scope)?;
        let unit = InstalledUnit::find(&*manager).ok_or_else(|| not_installed(&*manager))?;
        let state = match &unit.plan {
            Some(plan) => Some(match &plan.state_dir {
                Some(state) => state.clone(),
                None => paths::default_state(scope)?,
            }),
            None if common.place.names_folder() => Some(common.place.state_dir()?),
            None => None,
        };
        Ok(InstalledService {
            manager,
            unit,
            state,
        })
    }

    /// Its daemon, if the state folder is known.
    fn place(&self) -> Option<Where> {
        self.state.as_deref().map(Where::folder)
    }

    /// Its state folder, for a command that speaks to the daemon.
    fn folder(&self) -> Result<&Path, Failure> {
        self.state.as_deref().ok_or_else(|| {
            let message = format!(
                "{} has no record of abide service install, so the state folder of its daemon is \
                 unknown. Nothing was changed",
                self.unit.path.display()
            );
            let flag = self.manager.scope().flag();
            Failure::new(exit::REFUSED, "unknown_folder", message)
                .hint("name the folder: --state-dir DIR")
                .hint(format!(
                    "or write the unit again: abide service install{flag}"
                ))
        })
    }
}

/// Fails if a daemon that is not this service runs on the folder: both would fight for it.
async fn refuse_other_daemon(manager: &dyn ServiceManager, state: &Path) -> Result<(), Failure> {
    if !offline::is_held(state) || manager.state()?.running {
        return Ok(());
    }
    let process = match link::answering(&Where::folder(state)).await {
        Some(status) => format!(" (process {})", status.pid),
        None => String::new(),
    };
    let message = format!(
        "a daemon that was started by hand runs on {}{process}. Nothing was changed",
        state.display()
    );
    Err(
        Failure::new(exit::REFUSED, "daemon_running", message).hint(format!(
            "stop it, and its runs continue in the service: abide stop && abide service install{}",
            manager.scope().flag()
        )),
    )
}

fn not_installed(manager: &dyn ServiceManager) -> Failure {
    let flag = manager.scope().flag();
    let message = format!(
        "no service of abide is installed for {}",
        manager.scope().of_whom()
    );
    Failure::new(exit::NOT_FOUND, "not_installed", message)
        .hint(format!("install it: abide service install{flag}"))
}
