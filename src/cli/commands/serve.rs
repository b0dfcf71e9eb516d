//! `abide serve`: runs the daemon in this terminal or in the background.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::json;

use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link::discover::Where;
use crate::cli::link::start::StartOptions;
use crate::cli::link::{DaemonLink, start};
use crate::cli::output::print;
use crate::cli::output::print::{DIM, GOOD, styled};
use crate::cli::output::text::clean;
use crate::config::{FlagValue, Loaded, SettingsSource};
use crate::daemon::{self, DaemonOptions, Ending, Endpoint, Ready, offline};
use crate::process;
use crate::telemetry;
use crate::wire::gateway::GetStatus;

/// Run the daemon
///
/// It stops on SIGTERM, on Ctrl-C or with abide stop. All accepted work is kept, also when the
/// daemon is killed, and continues with the next start.
#[derive(Debug, Args)]
#[command(after_help = "abide serve --detach
abide serve --listen 127.0.0.1:0 --state-dir ./state")]
pub(crate) struct Serve {
    /// The configuration file [default: $ABIDE_CONFIG or ~/.config/abide/abide.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Address to listen on; port 0 picks a free one [default: 127.0.0.1:7777]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// Run in the background and return once it is ready; a daemon that already runs on the state
    /// folder is kept
    #[arg(long)]
    pub(crate) detach: bool,

    /// Set for the background process itself
    #[arg(long, hide = true, conflicts_with = "detach")]
    background: bool,

    /// Set for a restart after the store was found damaged
    #[arg(long, hide = true, conflicts_with = "detach")]
    again: bool,
}

impl Serve {
    /// Runs the daemon until it is stopped.
    pub(crate) fn run(self, common: &Common) -> Result<u8, Failure> {
        common.place.refuse_address("serve", "--listen")?;
        if self.background {
            // Close the caller's files and pipes: a lock or a pipe is released only by its last
            // holder.
            process::close_inherited();
            // Detach from the terminal, so that its end does not end this process. `setsid` refuses
            // a process that already leads a group: after a restart it leads its session, and
            // nothing is left to do. The session's leader is not queried: in a container it may
            // have no process id here.
            match rustix::process::setsid() {
                Ok(_) | Err(rustix::io::Errno::PERM) => {}
                Err(error) => return Err(Failure::local("cannot detach from the terminal", error)),
            }
        }
        if let Some(note) = start::empty_store(&common.place.state_dir_to_serve()?)
            && !self.background
        {
            print::note(&note);
        }
        telemetry::start().map_err(|why| Failure::new(exit::CONFIG, "config", why))?;
        let source = self.source(common)?;
        let loaded = load(&source)?;
        for warning in &loaded.warnings {
            print::note(&format!("note: {}", clean(warning)));
        }
        let warned = loaded.file.clone();
        let json = common.json;
        let state = common.place.state_dir_to_serve()?;
        let ending = daemon::serve(DaemonOptions {
            state_dir: common.place.state_dir_to_serve()?,
            source,
            loaded,
            on_ready: Box::new(move |ready| announce(ready, warned.as_deref(), json)),
        });
        let ending = match ending {
            Ok(ending) => ending,
            // In the background, the process that started this one starts the next.
            Err(daemon::DaemonFailure::Store(why))
                if !self.background && !self.again && offline::is_to_be_repaired(&state) =>
            {
                print::note(&format!("{why}; restarting to repair the store"));
                return Err(start_again(Some("--again")));
            }
            Err(failure) => {
                let code = failure.exit_code();
                return Err(Failure::new(code, "serve", failure.to_string()));
            }
        };
        match ending {
            Ending::Stopped => Ok(0),
            Ending::Restart => Ok(exit::RESTART),
            Ending::StartAgain => Err(start_again(None)),
        }
    }

    /// The sources of the settings; flags override everything else.
    fn source(&self, common: &Common) -> Result<SettingsSource, Failure> {
        let mut source = SettingsSource::find(self.config.clone());
        if let Some(address) = self.listen {
            source.flags.push(FlagValue {
                key: "gateway.listen",
                name: "--listen",
                value: address.to_string().into(),
            });
        }
        if let Some(path) = common.place.socket_to_listen()? {
            source.flags.push(FlagValue {
                key: "gateway.socket",
                name: "--socket",
                value: path.display().to_string().into(),
            });
        }
        Ok(source)
    }

    /// Reports a daemon that is already running.
    fn there_already(&self, common: &Common, endpoint: &Endpoint) -> Result<u8, Failure> {
        if common.json {
            print::object(endpoint)?;
            return Ok(0);
        }
        print::folded(&format!(
            "abide is already running: process {}, {}",
            endpoint.pid, endpoint.url
        ))?;
        if self.config.is_some() || self.listen.is_some() {
            print::note(
                "it keeps the settings it was started with; for other settings: abide stop, then \
                 start it again",
            );
        }
        Ok(0)
    }

    /// The daemon is ready in the background once this returns.
    pub(crate) async fn detach(self, common: &Common) -> Result<u8, Failure> {
        common.place.refuse_address("serve", "--listen")?;
        let plan = StartOptions {
            state_dir: common.place.state_dir()?,
            config: self.config.clone(),
            listen: self.listen,
            socket: common.place.socket_to_listen()?,
            without_env: false,
        };
        let (endpoint, is_new) = match start::running(&plan.state_dir).await {
            Some(endpoint) => (endpoint, false),
            None => match start::start(&plan).await {
                Ok(started) => (started.endpoint, true),
                Err(failure) => match start::concurrent_daemon(&plan.state_dir, &failure).await {
                    Some(endpoint) => (endpoint, false),
                    None => return Err(failure),
                },
            },
        };
        if !is_new {
            return self.there_already(common, &endpoint);
        }
        if common.json {
            print::object(&endpoint)?;
        } else {
            let log = plan.state_dir.join(start::LOG);
            print::folded(&format!(
                "abide is up: process {}, {}",
                endpoint.pid, endpoint.url
            ))?;
            print::note(&format!("log {}; stop it with: abide stop", log.display()));
            going_on(&Where::folder(&plan.state_dir)).await;
        }
        Ok(0)
    }
}

/// Prints the number of runs that continue. Optional: errors are ignored, because the daemon is up.
async fn going_on(place: &Where) {
    let Ok(link) = DaemonLink::open(place).await else {
        return;
    };
    if let Ok(status) = link.ask(&GetStatus {}).await {
        let counts = status.counts;
        let open = counts.running + counts.queued + counts.paused + counts.settling;
        if open > 0 {
            let runs = match open {
                1 => "run continues where it stopped",
                _ => "runs continue where they stopped",
            };
            print::note(&format!("{open} {runs}: abide ps"));
        }
    }
}

/// Replaces this process by a new start of the program with the same arguments, so that an upgraded
/// binary takes over. Returns only on failure.
fn start_again(with: Option<&str>) -> Failure {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_else(|| "abide".into());
    let words = words.filter(|word| word != "--again");
    let error = Command::new(&program).args(words).args(with).exec();
    Failure::local(
        format!("{} cannot be started again", program.display()),
        error,
    )
    .hint("all accepted work is kept and continues with the next start: abide serve --detach")
}

/// The effective settings: those of the file `named`, else of the default one, overridden by
/// variables.
pub(crate) fn settings(named: Option<PathBuf>) -> Result<Loaded, Failure> {
    load(&SettingsSource::find(named))
}

fn load(source: &SettingsSource) -> Result<Loaded, Failure> {
    source.load().map_err(|error| {
        Failure::new(exit::CONFIG, "config", error.to_string()).hint("nothing was started")
    })
}

/// Announces a ready daemon: with `json` on standard output, and to a user at the terminal as a
/// summary.
fn announce(ready: &Ready, config: Option<&Path>, json: bool) {
    if json {
        // The reader of this pipe may be gone; the daemon serves other clients, too.
        let _ = print::object(&json!({ "ready": ready.endpoint }));
    }
    if !print::notes_are_watched() {
        return;
    }
    let config = match config {
        Some(file) => file.display().to_string(),
        None => "defaults".to_owned(),
    };
    let mut lines = vec![
        format!(
            "{} abide {} is up",
            styled(GOOD, "✓"),
            ready.endpoint.version
        ),
        format!("  address  {}", ready.endpoint.url),
        format!("  token    in {}", ready.token_file.display()),
        format!("  config   {config}"),
        format!("  model    {}", ready.model),
        format!("  agents   {}", ready.agents.join(", ")),
    ];
    if ready.restored > 0 {
        lines.push(format!(
            "  runs     {} continue, {} of them were in the middle of a turn",
            ready.restored, ready.resumed
        ));
    }
    if let Some(socket) = &ready.endpoint.socket {
        lines.insert(2, format!("  socket   {socket}"));
    }
    lines.push(styled(DIM, "  try: abide run \"where does it start?\""));
    print::note(&lines.join("\n"));
}
