//! `abide restore`: replaces the store with a backup while no daemon runs.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::output::print;
use crate::cli::output::print::{GOOD, styled};
use crate::cli::output::text::clean;
use crate::config::SettingsSource;
use crate::daemon::offline::{self, NotRestored};

/// Replace the store with a backup
///
/// The daemon must be stopped. The backup is checked first. The existing store is renamed and kept
/// beside the new one; nothing is deleted. The next start resumes the runs that were open in the
/// backup, and delivers its undelivered announcements again.
#[derive(Debug, Args)]
#[command(after_help = "abide stop && abide restore ~/abide.db --force
abide stop && abide restore --latest --force")]
pub(crate) struct Restore {
    /// The backup file
    #[arg(value_name = "FILE", required_unless_present = "latest")]
    file: Option<PathBuf>,

    /// Take the newest intact backup of the state folder and of storage.backup_dir
    #[arg(long, conflicts_with = "file")]
    latest: bool,

    /// Replace an existing store, which is set aside
    #[arg(long)]
    force: bool,
}

impl Restore {
    pub(crate) fn run(self, common: &Common) -> Result<u8, Failure> {
        common.place.refuse_address("restore", "--state-dir")?;
        let state = common.place.state_dir()?;
        let file = match self.file {
            Some(file) => file,
            None => latest(&state)?,
        };
        if !file.exists() {
            let file = file.display();
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
        let placed = offline::restore(&state, &file, self.force).map_err(refused)?;
        let of = |table: &str| placed.rows.get(table).copied().unwrap_or(0);
        if common.json {
            print::object(&json!({
                "restored": true,
                "file": file,
                "schema": placed.schema,
                "rows": placed.rows,
                "openRuns": placed.open_runs,
                "pendingAnnounces": placed.pending_announces,
                "setAside": placed.set_aside,
            }))?;
            return Ok(0);
        }
        if self.latest {
            print::note(&clean(&format!("the newest backup is {}", file.display())));
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

/// The newest intact backup: of the state folder, or of the folder that the settings name.
fn latest(state: &Path) -> Result<PathBuf, Failure> {
    let settings = SettingsSource::find(None).load();
    let folder = settings.ok().and_then(|loaded| loaded.config.backup_dir);
    offline::newest_copy(state, folder.as_deref()).ok_or_else(|| {
        Failure::new(
            exit::NOT_FOUND,
            "not_found",
            format!(
                "there is no intact backup of {}; nothing was changed",
                state.display()
            ),
        )
        .hint("name one that is elsewhere: abide restore FILE --force")
    })
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
