//! `abide review`: lists calls whose outcome is unknown, and records the user's decision on them.

use clap::{Args, ValueEnum};

use crate::cli::asking::verbatim;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, ids};
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::{age, line, short};
use crate::clock::Clock;
use crate::kernel::ids::StepId;
use crate::kernel::time::Timestamp;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::lifecycle::{Decision, ResolveRun};
use crate::wire::runs::ListRuns;
use crate::wire::shapes::{OpenReview, Run};

/// Resolve calls whose outcome is unknown
///
/// If the daemon is killed during a call that must not be repeated, or the node that runs it is lost,
/// the outcome of the call is unknown. A run of an agent with `on_uncertain: review` is then paused. Check what has happened
/// and record it. Without a run: every open review, with the exact call.
#[derive(Debug, Args)]
#[command(after_help = r#"abide review
abide review 4f2a91c3 done --result "3 rows written"
abide review 4f2a91c3 not-done"#)]
pub(crate) struct Review {
    /// The run
    #[arg(value_name = "RUN", requires = "said")]
    run: Option<String>,

    /// done: it has happened; not-done: it has not, and is executed now; abort: the run ends
    #[arg(value_name = "DECISION", value_enum)]
    said: Option<ReviewVerdict>,

    /// With done: the call's result, for the model
    #[arg(long, value_name = "TEXT")]
    result: Option<String>,

    /// Number of the step, if several need a review
    #[arg(long, value_name = "N")]
    step: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReviewVerdict {
    Done,
    NotDone,
    Abort,
}

impl Review {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let (Some(named), Some(said)) = (&self.run, self.said) else {
            return list(&link, common).await;
        };
        if self.result.is_some() && said != ReviewVerdict::Done {
            return Err(Failure::usage("--result is valid only with done"));
        }
        let run_id = ids::run(&link, named).await?;
        let run = ids::details(&link, run_id).await?;
        let request = ResolveRun {
            run_id,
            step_id: step(&run, self.step)?,
            decision: match said {
                ReviewVerdict::Done => Decision::Done,
                ReviewVerdict::NotDone => Decision::NotDone,
                ReviewVerdict::Abort => Decision::Abort,
            },
            result: self.result,
        };
        let Some(run) = link.ask_or_print(&request, common).await? else {
            return Ok(0);
        };
        print::note(&match said {
            ReviewVerdict::Abort => format!("run {} has ended", short(run.run_id)),
            _ if !run.reviews.is_empty() => format!(
                "recorded; run {} has {} more open reviews: abide review",
                short(run.run_id),
                run.reviews.len()
            ),
            _ => format!("run {} continues: abide wait {0}", short(run.run_id)),
        });
        Ok(0)
    }
}

/// The step to resolve: the only open one, or the named one.
fn step(run: &Run, named: Option<u32>) -> Result<StepId, Failure> {
    let waiting = || {
        let steps: Vec<String> = run.reviews.iter().map(|one| one.seq.to_string()).collect();
        steps.join(", ")
    };
    match (named, &run.reviews[..]) {
        (_, []) => Err(Failure::new(
            exit::NOT_FOUND,
            "not_found",
            format!(
                "run {} needs no review: it is {}",
                short(run.run_id),
                run.state
            ),
        )
        .hint("list open reviews: abide review")),
        (None, [only]) => Ok(only.step_id),
        (None, _) => Err(Failure::usage(format!(
            "several calls of run {} need a review: steps {}",
            short(run.run_id),
            waiting()
        ))
        .hint("name one: --step N")),
        (Some(seq), all) => match all.iter().find(|one| one.seq == seq) {
            Some(one) => Ok(one.step_id),
            None => Err(Failure::new(
                exit::NOT_FOUND,
                "not_found",
                format!("step {seq} of run {} needs no review", short(run.run_id)),
            )
            .hint(format!("steps that need one: {}", waiting()))),
        },
    }
}

async fn list(link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
    let request = ListRuns {
        needs_review: true,
        limit: PageSize(PAGE_LIMIT),
        ..ListRuns::default()
    };
    let Some(page) = link.ask_or_print(&request, common).await? else {
        return Ok(0);
    };
    if page.runs.is_empty() {
        print::note("no run needs a review");
    }
    let now = Clock::system().now();
    for run in &page.runs {
        print::answer(&show(run, now))?;
    }
    Ok(0)
}

/// Formats a run with its open reviews and the command that resolves them.
fn show(run: &Run, now: Timestamp) -> String {
    let what = run.label.as_deref().unwrap_or(&run.title);
    let head = format!("{} of {}: {what}", short(run.run_id), run.agent);
    let mut out = print::styled(print::HEAD, line(&head, print::room(0)));
    for review in &run.reviews {
        out.push_str(&format!("\n{}", call(review, now)));
    }
    out.push_str(&format!(
        "\n  check whether it has happened, then: abide review {} done|not-done|abort\n",
        short(run.run_id)
    ));
    out
}

/// Formats one call with its exact arguments.
fn call(review: &OpenReview, now: Timestamp) -> String {
    let (seq, tool) = (review.seq, &review.tool);
    let ago = age(review.started_at, now);
    let what = match review.reason {
        None => {
            format!("step {seq}, {tool}, was running when the daemon was killed; started {ago} ago")
        }
        Some(_) => {
            format!("step {seq}, {tool}, has ended without a known outcome; started {ago} ago")
        }
    };
    let mut out = format!("  {}", line(&what, print::room(2)));
    if let Some(reason) = &review.reason {
        out.push_str(&format!("\n  {}", line(reason, print::room(2))));
    }
    let within = print::screen_width().map(|columns| columns.saturating_sub(2));
    let mut shown = verbatim::arguments(&review.arguments, within);
    if shown.is_empty() {
        let summary = review.summary.as_deref();
        shown = summary.map_or_else(String::new, |call| {
            format!("  {}", line(call, print::room(4)))
        });
    }
    for said in shown.lines() {
        out.push_str(&format!("\n  {said}"));
    }
    out
}
