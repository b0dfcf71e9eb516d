//! `abide demo`: the main use in one command, with a kill in the middle. It runs a real daemon
//! process and real runs on a real folder, and verifies what the daemon reports afterwards.

mod findings;
mod journal;
mod place;
mod show;
mod stage;
mod summary;
mod verdict;

use clap::Args;

use self::show::Show;
use super::args::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::live::follow::Interrupt;
use crate::cli::output::print;

/// Label and task of each subagent. Any tree of source code has an answer to each.
const QUESTIONS: [(&str, &str); 3] = [
    ("start", "Where is the entry point? Look for \"main(\"."),
    (
        "errors",
        "Which errors can happen, and how are they reported?",
    ),
    (
        "settings",
        "Which settings are there, and what are their defaults?",
    ),
];

/// Show the main use, with a kill -9 in the middle
///
/// Starts its own daemon, has three subagents explore the current folder (a sample if that is
/// empty), kills the daemon while they work, starts it again, and shows that each run resumes at
/// its step, finishes and is announced once. Needs no key and no network. The exit code is 0 only
/// if all of that held.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Keep the state folder and print how to inspect it
    #[arg(long)]
    keep: bool,
}

impl Demo {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        common.place.refuse_all("demo")?;
        let mut interrupt = Interrupt::new()?;
        let mut show = Show::new(common.json)?;
        if self.keep {
            show.stage.keep();
        }
        let played = tokio::select! {
            played = show.play() => played,
            () = interrupt.pressed() => Err(Failure::new(
                exit::FAILED,
                "detached",
                "the demo was stopped by Ctrl-C; its daemon was killed",
            )),
        };
        // Draws the last picture before the verdict.
        let Show {
            mut stage, view, ..
        } = show;
        drop(view);
        match played {
            Ok(summary) => {
                summary.print(common.json)?;
                if self.keep {
                    print::note(&stage.how_to_look());
                }
                Ok(0)
            }
            Err(failure) if failure.kind == BROKEN => {
                stage.keep();
                Err(failure.hint(stage.how_to_look()))
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Failure kind of a broken guarantee.
const BROKEN: &str = "demo_failed";

fn broken(check: &str, detail: impl std::fmt::Display) -> Failure {
    Failure::new(
        exit::FAILED,
        BROKEN,
        format!("demo failed: {check}: {detail}"),
    )
}
