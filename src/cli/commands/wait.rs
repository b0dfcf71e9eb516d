//! `abide wait`: waits for runs and prints their answers.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::cli::asking::blocker;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, duration, ids};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::link::discover::Where;
use crate::cli::live::follow::{CtrlC, FollowOutcome, Task, follow};
use crate::cli::live::tree;
use crate::cli::output::{print, text};
use crate::kernel::ids::RunId;
use crate::wire::runs::{Waited, WaitedRun};
use crate::wire::shapes::Run;

/// Wait for runs and print their answers
///
/// A wait changes nothing about a run: after a timeout or Ctrl-C the run goes on and can be waited
/// for again. Each request that needs a user is printed with the command that answers it; without a
/// terminal the wait then ends with exit code 8. A lost connection to the daemon is retried for 60
/// s.
#[derive(Debug, Args)]
#[command(after_help = "abide wait @last
abide wait --any --timeout 30s 4f2a91c3 docs")]
pub(crate) struct CliWaitArgs {
    /// The runs to wait for
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,

    /// Return once one of them has ended
    #[arg(long)]
    any: bool,

    /// Timeout of the wait, such as 30s [default: until they have ended]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
}

impl CliWaitArgs {
    /// A wait for this run without a timeout.
    pub(crate) fn of(run: RunId) -> CliWaitArgs {
        CliWaitArgs {
            runs: vec![run.to_string()],
            any: false,
            timeout: None,
        }
    }

    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let mut runs = Vec::new();
        for text in &self.runs {
            runs.push(ids::run(&link, text).await?);
        }
        let task = Task {
            ids: &runs,
            any: self.any,
            timeout: self.timeout,
            show: !common.json,
            json: common.json,
            person: None,
            conversation: None,
        };
        let mut interrupt = CtrlC::new()?;
        let mut needs_person = false;
        let raw = match follow(link, &common.place, task, &mut interrupt).await? {
            FollowOutcome::Done(raw) | FollowOutcome::TimedOut(raw) => raw,
            FollowOutcome::NeedsPerson(raw) => {
                needs_person = true;
                raw
            }
            FollowOutcome::Detached(_) => return Ok(detached(&runs)),
        };
        if common.json {
            print::object(&raw)?;
        }
        let waited: Waited = link::read(&raw)?;
        let several = waited.runs.len() > 1;
        let mut code = 0;
        for entry in &waited.runs {
            let its_code = match entry {
                WaitedRun::Known { run, .. } => {
                    if !common.json {
                        print_pause(&common.place, run).await;
                        result(run, several)?;
                    }
                    exit::of_run(&run.state, run.needs_review)
                }
                WaitedRun::Unknown { run_id, .. } => {
                    if !common.json {
                        print::note(&format!("no run has the id {run_id}"));
                    }
                    exit::NOT_FOUND
                }
            };
            let counts = !(self.any && waited.done && its_code == exit::NOT_ENDED);
            if code == 0 && counts {
                code = its_code;
            }
        }
        Ok(if needs_person { exit::NEEDS_USER } else { code })
    }
}

/// Prints the outcome of a run: its text as the answer, everything else as notes.
pub(crate) fn result(run: &Run, with_head: bool) -> Result<(), Failure> {
    let who = format!("{} {}", tree::name(run), text::short(run.run_id));
    if with_head && tree::is_ended(&run.state) {
        print::answer(&print::styled(print::HEAD, text::line(&who, 78)))?;
    }
    if let Some(result) = &run.result {
        print::prose(result)?;
    }
    outcome(run);
    Ok(())
}

/// Prints what a paused run waits for, and how to wait for it again.
pub(crate) async fn print_pause(place: &Where, run: &Run) {
    if &*run.state != "paused" || run.error.is_some() {
        return;
    }
    let why = match DaemonLink::open(place).await {
        Ok(link) => blocker::pause_text(&link, run).await,
        Err(_) => tree::pause(run),
    };
    print::note(&format!(
        "{} {} {why}; then: abide wait {}",
        text::line(tree::name(run), 30),
        text::short(run.run_id),
        text::short(run.run_id)
    ));
}

/// Prints how a run ended, unless it ended ok, and where the rest of a truncated text is.
pub(crate) fn outcome(run: &Run) {
    let who = format!("{} {}", tree::name(run), text::short(run.run_id));
    let digits = text::short(run.run_id);
    match (&*run.state, &run.error) {
        ("ok", _) => {}
        (state, Some(error)) => print::note(&format!(
            "{}: ended {state}: {}\n  retry it: abide retry {digits}",
            text::line(&who, 40),
            text::clean(&error.message)
        )),
        (state, None) if tree::is_ended(state) => {
            print::note(&format!(
                "{}: ended {state}\n  retry it: abide retry {digits}",
                text::line(&who, 40)
            ));
        }
        // `standing` has already printed its state.
        ("paused", None) => {}
        (state, None) => print::note(&format!(
            "{}: {state}, still open; wait again: abide wait {digits}",
            text::line(&who, 40)
        )),
    }
    if run.result_truncated {
        print::note(&format!(
            "the answer was truncated; see all of it: abide history {digits}"
        ));
    }
}

/// Prints how to wait again after Ctrl-C, and returns the exit code.
pub(crate) fn detached(runs: &[RunId]) -> u8 {
    let digits: Vec<String> = runs.iter().map(text::short).collect();
    print::note(&format!(
        "detached; the work continues. Wait again: abide wait {}",
        digits.join(" ")
    ));
    exit::NOT_ENDED
}

/// The run in the reply of a wait for one run.
pub(crate) fn only(raw: &Value) -> Result<Run, Failure> {
    let waited: Waited = link::read(raw)?;
    match waited.runs.into_iter().next() {
        Some(WaitedRun::Known { run, .. }) => Ok(*run),
        _ => Err(Failure::new(
            exit::NOT_FOUND,
            "not_found",
            "the run no longer exists",
        )),
    }
}
