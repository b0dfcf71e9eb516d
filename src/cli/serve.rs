//! `abide serve`: runs the daemon, in this terminal or in the background.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::args::Common;
use super::failure::Failure;
use super::print;
use super::start::{self, Plan};
use crate::{config, daemon};

const CONFIG: u8 = 78;

/// Run the daemon
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The configuration; else $ABIDE_CONFIG or the one in the configuration folder
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where to listen, such as 127.0.0.1:7777; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,

    /// Go into the background once it is ready
    #[arg(long)]
    pub(crate) detach: bool,

    /// This is the process in the background
    #[arg(long, hide = true, conflicts_with = "detach")]
    background: bool,
}

impl Serve {
    /// Runs the daemon until it is told to stop.
    pub(crate) fn run(self, common: &Common) -> Result<u8, Failure> {
        crate::telemetry::start().map_err(|why| Failure::new(CONFIG, "config", why))?;
        let (file, required) = config_file(self.config);
        let loaded = config::load(file.as_deref(), required, variables())
            .map_err(|fault| Failure::new(CONFIG, "config", fault.to_string()))?;
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        let listen = match self.listen.as_deref().map(str::parse::<SocketAddr>) {
            None => None,
            Some(Ok(address)) => Some(address),
            Some(Err(_)) => {
                return Err(Failure::usage(
                    "--listen: an address such as 127.0.0.1:7777 is expected",
                ));
            }
        };
        let for_people = !self.background && std::io::stderr().is_terminal();
        daemon::serve(daemon::Options {
            state_dir: common.place.state_dir()?,
            listen,
            config: loaded.config,
            on_ready: Box::new(move |ready| {
                if for_people {
                    welcome(ready);
                }
            }),
        })
        .map_err(|fault| Failure::new(fault.exit_code(), "serve", fault.to_string()))?;
        Ok(0)
    }

    /// Starts the daemon in the background and returns once it is ready.
    pub(crate) async fn detach(self, common: &Common) -> Result<u8, Failure> {
        let plan = Plan {
            state_dir: common.place.state_dir()?,
            config: self.config,
            listen: self.listen,
        };
        let endpoint = start::start(&plan).await?.endpoint;
        if common.json {
            print::object(&json!({ "pid": endpoint.pid, "url": endpoint.url }))?;
        } else {
            let log = plan.state_dir.join("abide.log");
            print::answer(&format!("abide {} at {}", endpoint.pid, endpoint.url))?;
            print::note(&format!("log {}; end it with: abide stop", log.display()));
        }
        Ok(0)
    }
}

/// The file to read, and whether it must be there.
fn config_file(named: Option<PathBuf>) -> (Option<PathBuf>, bool) {
    if named.is_some() {
        return (named, true);
    }
    if let Some(path) = std::env::var_os("ABIDE_CONFIG") {
        return (Some(PathBuf::from(path)), true);
    }
    let folder = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")));
    (folder.map(|folder| folder.join("abide/abide.toml")), false)
}

/// The environment's variables that are text; others cannot be settings.
fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// What a person wants to know of a daemon that has just started.
fn welcome(ready: &daemon::Ready) {
    print::note(&format!(
        "abide {} at {}",
        ready.endpoint.version, ready.endpoint.url
    ));
    print::note(&format!("token   {}", ready.token_file.display()));
    print::note(&format!("model   {}", ready.model));
    print::note(&format!("agents  {}", ready.agents.join(", ")));
    if ready.restored > 0 {
        print::note(&format!(
            "found   {} open runs, {} of them in the middle of a turn; they go on",
            ready.restored, ready.resumed
        ));
    }
    print::note("try     abide run \"Where are errors handled?\"    (in another terminal)");
}
