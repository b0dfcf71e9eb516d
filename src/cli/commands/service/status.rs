//! `abide service status`: what the service manager knows, whether the daemon answers, and whether unit
//! and program are those of this version.

use clap::Args;
use serde_json::json;

use super::drift::UnitDrift;
use super::manager::{self, ServiceManager, ServiceState};
use super::{ScopeArgs, came_up, installed, not_installed};
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, skew};
use crate::cli::output::print;
use crate::cli::output::text::{clean, span};
use crate::wire::gateway::Status;

/// Show the service and whether its daemon answers
///
/// Exits with 3 if no service is installed, and with 10 if its daemon does not answer.
#[derive(Debug, Args)]
#[command(after_help = "abide service status
abide service status --json")]
pub(super) struct ServiceStatusArgs {
    #[command(flatten)]
    scope: ScopeArgs,
}

impl ServiceStatusArgs {
    pub(super) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let scope = self.scope.scope();
        let manager = manager::find(scope)?;
        let drift = UnitDrift::of(&*manager);
        if drift == UnitDrift::NotInstalled {
            return Err(not_installed(&*manager));
        }
        let (manager, place) = installed(self.scope)?;
        let state = manager.state()?;
        let lingers = manager.lingers();
        // A question to a socket at which the manager listens would start the daemon.
        let status = match state.running {
            true => came_up::answering(&place).await,
            false => None,
        };
        let drift = drift.message(scope);
        let code = status.as_ref().map_or(exit::NO_DAEMON, |_| 0);
        if common.json {
            print::object(&json!({
                "manager": manager.name(),
                "scope": scope.name(),
                "files": manager.paths().into_iter().filter(|path| path.exists()).collect::<Vec<_>>(),
                "service": state,
                "lingering": lingers,
                "drift": drift.as_ref().map(|(message, _)| message),
                "daemon": status,
            }))?;
            return Ok(code);
        }
        print::folded(&clean(&shown(&*manager, &state, status.as_ref(), lingers)))?;
        let skew = status.as_ref().and_then(skew::between);
        for (message, todo) in drift.into_iter().chain(skew) {
            print::note(&clean(&format!("{message}; {todo}")));
        }
        Ok(code)
    }
}

fn shown(
    manager: &dyn ServiceManager,
    state: &ServiceState,
    status: Option<&Status>,
    lingers: Option<bool>,
) -> String {
    let mut lines = vec![format!(
        "the {} service of {}: {}",
        manager.name(),
        manager.scope().of_whom(),
        state.state
    )];
    let files = manager.paths().into_iter().filter(|path| path.exists());
    lines.extend(files.map(|path| format!("  file     {}", path.display())));
    lines.push(match status {
        Some(status) => format!(
            "  daemon   abide {} is {}: process {}, up {}, {}",
            status.version,
            status.phase,
            status.pid,
            span(status.uptime_ms),
            status.url
        ),
        None if state.listening == Some(true) => {
            "  daemon   not running; the first connection starts it".to_owned()
        }
        None if state.running => "  daemon   does not answer; see: abide service logs".to_owned(),
        None => "  daemon   not running; start it: abide service restart".to_owned(),
    });
    let start = match (state.enabled, lingers) {
        (Some(false), _) => Some("not enabled: start it with abide service restart"),
        (_, Some(false)) => {
            Some("at login, and it ends at logout; to keep it running: loginctl enable-linger")
        }
        (_, Some(true)) => Some("with the machine, also without a login"),
        (Some(true), None) => Some("with the machine, or at the login"),
        (None, None) => None,
    };
    lines.extend(start.map(|start| format!("  starts   {start}")));
    if let Some(restarts) = state.restarts.filter(|restarts| *restarts > 0) {
        lines.push(format!(
            "  restarts {restarts}, by {} after failures",
            manager.name()
        ));
    }
    lines.push(
        "  stop     keeps all work; programs of runs go on until their time limit, except after: abide \
         service stop --with-runs"
            .to_owned(),
    );
    lines.join("\n")
}
