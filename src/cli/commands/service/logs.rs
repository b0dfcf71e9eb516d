//! `abide service logs`: the log of the service, from the journal or from its file.

use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;

use super::drift::InstalledUnit;
use super::manager::{self, ServiceLog};
use super::{ScopeArgs, not_installed};
use crate::cli::commands::logs;
use crate::cli::common::Common;
use crate::cli::common::failure::Failure;

/// Show the log of the service
///
/// Under systemd this is journalctl for its unit, under launchd the file that the service names.
#[derive(Debug, Args)]
#[command(after_help = "abide service logs --follow")]
pub(super) struct ServiceLogsArgs {
    #[command(flatten)]
    scope: ScopeArgs,

    /// Follow until Ctrl-C
    #[arg(long, short)]
    follow: bool,

    /// Number of last lines to show
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    lines: usize,
}

impl ServiceLogsArgs {
    pub(super) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let manager = manager::find(self.scope.scope())?;
        if InstalledUnit::find(&*manager).is_none() {
            return Err(not_installed(&*manager));
        }
        match manager.log() {
            ServiceLog::File(path) => logs::daemon::show(&path, self.lines, self.follow).await,
            ServiceLog::Journal(arguments) => {
                let mut command = Command::new("journalctl");
                command.args(arguments);
                command.args(["--lines", &self.lines.to_string()]);
                command.args(["--output", if common.json { "json" } else { "cat" }]);
                command.args(self.follow.then_some("--follow"));
                // journalctl knows the terminal: it pages, and ends at Ctrl-C.
                Err(Failure::local("journalctl", command.exec()))
            }
        }
    }
}
