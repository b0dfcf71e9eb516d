//! `abide logs`: prints the journal of a run, or the daemon's own log.

pub(crate) mod daemon;

use std::collections::HashSet;

use clap::Args;

use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, ids};
use crate::cli::link::DaemonLink;
use crate::cli::link::watch::{EventWatch, WatchItem};
use crate::cli::live::follow::{CtrlC, steps};
use crate::cli::live::tree;
use crate::cli::output::print;
use crate::cli::output::text::{COLUMNS, line, short, span};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::time::Timestamp;
use crate::wire::events::SubscribeEvents;
use crate::wire::shapes::{Run, Step};

/// Show the journal of a run: each step and its outcome
///
/// Each line has the step's number, its start relative to the first step, and its state: ✓ done, ✗
/// failed, … running, ? unknown whether it took effect.
#[derive(Debug, Args)]
#[command(after_help = "abide logs @last
abide logs --follow docs
abide logs --daemon --follow")]
pub(crate) struct Logs {
    /// The run
    #[arg(value_name = "RUN", required_unless_present = "daemon")]
    run: Option<String>,

    /// Follow until the run has ended; with --daemon until Ctrl-C
    #[arg(long, short)]
    follow: bool,

    /// Show the daemon's own log; a daemon that was started with --detach writes one to a file
    #[arg(long, conflicts_with = "run")]
    daemon: bool,

    /// With --daemon: number of last lines to show
    #[arg(
        long,
        short = 'n',
        value_name = "N",
        default_value_t = 50,
        requires = "daemon"
    )]
    lines: usize,
}

impl Logs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let Some(run) = &self.run else {
            return daemon::run(common, self.lines, self.follow).await;
        };
        let link = DaemonLink::open(&common.place).await?;
        let id = ids::run(&link, run).await?;
        let mut journal = Journal {
            json: common.json,
            shown: HashSet::new(),
            begun: None,
        };
        if !self.follow {
            for step in &steps(&link, id).await? {
                journal.show(step)?;
            }
            let run = ids::details(&link, id).await?;
            journal.end(&run);
            return Ok(0);
        }
        let mut interrupt = CtrlC::new()?;
        // Everything after the first read is an event, so nothing is missed in between.
        let request = SubscribeEvents {
            run_id: Some(id),
            kinds: vec!["run.*".to_owned(), "tool.*".to_owned()],
            ..SubscribeEvents::default()
        };
        let mut watch = EventWatch::open(link, &common.place, request, print::note).await?;
        loop {
            let seen = tokio::select! {
                seen = watch.next(print::note) => seen?,
                () = interrupt.pressed() => return Ok(detached(id)),
            };
            let moved = match seen {
                WatchItem::Picture(..) => true,
                // An intended step is shown with its outcome.
                WatchItem::Event(event) => event.data["state"] != "intended",
            };
            if !moved {
                continue;
            }
            // Read the run before its steps: if it has ended here, no later step is missed.
            let run = ids::details(&watch.link, id).await?;
            let ended = tree::is_ended(&run.state);
            for step in steps(&watch.link, id).await? {
                if ended || step.ended_at.is_some() {
                    journal.show(&step)?;
                }
            }
            if ended {
                journal.end(&run);
                return Ok(exit::of_run(&run.state, run.needs_review));
            }
        }
    }
}

/// State of the printed journal.
struct Journal {
    json: bool,
    shown: HashSet<StepId>,
    /// Start of the first step, to which the times are relative.
    begun: Option<Timestamp>,
}

impl Journal {
    fn show(&mut self, step: &Step) -> Result<(), Failure> {
        if !self.shown.insert(step.step_id) {
            return Ok(());
        }
        if self.json {
            return print::object(step);
        }
        let begun = *self.begun.get_or_insert(step.started_at);
        let after = format!("+{}", span(step.started_at.since(begun)));
        let tries = match step.attempts {
            0 | 1 => String::new(),
            attempts => format!("(attempt {attempts}) "),
        };
        let what = format!("{tries}{}", tree::describe(step));
        let what = line(&what, print::room(0).max(COLUMNS).saturating_sub(14));
        print::folded(&format!(
            "{:>3} {after:>6} {} {what}",
            step.seq,
            tree::mark(step)
        ))
    }

    /// Prints the run's state as a note.
    fn end(&self, run: &Run) {
        if self.json {
            return;
        }
        let why = run.error.as_ref().map_or(String::new(), |error| {
            format!(": {}", crate::cli::output::text::clean(&error.message))
        });
        print::note(&format!(
            "{} {} is {}{why}",
            line(tree::name(run), 24),
            short(run.run_id),
            run.state
        ));
    }
}

fn detached(id: RunId) -> u8 {
    print::note(&format!(
        "detached; the run continues. Follow it again: abide logs --follow {}",
        short(id)
    ));
    exit::NOT_ENDED
}
