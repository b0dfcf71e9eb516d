//! `abide stop`: ends the daemon in an orderly way and returns once it is gone.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::args::Common;
use super::discover::process_exists;
use super::failure::{Failure, exit};
use super::follow::Interrupt;
use super::link::Link;
use super::print;
use crate::kernel::fault::Kind;
use crate::wire::gateway::{Drain, Empty, Then};

/// How often the process is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// End the daemon in an orderly way
///
/// Returns once its process is gone. Runs stop at a step and go on with the next start.
#[derive(Debug, Args)]
pub(crate) struct Stop {}

impl Stop {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = Link::open(&common.place).await?;
        let pid = link.target.endpoint.as_ref().map(|endpoint| endpoint.pid);
        let mut interrupt = Interrupt::new()?;
        let asked: Result<Empty, Failure> =
            link.ask("gateway.drain", Drain { then: Then::Stop }).await;
        match asked {
            // Somebody else has asked already: then both wait.
            Err(failure) if failure.kind != Kind::Conflict.as_str() => return Err(failure),
            Ok(_) | Err(_) => drop(link),
        }
        let gone = wait_until_gone(common, pid);
        tokio::select! {
            gone = gone => gone?,
            () = interrupt.pressed() => {
                print::note("it goes on stopping; abide status shows when it is gone");
                return Ok(exit::WINDOW);
            }
        }
        if common.json {
            print::object(&json!({ "stopped": true, "pid": pid }))?;
        } else {
            print::note("stopped; what it was told is kept");
        }
        Ok(0)
    }
}

/// The lock of the state folder ends with the process, so a new start may follow at once.
async fn wait_until_gone(common: &Common, pid: Option<u32>) -> Result<(), Failure> {
    loop {
        let gone = match pid {
            Some(pid) => !process_exists(pid),
            None => matches!(
                Link::open(&common.place).await,
                Err(failure) if failure.code == exit::NO_DAEMON
            ),
        };
        if gone {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}
