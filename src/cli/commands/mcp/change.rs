//! `abide mcp add|remove`: writes the settings table of an MCP server and shows the server's state.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;
use tokio::time::sleep;
use toml_edit::{InlineTable, Value};

use super::shown;
use crate::cli::commands::config::{ConfigWriter, SettingEdits};
use crate::cli::commands::env;
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::clean;
use crate::config::{self, SettingEdit};
use crate::kernel::policy::overlay::looks_secret;
use crate::kernel::secret::GivenValue;
use crate::wire::servers::{ListServers, Server, Servers};

/// Interval between two checks of a starting server.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of checks of a starting server: a little longer than a start usually may take.
const LOOKS: u32 = 650;

/// Add an MCP server to the settings and start it
#[derive(Debug, Args)]
#[command(
    after_help = "abide mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
abide mcp add search --env API_KEY=@env:SEARCH_KEY -- search-mcp --quiet
abide mcp add docs --http https://docs.example/mcp --bearer-env DOCS_TOKEN"
)]
pub(super) struct Add {
    /// Its name; models call its tools NAME__TOOL
    name: String,

    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "http")]
    command: Vec<String>,

    /// URL of the server, instead of a program
    #[arg(long, value_name = "URL", conflicts_with_all = ["command", "env", "cwd"])]
    http: Option<String>,

    /// The daemon's variable that holds its bearer token
    #[arg(long, value_name = "VARIABLE", requires = "http")]
    bearer_env: Option<String>,

    /// A variable for the program: NAME=VALUE, or NAME for this shell's value, or NAME=@env:OTHER,
    /// NAME=@file:/PATH or NAME=@cred:NAME, which the daemon reads; may be given again
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,

    /// Its working folder, absolute [default: that of runs without one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,

    /// One instance for all runs, or one for each run in its environment
    #[arg(long, default_value = "shared")]
    scope: ScopeChoice,

    /// Replace the server that has this name
    #[arg(long)]
    replace: bool,

    /// The configuration file [default: the daemon's, $ABIDE_CONFIG or ~/.config/abide/abide.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScopeChoice {
    Shared,
    Run,
}

/// Remove an MCP server from the settings and stop it
#[derive(Debug, Args)]
pub(super) struct Remove {
    /// The server's name
    name: String,

    /// The configuration file [default: the daemon's, $ABIDE_CONFIG or ~/.config/abide/abide.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Add {
    pub(super) async fn run(mut self, common: &Common) -> Result<u8, Failure> {
        let name = self.name.clone();
        if config::unknown(&format!("mcp.{name}.command")).is_some() {
            return Err(
                Failure::usage(format!("{:?} is not a valid server name", clean(&name)))
                    .hint("abide mcp add NAME -- COMMAND; nothing was changed"),
            );
        }
        let mut writer = ConfigWriter::open(common, "mcp add", self.config.take()).await?;
        let mut changes = self.changes()?;
        if writer.has(&["mcp", &name]) {
            if !self.replace {
                let message = format!("{} already has a server {}", writer.path(), clean(&name));
                return Err(Failure::new(exit::REFUSED, "conflict", message)
                    .hint("nothing was changed; use --replace to replace it"));
            }
            changes.insert(0, (vec!["mcp", &name], SettingEdit::Unset));
        }
        writer.write(vec![changes])?;
        writer.reload().await?;
        let server = match writer.link() {
            Some(link) => started(link, &name).await?,
            None => None,
        };
        let plain: Vec<&str> = self
            .env
            .iter()
            .filter_map(|one| plain_secret(one))
            .collect();
        if let Some(first) = plain.first() {
            print::note(&format!(
                "note: the value of {} is stored in the file as plain text; the daemon can read it from its \
                 own environment instead: --env {first}=@env:{first}",
                plain.join(", ")
            ));
        }
        let is_bad = server
            .as_ref()
            .is_some_and(|server| server.state == "failed");
        if common.json {
            print::object(&json!({ "name": name, "file": writer.path(), "server": server }))?;
        } else {
            let name = clean(&name);
            print::folded(&clean(&format!("{name} is written to {}", writer.path())))?;
            match &server {
                Some(server) => {
                    shown(server)?;
                }
                None => print::note("no daemon runs with this file; the next one starts it"),
            }
            if is_bad {
                print::note(&format!(
                    "it stays in the settings: correct it and run abide config reload, or remove it: \
                     abide mcp remove {name}"
                ));
            }
        }
        Ok(if is_bad { exit::FAILED } else { 0 })
    }

    /// The settings of the server's table.
    fn changes(&self) -> Result<SettingEdits<'_>, Failure> {
        let mut changes = Vec::new();
        let mut set = |field: &'static str, value: Value| {
            changes.push((
                vec!["mcp", self.name.as_str(), field],
                SettingEdit::Set(value),
            ));
        };
        if let Some((program, arguments)) = self.command.split_first() {
            set("command", program.as_str().into());
            if !arguments.is_empty() {
                set("args", arguments.iter().map(String::as_str).collect());
            }
        }
        if let Some(url) = &self.http {
            set("url", url.as_str().into());
        }
        if let Some(variable) = &self.bearer_env {
            set("auth", pairs([("bearer_env", variable.as_str().into())]));
        }
        if let Some(given) = env::given(&self.env)? {
            set("env", variables(&given.0));
        }
        if let Some(folder) = &self.cwd {
            let folder = folder.to_str().ok_or_else(|| {
                Failure::usage(format!(
                    "the folder's name is not UTF-8: {}",
                    folder.display()
                ))
            })?;
            set("cwd", folder.into());
        }
        if matches!(self.scope, ScopeChoice::Run) {
            set("scope", "run".into());
        }
        Ok(changes)
    }
}

fn pairs<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::InlineTable(fields.into_iter().collect::<InlineTable>())
}

/// Variables as the settings file has them: a text, or a reference.
fn variables(given: &BTreeMap<String, GivenValue>) -> Value {
    pairs(given.iter().map(|(name, given)| {
        let value = match given {
            GivenValue::Text(text) => Value::from(text.expose()),
            GivenValue::From(place) => pairs([("from", place.to_string().into())]),
        };
        (name.as_str(), value)
    }))
}

/// Name of a variable that looks secret and has a plain value instead of a reference.
fn plain_secret(given: &str) -> Option<&str> {
    let (name, value) = given.split_once('=').unwrap_or((given, ""));
    (looks_secret(name) && (!value.starts_with('@') || value.starts_with("@@"))).then_some(name)
}

/// The server once it has started or failed; its current state if that takes too long.
async fn started(link: &DaemonLink, name: &str) -> Result<Option<Server>, Failure> {
    let mut looks = LOOKS;
    loop {
        let Servers { servers } = link.ask(&ListServers {}).await?;
        let found = servers.into_iter().find(|server| server.name == name);
        let is_starting = found
            .as_ref()
            .is_some_and(|server| matches!(&*server.state, "starting" | "stopped"));
        if !is_starting || looks == 0 {
            return Ok(found);
        }
        looks -= 1;
        sleep(PAUSE).await;
    }
}

impl Remove {
    pub(super) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let mut writer = ConfigWriter::open(common, "mcp remove", self.config).await?;
        let name = clean(&self.name);
        if !writer.has(&["mcp", &self.name]) {
            let message = format!("{} has no server {name}", writer.path());
            return Err(
                Failure::new(exit::NOT_FOUND, "not_found", message).hint("list servers: abide mcp")
            );
        }
        writer.write(vec![vec![(vec!["mcp", &self.name], SettingEdit::Unset)]])?;
        let is_obeyed = writer.reload().await?.is_some();
        if common.json {
            print::object(&json!({ "name": self.name, "file": writer.path(), "removed": true }))?;
            return Ok(0);
        }
        print::folded(&clean(&format!("{name} is removed from {}", writer.path())))?;
        if is_obeyed {
            print::note("new runs no longer have its tools");
        }
        Ok(0)
    }
}
