//! `abide config`: shows the settings and their origins, validates them and changes them.

mod change;
mod file;
mod reload;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

pub(in crate::cli) use self::change::ConfigWriter;
pub(in crate::cli) use self::file::{ConfigFile, SettingEdits};
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::print::{DIM, styled};
use crate::cli::output::text::clean;
use crate::config::{self, SettingsSource};
use crate::wire::config::{Config as Answer, GetConfig, Setting};

/// Show, check and change the settings
#[derive(Debug, Args)]
#[command(after_help = "abide config check
abide config get lanes.main
abide config set lanes.main 4
abide config set gateway.allowed_hosts abide.lan desk.lan
abide config unset lanes.main")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    what: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Read and validate file and variables; needs no daemon
    Check {
        /// The configuration file [default: $ABIDE_CONFIG or ~/.config/abide/abide.toml]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Show the daemon's effective settings
    Show,
    /// Print the effective value of one setting
    ///
    /// A list is printed one value per line, and nothing for a setting that is not set.
    Get {
        /// Name of the setting, such as lanes.main
        key: String,
    },
    /// Write a setting to the file
    ///
    /// Comments and order of the file are kept. An invalid value is not written. The running daemon
    /// applies the change at once if it can; otherwise a note says that it needs a restart. Without
    /// --config the file is the one that the running daemon reads, or the default one.
    Set {
        /// Name of the setting, such as lanes.main; abide config check lists all
        key: String,
        /// Its value; several make a list; - reads it from standard input
        #[arg(required = true, allow_hyphen_values = true)]
        value: Vec<String>,
        /// The configuration file [default: the daemon's, $ABIDE_CONFIG or
        /// ~/.config/abide/abide.toml]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Remove a setting from the file, so that its default applies
    Unset {
        /// Name of the setting
        key: String,
        /// The configuration file [default: the daemon's, $ABIDE_CONFIG or
        /// ~/.config/abide/abide.toml]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Have the daemon reload file and variables
    Reload,
}

impl ConfigArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        match self.what {
            ConfigCommand::Check { config } => check(config, common.json),
            ConfigCommand::Show => show(common).await,
            ConfigCommand::Get { key } => get(common, &key).await,
            ConfigCommand::Set { key, value, config } => {
                change::run(common, &key, Some(typed(value)?), config).await
            }
            ConfigCommand::Unset { key, config } => change::run(common, &key, None, config).await,
            ConfigCommand::Reload => reload::run(common).await,
        }
    }
}

/// The values for `set`; a single `-` reads the value from standard input.
fn typed(value: Vec<String>) -> Result<Vec<String>, Failure> {
    if value != ["-"] {
        return Ok(value);
    }
    let read = std::io::read_to_string(std::io::stdin());
    let text = read.map_err(|fault| Failure::local("the value on standard input", fault))?;
    Ok(vec![text.trim_end_matches(['\r', '\n']).to_owned()])
}

fn check(named: Option<PathBuf>, json: bool) -> Result<u8, Failure> {
    let loaded = SettingsSource::find(named).load().map_err(|error| {
        Failure::new(exit::CONFIG, "config", error.to_string())
            .hint("the daemon would not start with it; a running daemon keeps its current settings")
    })?;
    let settings = loaded.shown().map(|setting| Setting {
        key: setting.key,
        value: setting.value,
        source: setting.origin.kind().into(),
        from: setting.origin.name().map(str::to_owned),
        live: setting.live,
        pending: None,
    });
    let answer = Answer {
        file: loaded.file_name(),
        settings: settings.collect(),
        warnings: loaded.warnings.clone(),
    };
    if json {
        print::object(&answer)?;
    } else {
        print_settings(&answer)?;
    }
    Ok(0)
}

async fn show(common: &Common) -> Result<u8, Failure> {
    let link = DaemonLink::open(&common.place).await?;
    let raw = link.raw(&GetConfig {}).await?;
    if common.json {
        print::object(&raw)?;
        return Ok(0);
    }
    print_settings(&link::read(&raw)?)?;
    Ok(0)
}

async fn get(common: &Common, key: &str) -> Result<u8, Failure> {
    let link = DaemonLink::open(&common.place).await?;
    let answer: Answer = link.ask(&GetConfig {}).await?;
    let Some(setting) = answer.settings.iter().find(|setting| setting.key == key) else {
        let why =
            config::unknown(key).unwrap_or_else(|| format!("the daemon has no setting {key}"));
        return Err(Failure::usage(why).hint("list all: abide config show"));
    };
    if common.json {
        print::object(setting)?;
        return Ok(0);
    }
    match &setting.value {
        Value::Null => {}
        Value::Array(items) => items
            .iter()
            .try_for_each(|item| print::answer(&clean(&text(item))))?,
        value => print::answer(&clean(&text(value)))?,
    }
    Ok(0)
}

/// Prints one setting per line, with its origin unless it is the default.
fn print_settings(answer: &Answer) -> Result<(), Failure> {
    let file = answer.file.as_deref().unwrap_or("none was found");
    print::note(&clean(&format!("file: {file}")));
    let width = answer
        .settings
        .iter()
        .map(|setting| setting.key.len())
        .max();
    let width = width.unwrap_or_default();
    for setting in &answer.settings {
        let value = text(&setting.value);
        let mut line = format!("{:width$}  {value}", setting.key);
        let from = match (&*setting.source, setting.from.as_deref()) {
            ("default", _) => None,
            // All of them are in the one file that was named above.
            ("file", _) => Some("file".to_owned()),
            (_, Some(from)) => Some(from.to_owned()),
            (source, None) => Some(source.to_owned()),
        };
        let mut notes: Vec<String> = from.into_iter().collect();
        if let Some(pending) = &setting.pending {
            notes.push(format!("{} after a restart", text(pending)));
        }
        line = clean(&line);
        if !notes.is_empty() {
            line.push_str(&styled(DIM, clean(&format!("  ({})", notes.join("; ")))));
        }
        print::folded(&line)?;
    }
    for warning in &answer.warnings {
        print::note(&clean(&format!("note: {warning}")));
    }
    Ok(())
}

/// Formats a value for display.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
