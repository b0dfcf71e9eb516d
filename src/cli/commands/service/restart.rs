//! `abide service restart`: a new process of the service, such as after its program was replaced.

use clap::Args;
use serde_json::json;

use super::drift::UnitDrift;
use super::{InstalledService, ScopeArgs, came_up};
use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
use crate::cli::link;
use crate::cli::link::discover::Where;
use crate::cli::output::print;

/// Restart the service, and wait until its daemon answers
///
/// The daemon drains first: steps in flight may end, everything else continues in the new process,
/// which is the program that is installed now.
#[derive(Debug, Args)]
#[command(after_help = "abide service restart")]
pub(super) struct RestartArgs {
    #[command(flatten)]
    scope: ScopeArgs,
}

impl RestartArgs {
    pub(super) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let service = InstalledService::find(self.scope, common)?;
        let place = Where::folder(service.folder()?);
        let manager = &*service.manager;
        let drift = UnitDrift::of(manager);
        // A question to a socket at which the manager listens would start the daemon.
        let before = match manager.state()?.running {
            true => link::answering(&place).await,
            false => None,
        };
        let running = before.as_ref().map_or(0, |status| status.counts.running);
        if running > 0 && !common.json {
            let runs = if running == 1 { "run" } else { "runs" };
            print::note(&format!(
                "{running} {runs} may end a step first, and continue in the new process: abide ps"
            ));
        }
        manager.restart()?;
        let boot = before.as_ref().map(|status| status.boot_id);
        let status = came_up::ready(manager, &place, boot).await?;
        let before = before.map(|status| status.version);
        if common.json {
            print::object(&json!({
                "restarted": true,
                "versionBefore": before,
                "daemon": status,
            }))?;
            return Ok(0);
        }
        let version = match before {
            Some(before) if before != status.version => {
                format!("{before} is now {}", status.version)
            }
            _ => status.version.clone(),
        };
        print::folded(&format!(
            "restarted: abide {version}, process {}, {}",
            status.pid, status.url
        ))?;
        if let Some((message, todo)) = drift.message(manager.scope()) {
            print::note(&format!("{message}; {todo}"));
        }
        Ok(0)
    }
}
