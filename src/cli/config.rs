//! `abide config`: the settings, where each comes from, and whether they can be used.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::args::Common;
use super::failure::{Failure, exit};
use super::link::{self, Link};
use super::print::{self, DIM, styled};
use super::text::clean;
use crate::config::Source;
use crate::wire::config::{Config as Answer, Setting};
use crate::wire::gateway::NoParams;

/// Show and check the settings, or have them read again
#[derive(Debug, Args)]
#[command(after_help = "abide config check")]
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
    /// Have the daemon read file and variables again
    Reload,
}

impl Config {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        match self.what {
            What::Check { config } => check(config, common.json),
            What::Show => show(common).await,
            What::Reload => super::reload::run(common).await,
        }
    }
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
