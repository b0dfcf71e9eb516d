//! `abide setup --notify`: finds a notification program and configures the daemon to use it.

use std::path::Path;

use serde_json::json;

use crate::cli::commands::config::ConfigWriter;
use crate::cli::common::Common;
use crate::cli::common::ask::agrees;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::output::print;
use crate::config::SettingEdit;
use crate::process;

/// Shows the second argument as a notification with the first as its title.
const APPLE_SCRIPT: &str = "on run argv\n\
    display notification (item 2 of argv) with title (item 1 of argv)\n\
    end run";

/// Known commands; the first one whose program is installed is offered.
const KNOWN: [&[&str]; 3] = [
    &["notify-send", "--app-name=abide", "--", "{title}", "{text}"],
    &[
        "terminal-notifier",
        "-title",
        "{title}",
        "-message",
        "{text}",
    ],
    &["osascript", "-e", APPLE_SCRIPT, "{title}", "{text}"],
];

/// The command of the first known program that is installed.
pub(super) fn found() -> Option<&'static [&'static str]> {
    // Without PATH no program can be found.
    let path = std::env::var_os("PATH")?;
    let is_there = |name: &str| process::find(name, Some(&path), Path::new("/")).is_ok();
    KNOWN.into_iter().find(|command| is_there(command[0]))
}

/// The daemon notifies the user by the found command once this returns, unless the user declined.
pub(super) async fn set_up(common: &Common, asks: bool) -> Result<u8, Failure> {
    let Some(command) = found() else {
        let message = "no notification program was found (notify-send, \
                       terminal-notifier, osascript); nothing was changed";
        return Err(Failure::new(exit::NOT_FOUND, "not_found", message)
            .hint("set your own: abide config set notify.command …, see docs/notifications.md"));
    };
    let name = command[0];
    if asks {
        let question =
            format!("use {name} to notify you when a run needs you or has ended? (yes or no) ");
        if !agrees(&question)? {
            print::note("notifications stay off; later: abide setup --notify");
            return Ok(0);
        }
    }
    let mut writer = ConfigWriter::open(common, "setup", None).await?;
    let change = SettingEdit::texts(command.iter().copied());
    writer.write(vec![vec![(vec!["notify", "command"], change)]])?;
    let is_obeyed = writer.reload().await?.is_some();
    match common.json {
        true => print::object(&json!({ "command": command, "file": writer.path() }))?,
        false => {
            let from = match is_obeyed {
                true => "",
                false => ", after the daemon's next start",
            };
            print::note(&format!(
                "{name} will notify you when a run needs you or has ended{from}; turn it off: abide config \
                 unset notify.command"
            ));
        }
    }
    Ok(0)
}
