//! `abide service status`: what the service manager knows, whether the daemon answers, and whether unit
//! and program are those of this version.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::drift::UnitDrift;
use super::manager::ServiceState;
use super::{InstalledService, ScopeArgs};
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, skew};
use crate::cli::link;
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
        let service = InstalledService::find(self.scope, common)?;
        let manager = &*service.manager;
        let state = manager.state()?;
        let lingers = manager.lingers();
        // A question to a socket at which the manager listens would start the daemon.
        let status = match service.place().filter(|_| state.running) {
            Some(place) => link::answering(&place).await,
            None => None,
        };
        let drift = UnitDrift::of(manager).message(manager.scope());
        let code = status.as_ref().map_or(exit::NO_DAEMON, |_| 0);
        if common.json {
            print::object(&json!({
                "manager": manager.name(),
                "scope": manager.scope().name(),
                "files": files(&service),
                "package": service.unit.is_of_package,
                "service": state,
                "lingering": lingers,
                "drift": drift.as_ref().map(|(message, _)| message),
                "daemon": status,
            }))?;
            return Ok(code);
        }
        print::folded(&clean(&shown(&service, &state, status.as_ref(), lingers)))?;
        let flag = manager.scope().flag();
        let skew = status.as_ref();
        let skew = skew.and_then(|status| skew::between(status, flag));
        for (message, todo) in drift.into_iter().chain(skew) {
            print::note(&clean(&format!("{message}; {todo}")));
        }
        Ok(code)
    }
}

/// The files of the service that exist.
fn files(service: &InstalledService) -> Vec<PathBuf> {
    let mut files = vec![service.unit.path.clone()];
    let others = service.manager.paths().into_iter().skip(1);
    files.extend(others.filter(|path| path.exists()));
    files
}

fn shown(
    service: &InstalledService,
    state: &ServiceState,
    status: Option<&Status>,
    lingers: Option<bool>,
) -> String {
    let manager = &*service.manager;
    let flag = manager.scope().flag();
    let mut lines = vec![format!(
        "the {} service of {}: {}",
        manager.name(),
        manager.scope().of_whom(),
        state.state
    )];
    if let (Some(code), Some(reason)) = (state.exit_status, state.reason()) {
        lines.push(format!("  failed   exit status {code}: {reason}"));
    }
    let of = match service.unit.is_of_package {
        true => " (of a package)",
        false => "",
    };
    let shown = files(service).into_iter();
    lines.extend(shown.map(|path| format!("  file     {}{of}", path.display())));
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
        None if state.running && service.state.is_none() => {
            "  daemon   not asked: its state folder is not recorded; name it: --state-dir"
                .to_owned()
        }
        None if state.running => {
            format!("  daemon   does not answer; see: abide service logs{flag}")
        }
        None => format!("  daemon   not running; start it: abide service restart{flag}"),
    });
    let start = match (state.enabled, lingers) {
        (Some(false), _) => Some(format!(
            "not by itself; to have it started: abide service install{flag}"
        )),
        (_, Some(false)) => Some(
            "at login, and it ends at logout; to keep it running: loginctl enable-linger"
                .to_owned(),
        ),
        (_, Some(true)) => Some("with the machine, also without a login".to_owned()),
        (Some(true), None) => Some("with the machine, or at the login".to_owned()),
        (None, None) => None,
    };
    lines.extend(start.map(|start| format!("  starts   {start}")));
    if let Some(restarts) = state.restarts.filter(|restarts| *restarts > 0) {
        lines.push(format!(
            "  restarts {restarts}, by {} after failures",
            manager.name()
        ));
    }
    lines.push(format!(
        "  stop     keeps all work; programs of runs go on until their limits, except after: abide \
         service stop{flag} --with-runs"
    ));
    lines.join("\n")
}
