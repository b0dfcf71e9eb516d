//! `abide config reload`: has the daemon reload its configuration and prints the changes.

use super::text;
use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::clean;
use crate::wire::config::{ReloadConfig, SettingChange};

pub(super) async fn run(common: &Common) -> Result<u8, Failure> {
    let link = DaemonLink::open(&common.place).await?;
    let Some(reloaded) = link.ask_or_print(&ReloadConfig {}, common).await? else {
        return Ok(0);
    };
    if reloaded.applied.is_empty() && reloaded.needs_restart.is_empty() {
        print::answer("nothing has changed")?;
    }
    for change in &reloaded.applied {
        print::answer(&line(change, "in effect now"))?;
    }
    for change in &reloaded.needs_restart {
        print::answer(&line(change, "after a restart"))?;
    }
    for warning in &reloaded.warnings {
        print::note(&clean(&format!("note: {warning}")));
    }
    if !reloaded.needs_restart.is_empty() {
        print::note("restart it: abide stop && abide serve --detach");
    }
    Ok(0)
}

fn line(change: &SettingChange, when: &str) -> String {
    let (before, after) = (text(&change.before), text(&change.after));
    clean(&format!("{}: {before} → {after}, {when}", change.key))
}
