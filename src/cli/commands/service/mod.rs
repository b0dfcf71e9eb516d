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

use clap::{Args, Subcommand};

use self::manager::{InstallScope, ServiceManager};
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link::discover::Where;

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

    /// The service of the whole machine; needs root
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

/// The service manager, and the installed service's daemon.
fn installed(scope: ScopeArgs) -> Result<(Box<dyn ServiceManager>, Where), Failure> {
    let manager = manager::find(scope.scope())?;
    let Some(plan) = drift::plan_of(&*manager) else {
        return Err(not_installed(&*manager));
    };
    let state = match plan.state_dir {
        Some(state) => state,
        None => paths::default_state(scope.scope())?,
    };
    Ok((manager, Where::folder(&state)))
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
