//! `abide run`: does one task and prints its answer, like a program that has never heard of
//! a daemon.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;

use super::args::Common;
use super::failure::{Failure, exit};
use super::follow::{End, Interrupt, Task, follow};
use super::link::{self, Link};
use super::spawn::{self, Work};
use super::{cancel, ids, print, start, text, wait};
use crate::kernel::ids::RunId;
use crate::wire::lifecycle::{CancelRun, Cancelled};
use crate::wire::sessions::Spawned;

/// How long after Ctrl-C a second one counts.
const SECOND_THOUGHTS: Duration = Duration::from_secs(2);

/// Do a task and print its answer
///
/// Shows on standard error how it goes on, and prints the answer on standard output. Ctrl-C
/// only stops watching: the run goes on, and abide wait comes back to it; twice within 2 s
/// cancels it. A lost link is found again and never starts the work twice. With --json two lines are printed: what was
/// accepted, and the run when it has ended.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    work: Work,

    /// Fail if no daemon is there, in place of starting one
    #[arg(long)]
    no_start: bool,
}

impl Run {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let request = self.work.request()?;
        let link = match Link::open(&common.place).await {
            Err(failure) if failure.code == exit::NO_DAEMON && may_start(self.no_start) => {
                print::note("no daemon is there; starting one");
                let started = start::usual(&common.place).await?;
                print::note(&format!(
                    "daemon {} at {}; end it with: abide stop",
                    started.pid, started.url
                ));
                Link::open(&common.place).await?
            }
            opened => opened?,
        };
        let mut interrupt = Interrupt::new()?;
        let raw = spawn::send(&link, common, &request).await?;
        let spawned: Spawned = link::read(&raw)?;
        if common.json {
            print::object(&raw)?;
        } else {
            spawn::warn(&spawned);
        }
        let runs = [spawned.run_id];
        let task = Task {
            ids: &runs,
            any: false,
            window: None,
            show: !common.json,
        };
        let end = follow(link, &common.place, task, &mut interrupt).await?;
        let ended = match end {
            End::Done(raw) | End::Window(raw) => wait::only(&raw)?,
            End::Detached => return leave(common, &mut interrupt, spawned.run_id).await,
        };
        let link = Link::open(&common.place).await?;
        let run = ids::details(&link, ended.run_id).await?;
        if common.json {
            print::object(&run)?;
        } else {
            wait::result(&run, false)?;
        }
        Ok(exit::of_run(&run.state, run.needs_review))
    }
}

/// After Ctrl-C the run goes on, unless it is pressed once more.
async fn leave(common: &Common, interrupt: &mut Interrupt, run_id: RunId) -> Result<u8, Failure> {
    let code = wait::detached(&[run_id]);
    print::note("Ctrl-C once more within 2 s cancels it");
    tokio::select! {
        () = interrupt.pressed() => {}
        () = tokio::time::sleep(SECOND_THOUGHTS) => return Ok(code),
    }
    let link = Link::open(&common.place).await?;
    let reason = Some("Ctrl-C".to_owned());
    let raw = link
        .raw("runs.cancel", CancelRun { run_id, reason })
        .await?;
    let done: Cancelled = link::read(&raw)?;
    print::note(&cancel::summary(&text::short(run_id), &done));
    let run = ids::details(&link, run_id).await?;
    if common.json {
        print::object(&run)?;
    }
    Ok(exit::of_run(&run.state, run.needs_review))
}

/// A script gets an error that it can handle; a person gets a daemon.
fn may_start(forbidden: bool) -> bool {
    !forbidden && std::io::stdin().is_terminal() && print::notes_are_watched()
}
