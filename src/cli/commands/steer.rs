//! `abide steer`: sends a message to a run in the middle of its turn.

use clap::Args;

use crate::cli::common::failure::Failure;
use crate::cli::common::{Common, ids};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::{print, text};
use crate::clock::Clock;
use crate::kernel::ids::MessageId;
use crate::wire::lifecycle::{Steer as Request, Steered};

/// Send a message to a run that is working
///
/// Its next model call sees the message; current steps are not interrupted. A run that has not
/// started or has ended is left unchanged (exit code 9): use abide send for its session instead.
#[derive(Debug, Args)]
#[command(after_help = r#"abide steer @last "Look into the tests, too""#)]
pub(crate) struct SteerArgs {
    /// The run
    #[arg(value_name = "RUN")]
    run: String,

    /// The message
    #[arg(value_name = "TEXT")]
    text: String,
}

impl SteerArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let request = Request {
            run_id: ids::run(&link, &self.run).await?,
            message: self.text,
            // With the id, a retry adds the message only once.
            message_id: Some(MessageId(Clock::system().new_id())),
        };
        let raw = link.raw_retried(&request, &common.place).await?;
        if common.json {
            print::object(&raw)?;
            return Ok(0);
        }
        let said: Steered = link::read(&raw)?;
        print::note(&format!(
            "sent; the next model call of {} sees it",
            text::short(said.run_id)
        ));
        Ok(0)
    }
}
