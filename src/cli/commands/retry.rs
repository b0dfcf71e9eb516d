//! `abide retry`: repeats an ended run as a new run.

use clap::Args;

use crate::cli::common::failure::Failure;
use crate::cli::common::{Common, ids};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::{print, text};
use crate::clock::Clock;
use crate::wire::lifecycle::{Retried, RetryRun};

/// Repeat an ended run as a new run
///
/// A spawned run gets a fresh session; a turn is sent again in its own session. Prints the new
/// run's id.
#[derive(Debug, Args)]
#[command(after_help = "abide retry 4f2a91c3")]
pub(crate) struct Retry {
    /// The run
    #[arg(value_name = "RUN")]
    run: String,
}

impl Retry {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let request = RetryRun {
            run_id: ids::run(&link, &self.run).await?,
            idempotency_key: Some(Clock::system().new_id().to_string()),
        };
        let raw = link.raw_retried(&request, &common.place).await?;
        if common.json {
            print::object(&raw)?;
            return Ok(0);
        }
        let new: Retried = link::read(&raw)?;
        for warning in &new.warnings {
            print::note(&format!("note: {}", text::clean(warning)));
        }
        print::answer(&new.run_id.to_string())?;
        print::note(&format!(
            "{} with {}; its answer: abide wait {}",
            text::line(new.agent.as_str(), 24),
            text::line(&new.model, 30),
            text::short(new.run_id)
        ));
        Ok(0)
    }
}
