//! `abide backup`: has the daemon copy its store into a file, and checks the copy.

use std::path::PathBuf;

use clap::Args;

use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::print::{GOOD, styled};
use crate::cli::output::text::{clean, size, span};
use crate::wire::maintenance::Backup as Request;

/// Copy the store into a file while the daemon keeps running
///
/// The copy is a consistent snapshot. It is read and checked before it gets its final name, and
/// only its owner can access it. An existing file is never overwritten.
#[derive(Debug, Args)]
#[command(after_help = "abide backup ~/abide.db")]
pub(crate) struct BackupArgs {
    /// Target file [default: one in the state folder's backups, with the time in its name]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
}

impl BackupArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        // The daemon's working directory differs from the client's.
        let path = self
            .path
            .map(|path| {
                std::path::absolute(&path).map_err(|error| Failure::local(path.display(), error))
            })
            .transpose()?;
        let link = DaemonLink::open(&common.place).await?;
        let request = Request {
            path: path.map(|path| path.to_string_lossy().into_owned()),
        };
        let Some(made) = link.ask_or_print(&request, common).await? else {
            return Ok(0);
        };
        print::answer(&clean(&made.path))?;
        let of = |table: &str| made.rows.get(table).copied().unwrap_or(0);
        print::note(&format!(
            "{} {} in {}: {} sessions, {} runs, {} messages; the copy was checked",
            styled(GOOD, "✓"),
            size(made.bytes),
            span(made.took_ms),
            of("sessions"),
            of("runs"),
            of("messages"),
        ));
        let path = clean(&made.path);
        print::note(&format!(
            "restore it: abide stop && abide restore {path} --force"
        ));
        Ok(0)
    }
}
