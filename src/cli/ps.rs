//! `abide ps`: which runs there are.

use std::collections::HashSet;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use super::args::Common;
use super::failure::Failure;
use super::link::{self, Link};
use super::text::{Table, age, short};
use super::{answer, approvals, ids, print, tree};
use crate::clock::Clock;
use crate::kernel::time::Timestamp;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::{ListRuns, Runs, State};
use crate::wire::shapes::Run;

/// How many ended runs are shown where nothing else is asked for.
const RECENT: u32 = 15;
const OPEN: [State; 4] = [
    State::Queued,
    State::Running,
    State::Paused,
    State::Settling,
];
const ENDED: [State; 5] = [
    State::Ok,
    State::Error,
    State::Timeout,
    State::Cancelled,
    State::Interrupted,
];

/// List runs: those that go on, and the last that have ended
#[derive(Debug, Args)]
#[command(after_help = "abide ps --state running --state paused
abide ps --tree @last")]
pub(crate) struct Ps {
    /// Every run that is kept
    #[arg(long)]
    all: bool,

    /// Only runs in this state; may be given again
    #[arg(long, value_name = "STATE", value_parser = states())]
    state: Vec<String>,

    /// Only the tree below this run, itself included
    #[arg(long, value_name = "RUN")]
    tree: Option<String>,
}

fn states() -> PossibleValuesParser {
    PossibleValuesParser::new(OPEN.iter().chain(&ENDED).map(|state| state.as_str()))
}

impl Ps {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = Link::open(&common.place).await?;
        let mut filter = ListRuns {
            limit: PageSize(PAGE_LIMIT),
            ..ListRuns::default()
        };
        filter.states = OPEN
            .into_iter()
            .chain(ENDED)
            .filter(|state| self.state.iter().any(|wanted| wanted == state.as_str()))
            .collect();
        if let Some(tree) = &self.tree {
            let run = ids::run(&link, tree).await?;
            filter.tree = Some(ids::details(&link, run).await?.root_run_id);
        }
        let whole = self.all || !self.state.is_empty() || self.tree.is_some();
        let runs = if whole {
            pages(&link, filter).await?
        } else {
            recent(&link).await?
        };
        if common.json {
            print::object(&json!({ "runs": runs }))?;
            return Ok(0);
        }
        // What waits for a person comes first, whatever else goes on.
        let (_, approvals) = approvals::waiting(&link, None).await?;
        let (_, questions) = answer::waiting(&link, None).await?;
        let now = Clock::system().now();
        for approval in &approvals {
            print::answer(&approvals::in_short(approval, now))?;
        }
        if !approvals.is_empty() {
            print::note(
                "decide: abide approvals allow ID, or deny ID; whole: abide approvals show ID",
            );
        }
        for question in &questions {
            print::answer(&answer::in_short(question, now))?;
        }
        if !questions.is_empty() {
            print::note("answer one: abide answer ID \"text\"; all of them: abide answer");
        }
        let runs: Vec<Run> = runs.iter().map(link::read).collect::<Result<_, _>>()?;
        show(&runs)?;
        Ok(0)
    }
}

/// Every run that goes on, then the last that have ended.
async fn recent(link: &Link) -> Result<Vec<Value>, Failure> {
    let open = ListRuns {
        states: OPEN.into(),
        limit: PageSize(PAGE_LIMIT),
        ..ListRuns::default()
    };
    let mut runs = pages(link, open).await?;
    let last = ListRuns {
        states: ENDED.into(),
        limit: PageSize(RECENT),
        ..ListRuns::default()
    };
    // A run that ended between the two questions is in both answers.
    let known: HashSet<String> = runs.iter().map(id).collect();
    let (ended, _) = page(link, &last).await?;
    runs.extend(ended.into_iter().filter(|run| !known.contains(&id(run))));
    Ok(runs)
}

fn id(run: &Value) -> String {
    run["runId"].as_str().unwrap_or_default().to_owned()
}

async fn pages(link: &Link, mut filter: ListRuns) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    loop {
        let (runs, next) = page(link, &filter).await?;
        all.extend(runs);
        if next.is_none() {
            return Ok(all);
        }
        filter.cursor = next;
    }
}

async fn page(link: &Link, filter: &ListRuns) -> Result<(Vec<Value>, Option<String>), Failure> {
    let mut raw = link.raw("runs.list", filter).await?;
    let next = link::read::<Runs>(&raw)?.next_cursor;
    let runs = match raw["runs"].take() {
        Value::Array(runs) => runs,
        _ => Vec::new(),
    };
    Ok((runs, next))
}

fn show(runs: &[Run]) -> Result<(), Failure> {
    if runs.is_empty() {
        print::note("no runs; start one: abide run \"what is to be done\"");
        return Ok(());
    }
    let now = Clock::system().now();
    let heads = ["RUN", "STATE", "AGENT", "AGE", "TOOLS", "WHAT"];
    let mut table = Table::new(&heads).painted(1, tree::colour);
    for run in runs {
        table.row(vec![
            short(run.run_id),
            run.state.to_string(),
            run.agent.to_string(),
            age(run.created_at, now),
            run.tool_calls.to_string(),
            what(run, now),
        ]);
    }
    print::answer(&table.lines().join("\n"))
}

/// What there is to know about a run in one line: news first, they must not be cut off.
fn what(run: &Run, now: Timestamp) -> String {
    let name = run.label.as_deref().unwrap_or(&run.title);
    let news = match (&*run.state, &run.step) {
        ("queued", _) if run.held_up.is_some() => run.held_up.clone().unwrap_or_default(),
        ("paused", _) => tree::pause(run),
        (state, Some(step)) if !tree::is_ended(state) => {
            let quiet = age(run.last_activity_at, now);
            format!("step {} {}, {quiet} ago", step.seq, step.what)
        }
        _ => match &run.error {
            Some(error) => error.message.clone(),
            None => String::new(),
        },
    };
    if news.is_empty() {
        name.to_owned()
    } else {
        format!("{news}: {name}")
    }
}
