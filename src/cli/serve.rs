//! `abide serve`: runs the daemon, in this terminal or in the background.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::args::Common;
use super::failure::Failure;
use super::print;
use super::start::{self, Plan};

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
        let _ = (common, self.background);
        Err(Failure::usage("this build has no daemon"))
    }

    /// Starts the daemon in the background and returns once it is ready.
    pub(crate) async fn detach(self, common: &Common) -> Result<u8, Failure> {
        let plan = Plan {
            state_dir: common.place.state_dir()?,
            config: self.config,
            listen: self.listen,
            alone: false,
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
