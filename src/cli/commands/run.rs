//! `abide run`: runs one task and prints its answer, as if there were no daemon.

use clap::Args;

use super::spawn::WorkArgs;
use super::{cancel, spawn, wait};
use crate::cli::asking::person::Person;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, ids};
use crate::cli::link::{DaemonLink, start};
use crate::cli::live::follow::{CtrlC, FollowOutcome, Task, follow};
use crate::cli::live::{tree, view};
use crate::cli::output::{print, text};
use crate::kernel::ids::RunId;
use crate::wire::shapes;

/// Run a task and print its answer
///
/// Shows progress on standard error and prints the answer to standard output. Requests of the run
/// can be answered here. Without a terminal, each request is printed with the command that answers
/// it, the run stays open, and the exit code is 8. Ctrl-C only detaches: the run goes on, and abide
/// wait attaches to it again; twice within 2 s cancels it. A lost connection is retried and never
/// starts the work twice. If no daemon is running, one is started, provided that a user is there to
/// see the note. With --json two lines are printed: the accepted request, and the run when it has
/// ended.
#[derive(Debug, Args)]
#[command(after_help = r#"abide run "Where are errors reported?"
abide run --agent explore --run-timeout 5m "How is the cache kept small?"
git diff | abide run -
abide run --session agent:build:desk "And in the tests?""#)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    work: WorkArgs,

    /// Fail if no daemon is running, instead of starting one
    #[arg(long)]
    no_start: bool,
}

impl RunArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let session = self.work.session();
        let request = self.work.request()?;
        let link = start::link(&common.place, self.no_start).await?;
        let mut interrupt = CtrlC::new()?;
        let accepted = spawn::hand_over(&link, common, request, session.as_deref()).await?;
        if common.json {
            print::object(&accepted.raw)?;
        } else {
            accepted.warn();
        }
        let mut person = Person::if_there().filter(|_| !common.json);
        let runs = [accepted.run_id];
        let task = Task {
            ids: &runs,
            any: false,
            timeout: None,
            show: !common.json,
            json: common.json,
            person: person.as_mut(),
            conversation: None,
        };
        let end = follow(link, &common.place, task, &mut interrupt).await?;
        let ended = match end {
            FollowOutcome::Done(raw) | FollowOutcome::TimedOut(raw) => wait::only(&raw)?,
            FollowOutcome::NeedsPerson(raw) => {
                let run = wait::only(&raw)?;
                match common.json {
                    true => print::object(&run)?,
                    false => {
                        wait::print_pause(&common.place, &run).await;
                        wait::result(&run, false)?;
                    }
                }
                return Ok(exit::NEEDS_USER);
            }
            FollowOutcome::Detached(_) => {
                return leave(common, &mut interrupt, accepted.run_id).await;
            }
        };
        let link = DaemonLink::open(&common.place).await?;
        let run = ids::details(&link, ended.run_id).await?;
        if common.json {
            print::object(&run)?;
        } else {
            wait::result(&run, false)?;
            print_open_descendants(&link, &run).await?;
        }
        Ok(exit::of_run(&run.state, run.needs_review))
    }
}

/// Detaches from the run after Ctrl-C; a second Ctrl-C cancels the run.
async fn leave(common: &Common, interrupt: &mut CtrlC, run_id: RunId) -> Result<u8, Failure> {
    let code = wait::detached(&[run_id]);
    if !interrupt.pressed_again().await {
        return Ok(code);
    }
    let link = DaemonLink::open(&common.place).await?;
    let run = cancel::after_second_ctrl_c(&link, run_id).await?;
    if common.json {
        print::object(&run)?;
    }
    Ok(exit::of_run(&run.state, run.needs_review))
}

/// Prints how many descendants of an ended run are still open.
pub(crate) async fn print_open_descendants(
    link: &DaemonLink,
    run: &shapes::Run,
) -> Result<(), Failure> {
    let open = view::tree_of(link, run.run_id)
        .await?
        .iter()
        .filter(|other| other.run_id != run.run_id && !tree::is_ended(&other.state))
        .count();
    if open > 0 && tree::is_ended(&run.state) {
        let runs = if open == 1 {
            "descendant is"
        } else {
            "descendants are"
        };
        print::note(&format!(
            "{open} {runs} still open: abide ps --tree {}",
            text::short(run.run_id)
        ));
    }
    Ok(())
}
