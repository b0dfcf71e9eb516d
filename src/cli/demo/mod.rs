//! `abide demo`: the main use in one command, with a kill in the middle. It runs a real daemon
//! process and real runs on a real folder, and verifies what the daemon reports afterwards.

mod checks;
mod daemon;
mod folder;
mod show;

use clap::Args;
use serde_json::{Value, json};

use self::show::{BROKEN, DemoSummary, QUESTIONS, RunningDemo};
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::live::follow::CtrlC;
use crate::cli::output::print::{self, HEAD, styled};
use crate::cli::output::text::{COLUMNS, clean, line, span};

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
        let mut interrupt = CtrlC::new()?;
        let mut show = RunningDemo::new(common.json, self.keep)?;
        let played = tokio::select! {
            played = show.play() => played,
            () = interrupt.pressed() => Err(Failure::new(
                exit::FAILED,
                "detached",
                "the demo was stopped by Ctrl-C; its daemon was killed",
            )),
        };
        // Draws the last picture before the verdict.
        let mut daemon = show.end();
        match played {
            Ok(summary) => {
                print_summary(&summary, common.json)?;
                if self.keep {
                    print::note(&daemon.how_to_look());
                }
                Ok(0)
            }
            Err(failure) if failure.kind == BROKEN => {
                daemon.keep = true;
                Err(failure.hint(daemon.how_to_look()))
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Prints the findings as the answer and the verdict as a note; with `json`, one object.
fn print_summary(summary: &DemoSummary, json: bool) -> Result<(), Failure> {
    let took_ms = u64::try_from(summary.took.as_millis()).unwrap_or(u64::MAX);
    let quotes: usize = summary.answers.iter().map(Vec::len).sum();
    let answers = QUESTIONS.iter().zip(&summary.answers);
    if json {
        let findings = answers.map(|((label, task), found)| {
            let places: Vec<String> = found.iter().map(|one| one.place()).collect();
            json!({ "label": label, "task": task, "places": places })
        });
        return print::object(&json!({
            "event": "summary",
            "ok": true,
            "pids": [summary.pids.0, summary.pids.1],
            "finishedStepsKept": summary.kept_steps,
            "quotesChecked": quotes,
            "findings": findings.collect::<Vec<Value>>(),
            "tookMs": took_ms,
        }));
    }
    for ((_, task), found) in answers {
        print::answer(&format!("\n{}", styled(HEAD, task)))?;
        for finding in found {
            print::answer(&format!("  {}", line(&finding.text(), COLUMNS - 2)))?;
        }
        if found.is_empty() {
            print::answer("  (nothing in this folder)")?;
        }
    }
    print::note(&clean(&format!(
        "\n✓ {} runs survived kill -9 of daemon {} and resumed in daemon {}:\n  \
             {} finished steps kept and none repeated, each end announced once,\n  \
             {quotes} quotes checked against the files, {} in all",
        summary.answers.len(),
        summary.pids.0,
        summary.pids.1,
        summary.kept_steps,
        span(took_ms),
    )));
    Ok(())
}
