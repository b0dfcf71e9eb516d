//! `abide logs`: the journal of a run, and the daemon's own log.

mod daemon;

use std::collections::HashSet;

use clap::Args;

use super::args::Common;
use super::failure::{Failure, exit};
use super::follow::{Interrupt, steps};
use super::link::Link;
use super::text::{COLUMNS, line, short, span};
use super::watch::{Seen, Watch};
use super::{ids, print, tree};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::time::Timestamp;
use crate::wire::events::SubscribeEvents;
use crate::wire::shapes::{Run, Step};

/// Show the journal of a run: each step, and what came out of it
///
/// Each line has the step's number, how long after the first one it began, and how it stands:
/// ✓ done, ✗ failed, … under way, ? it is not known whether it took effect.
#[derive(Debug, Args)]
#[command(after_help = "abide logs @last
abide logs --follow docs
abide logs --daemon --follow")]
pub(crate) struct Logs {
    /// The run
    #[arg(value_name = "RUN", required_unless_present = "daemon")]
    run: Option<String>,

    /// Go on until the run has ended; with --daemon until Ctrl-C
    #[arg(long, short)]
    follow: bool,

    /// Show what the daemon itself writes; one that was started with --detach has a file for it
    #[arg(long, conflicts_with = "run")]
    daemon: bool,

    /// With --daemon: how many of the last lines
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
        let link = Link::open(&common.place).await?;
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
        let mut interrupt = Interrupt::new()?;
        // What happens after the first look is an event, so nothing falls in between.
        let request = SubscribeEvents {
            run_id: Some(id),
            kinds: vec!["run.*".to_owned(), "tool.*".to_owned()],
            ..SubscribeEvents::default()
        };
        let mut watch = Watch::open(link, &common.place, request, print::note).await?;
        loop {
            let seen = tokio::select! {
                seen = watch.next(print::note) => seen?,
                () = interrupt.pressed() => return Ok(detached(id)),
            };
            let moved = match seen {
                Seen::Picture(..) => true,
                // An intent is shown with its outcome.
                Seen::Event(event) => event.data["state"] != "intended",
            };
            if !moved {
                continue;
            }
            // The run before its steps: of one that has ended here, no later step is missed.
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

/// What was shown of a journal.
struct Journal {
    json: bool,
    shown: HashSet<StepId>,
    /// When its first step began: what the times are counted from.
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
            attempts => format!("(try {attempts}) "),
        };
        let what = format!("{tries}{}", tree::describe(step));
        let what = line(&what, print::room(0).max(COLUMNS).saturating_sub(14));
        print::folded(&format!(
            "{:>3} {after:>6} {} {what}",
            step.seq,
            tree::mark(step)
        ))
    }

    /// How the run stands, for people.
    fn end(&self, run: &Run) {
        if self.json {
            return;
        }
        let why = run.error.as_ref().map_or(String::new(), |error| {
            format!(": {}", super::text::clean(&error.message))
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
        "no longer followed; the run goes on. Come back: abide logs --follow {}",
        short(id)
    ));
    exit::WINDOW
}
