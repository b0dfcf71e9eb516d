//! `abide config`: the settings, where each comes from, whether they can be used, and changes of
//! them.

mod change;
mod file;
mod reload;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

pub(super) use self::change::Writer;
pub(super) use self::file::{Changes, File};
use super::args::Common;
use super::failure::{Failure, exit};
use super::link::{self, Link};
use super::print::{self, DIM, styled};
use super::text::clean;
use crate::config::Source;
use crate::wire::config::{Config as Answer, Setting};
use crate::wire::gateway::NoParams;

/// Show, check and change the settings
#[derive(Debug, Args)]
#[command(after_help = "abide config check
abide config set lanes.main 4
abide config set gateway.allowed_hosts abide.lan desk.lan
abide config unset lanes.main")]
pub(crate) struct Config {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Read file and variables as a start would; needs no daemon
    Check {
        /// The configuration [default: $ABIDE_CONFIG or ~/.config/abide/abide.toml]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Ask the daemon which settings it obeys
    Show,
    /// Write a setting into the file
    ///
    /// Comments and order of the file stay. A value that a start would refuse is not written. The
    /// running daemon obeys the change at once where it can; otherwise it is said that a start is
    /// needed. Without --config it is the file that the running daemon reads, or the usual one.
    Set {
        /// Which setting, such as lanes.main; all are in abide config check
        key: String,
        /// Its value; several make a list; - reads it from standard input
        #[arg(required = true, allow_hyphen_values = true)]
        value: Vec<String>,
        /// The configuration [default: the daemon's, $ABIDE_CONFIG or ~/.config/abide/abide.toml]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Take a setting out of the file, so that its default counts
    Unset {
        /// Which setting
        key: String,
        /// The configuration [default: the daemon's, $ABIDE_CONFIG or ~/.config/abide/abide.toml]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Have the daemon read file and variables again
    Reload,
}

impl Config {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        match self.what {
            What::Check { config } => check(config, common.json),
            What::Show => show(common).await,
            What::Set { key, value, config } => {
                change::run(common, &key, Some(typed(value)?), config).await
            }
            What::Unset { key, config } => change::run(common, &key, None, config).await,
            What::Reload => reload::run(common).await,
        }
    }
}

/// The values of `set`; `-` alone stands for what is on standard input.
fn typed(value: Vec<String>) -> Result<Vec<String>, Failure> {
    if value != ["-"] {
        return Ok(value);
    }
    let read = std::io::read_to_string(std::io::stdin());
    let text = read.map_err(|fault| Failure::local("the value on standard input", fault))?;
    Ok(vec![text.trim_end_matches(['\r', '\n']).to_owned()])
}

fn check(named: Option<PathBuf>, json: bool) -> Result<u8, Failure> {
    let loaded = Source::find(named).load().map_err(|error| {
        Failure::new(exit::CONFIG, "config", error.to_string())
            .hint("a start would end here; a running daemon keeps the settings it has")
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
    let link = Link::open(&common.place).await?;
    let raw = link.raw("gateway.config", NoParams {}).await?;
    if common.json {
        print::object(&raw)?;
        return Ok(0);
    }
    print_settings(&link::read(&raw)?)?;
    Ok(0)
}

/// One line a setting; what is not the default says where it comes from.
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
            // All of them stand in the one file that was named above.
            ("file", _) => Some("file".to_owned()),
            (_, Some(from)) => Some(from.to_owned()),
            (source, None) => Some(source.to_owned()),
        };
        let mut notes: Vec<String> = from.into_iter().collect();
        if let Some(pending) = &setting.pending {
            notes.push(format!("{} from the next start on", text(pending)));
        }
        line = clean(&line);
        if !notes.is_empty() {
            line.push_str(&styled(DIM, clean(&format!("  ({})", notes.join("; ")))));
        }
        print::answer(&line)?;
    }
    for warning in &answer.warnings {
        print::note(&clean(&format!("note: {warning}")));
    }
    Ok(())
}

/// A value as a person reads it.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
