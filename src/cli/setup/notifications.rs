//! `abide setup --notify`: finds a program that shows notifications, and has the daemon use it.

use std::path::PathBuf;

use serde_json::json;

use super::file::File;
use super::{reload, said};
use crate::cli::args::Common;
use crate::cli::failure::{Failure, exit};
use crate::cli::link::Link;
use crate::cli::print;
use crate::config::Source;
use crate::process;
use crate::wire::config::Config as InForce;
use crate::wire::gateway::NoParams;

/// What shows the second argument under the first as its heading.
const APPLE_SCRIPT: &str = "on run argv\n\
    display notification (item 2 of argv) with title (item 1 of argv)\n\
    end run";

/// The commands that are known, by the program that each needs; the first that is there is offered.
const KNOWN: [(&str, &[&str]); 3] = [
    (
        "notify-send",
        &["notify-send", "--app-name=abide", "--", "{title}", "{text}"],
    ),
    (
        "terminal-notifier",
        &[
            "terminal-notifier",
            "-title",
            "{title}",
            "-message",
            "{text}",
        ],
    ),
    (
        "osascript",
        &["osascript", "-e", APPLE_SCRIPT, "{title}", "{text}"],
    ),
];

/// The command of the first of these programs that is there.
pub(super) fn found() -> Option<Vec<String>> {
    // Without it there is no place to look at.
    let path = std::env::var_os("PATH")?;
    let is_there = |name: &str| process::find(name, Some(&path), &PathBuf::from("/")).is_ok();
    let (_, command) = KNOWN.iter().find(|(name, _)| is_there(name))?;
    Some(command.iter().map(|one| (*one).to_owned()).collect())
}

/// Has the daemon notify the person by the command that was found, if they want that.
pub(super) async fn set_up(common: &Common, asks: bool) -> Result<u8, Failure> {
    let Some(command) = found() else {
        let message = "no program was found that shows notifications (notify-send, \
                       terminal-notifier, osascript); nothing was changed";
        return Err(Failure::new(exit::NOT_FOUND, "not_found", message)
            .hint("name one of your own: notify.command, see docs/notifications.md"));
    };
    let name = command.first().map_or("", String::as_str).to_owned();
    if asks {
        let question =
            format!("notify you by {name} when a run needs you or has ended? (yes or no) ");
        if !matches!(said(&question)?.to_ascii_lowercase().as_str(), "y" | "yes") {
            print::note("notifications stay off; later: abide setup --notify");
            return Ok(0);
        }
    }
    let link = Link::open(&common.place)
        .await
        .map_err(|failure| failure.hint("nothing was changed; run abide setup --notify then"))?;
    let in_force: InForce = link.ask("gateway.config", NoParams {}).await?;
    let path = in_force
        .file
        .map(PathBuf::from)
        .or_else(|| Source::find(None).file);
    let path = path.ok_or_else(|| {
        Failure::new(
            exit::CONFIG,
            "config",
            "there is no place for a file of settings",
        )
        .hint("set HOME, or name a file: ABIDE_CONFIG=FILE")
    })?;
    let mut file = File::open(&path)?;
    file.set_list(&["notify", "command"], &command)?;
    if let Err(failure) = reload(&link).await {
        return Err(failure.hint(file.put_back()));
    }
    match common.json {
        true => print::object(&json!({
            "command": command, "file": file.path().display().to_string(),
        }))?,
        false => print::note(&format!(
            "{name} is run when a run needs you or has ended; off again: remove notify.command \
             from {}",
            file.path().display()
        )),
    }
    Ok(0)
}
