//! `abide restore`: replaces the store with a backup while no daemon runs.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::output::print;
use crate::cli::output::print::{GOOD, styled};
use crate::cli::output::text::clean;
use crate::daemon::offline::{self, NotRestored};

/// Replace the store with a backup
///
/// The daemon must be stopped. The backup is checked first. The existing store is renamed and kept
/// beside the new one; nothing is deleted. The next start resumes the runs that were open in the
/// backup, and delivers its undelivered announcements again.
#[derive(Debug, Args)]
#[command(after_help = "abide stop && abide restore ~/abide.db --force")]
pub(crate) struct Restore {
    /// The backup file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Replace an existing store, which is set aside
    #[arg(long)]
    force: bool,
}

impl Restore {
    pub(crate) fn run(self, common: &Common) -> Result<u8, Failure> {
        common.place.refuse_address("restore", "--state-dir")?;
        let state = common.place.state_dir()?;
        if !self.file.exists() {
            let file = self.file.display();
            return Err(Failure::new(
                exit::NOT_FOUND,
                "not_found",
                format!("there is no file {file}; nothing was changed"),
            )
            .hint(format!(
                "backups that were made without a path are in {}",
                state.join("backups").display()
            )));
        }
        let placed = offline::restore(&state, &self.file, self.force).map_err(refused)?;
        let of = |table: &str| placed.rows.get(table).copied().unwrap_or(0);
        if common.json {
            print::object(&json!({
                "restored": true,
                "schema": placed.schema,
                "rows": placed.rows,
                "openRuns": placed.open_runs,
                "pendingAnnounces": placed.pending_announces,
                "setAside": placed.set_aside,
            }))?;
            return Ok(0);
        }
        print::answer(&format!(
            "{} restored: {} sessions, {} runs, {} messages",
            styled(GOOD, "✓"),
            of("sessions"),
            of("runs"),
            of("messages")
        ))?;
        if placed.open_runs + placed.pending_announces > 0 {
            print::note(&format!(
                "the next start resumes {} open runs and delivers {} results again",
                placed.open_runs, placed.pending_announces
            ));
        }
        print::note("clients that follow events get a new snapshot: the store has a new id");
        if let Some(aside) = &placed.set_aside {
            let aside = clean(&aside.display().to_string());
            print::note(&format!("the previous store is now\n  {aside}"));
        }
        print::note("start it: abide serve --detach");
        Ok(0)
    }
}

fn refused(why: NotRestored) -> Failure {
    let (code, kind) = match &why {
        NotRestored::Folder(failure) => (failure.exit_code(), "restore"),
        NotRestored::Store(_) => (exit::REFUSED, "restore"),
    };
    let text = why.to_string();
    match text.split_once(". Nothing was changed") {
        Some((what, advice)) => {
            let failure = Failure::new(code, kind, format!("{what}; nothing was changed"));
            match advice.trim_start_matches(['.', ' ']) {
                "" => failure,
                advice => failure.hint(advice),
            }
        }
        None => Failure::new(code, kind, text),
    }
}
