//! `abide ps`: lists runs.

mod columns;
mod watch;

use std::collections::HashSet;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use super::{answer, approvals};
use crate::cli::common::failure::Failure;
use crate::cli::common::{Common, ids};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::live::tree;
use crate::cli::output::print;
use crate::cli::output::text::{COLUMNS, TextTable};
use crate::clock::Clock;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::{ListRuns, Runs, State};
use crate::wire::shapes::Run;
use columns::ListFormat;

/// Default number of ended runs that are listed.
const RECENT: usize = 15;

/// List runs: all open ones, and the most recently ended
///
/// On a terminal, rows are cut at its width; otherwise, and with --no-trunc, nothing is cut.
/// Columns: run (the last digits of the id), id, state, agent, age, tools, what, label, title,
/// session, parent, root, model, depth, loops, created, ended, error.
#[derive(Debug, Args)]
#[command(after_help = r#"abide ps --state running --state paused
abide ps --tree @last --watch
abide ps -q --state running
abide ps --all --format "{{.ID}}\t{{.State}}\t{{.Label}}""#)]
pub(crate) struct Ps {
    /// List every run that is kept
    #[arg(long, short)]
    all: bool,

    /// Only runs in this state; may be given again
    #[arg(long, value_name = "STATE", value_parser = states())]
    state: Vec<String>,

    /// Only this run and its descendants
    #[arg(long, value_name = "RUN")]
    tree: Option<String>,

    /// Maximum number of runs, the newest; open ones come first
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,

    /// Print complete ids and nothing else, one per line
    #[arg(long, short, conflicts_with_all = ["format", "watch"])]
    quiet: bool,

    /// These columns (id,state,label), a template ("{id} {state}", "{{.ID}}"), or json for one line
    /// of JSON per run
    #[arg(long, value_name = "FORMAT", value_parser = ListFormat::parse)]
    format: Option<ListFormat>,

    /// Print complete ids and texts, also on a terminal
    #[arg(long)]
    no_trunc: bool,

    /// Redraw the list on changes until q or Ctrl-C; needs a terminal
    #[arg(long, short)]
    watch: bool,
}

fn states() -> PossibleValuesParser {
    let all = State::OPEN.iter().chain(&State::ENDED);
    PossibleValuesParser::new(all.map(|state| state.as_str()))
}

/// Runs, and the total number that match.
struct RunList {
    runs: Vec<Value>,
    total: u64,
}

impl RunList {
    fn runs(&self) -> Result<Vec<Run>, Failure> {
        self.runs.iter().map(link::read).collect()
    }
}

impl Ps {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        if self.watch {
            return self.watch(common).await;
        }
        let link = DaemonLink::open(&common.place).await?;
        let filter = self.filter(&link).await?;
        let listing = self.list(&link, filter).await?;
        if self.quiet {
            for run in listing.runs()? {
                print::answer(&run.run_id.to_string())?;
            }
            return Ok(0);
        }
        match &self.format {
            Some(ListFormat::Json) => {
                for run in &listing.runs {
                    print::object(run)?;
                }
                return Ok(0);
            }
            Some(ListFormat::Template(parts)) => {
                let now = Clock::system().now();
                for run in listing.runs()? {
                    print::answer(&columns::filled(parts, &run, now))?;
                }
                return Ok(0);
            }
            _ if common.json => {
                let (runs, total) = (&listing.runs, listing.total);
                print::object(&json!({ "runs": runs, "total": total }))?;
                return Ok(0);
            }
            Some(ListFormat::Table(_)) => {}
            None => people(&link).await?,
        }
        let runs = listing.runs()?;
        if !runs.is_empty() {
            let width = print::screen_width().filter(|_| !self.no_trunc);
            print::answer(&self.table(&runs, width).join("\n"))?;
        }
        print::note(&self.sum(runs.len(), listing.total));
        Ok(0)
    }

    /// The filter that the options describe, without the limit.
    async fn filter(&self, link: &DaemonLink) -> Result<ListRuns, Failure> {
        let tree = match &self.tree {
            Some(tree) => Some(ids::run(link, tree).await?),
            None => None,
        };
        let wanted = |state: &State| self.state.iter().any(|wanted| wanted == state.as_str());
        Ok(ListRuns {
            states: State::OPEN
                .into_iter()
                .chain(State::ENDED)
                .filter(wanted)
                .collect(),
            tree,
            limit: PageSize(PAGE_LIMIT),
            total: true,
            ..ListRuns::default()
        })
    }

    async fn list(&self, link: &DaemonLink, filter: ListRuns) -> Result<RunList, Failure> {
        let limit = self.limit.map(|limit| limit as usize);
        let is_whole = self.all || !self.state.is_empty() || self.tree.is_some();
        if is_whole {
            return pages(link, filter, limit.unwrap_or(usize::MAX)).await;
        }
        let of = |states: &[State]| ListRuns {
            states: states.into(),
            ..filter.clone()
        };
        let open = pages(link, of(&State::OPEN), limit.unwrap_or(usize::MAX)).await?;
        let room = limit.map_or(RECENT, |limit| limit - open.runs.len());
        let ended = pages(link, of(&State::ENDED), room).await?;
        // A run that ended between the two requests is in both replies.
        let known: HashSet<&str> = open.runs.iter().map(id).collect();
        let new = ended.runs.iter().filter(|run| !known.contains(id(run)));
        let runs: Vec<Value> = open.runs.iter().chain(new).cloned().collect();
        Ok(RunList {
            runs,
            total: open.total + ended.total,
        })
    }

    /// Formats these runs as a table of at most `width` columns.
    fn table(&self, runs: &[Run], width: Option<usize>) -> Vec<String> {
        let columns = match &self.format {
            Some(ListFormat::Table(columns)) => columns.clone(),
            _ => columns::usual(self.no_trunc),
        };
        let now = Clock::system().now();
        let heads: Vec<&'static str> = columns.iter().map(|column| column.head).collect();
        let mut table = TextTable::new(&heads).fit(width);
        if let Some(at) = columns.iter().position(|column| column.is_state()) {
            table = table.painted(at, tree::colour);
        }
        for run in runs {
            table.row(columns.iter().map(|column| column.of(run, now)).collect());
        }
        table.lines()
    }

    /// Summary: the number shown, the total, and how to list the others.
    fn sum(&self, shown: usize, total: u64) -> String {
        let is_whole = self.all || !self.state.is_empty() || self.tree.is_some();
        match (shown as u64, total) {
            (_, 0) if is_whole && !self.all => {
                "no run matches; list all: abide ps --all".to_owned()
            }
            (_, 0) => "no runs; start one: abide run \"TASK\"".to_owned(),
            (1, 1) => "1 run".to_owned(),
            (shown, total) if shown >= total => format!("{total} runs"),
            (shown, total) if is_whole => format!("{shown} of {total} runs"),
            (shown, total) => format!("{shown} of {total} runs; all: abide ps --all"),
        }
    }
}

/// Prints the requests that wait for a user, which come before the runs.
async fn people(link: &DaemonLink) -> Result<(), Failure> {
    let (_, approvals) = approvals::waiting(link, None, false).await?;
    let (_, questions) = answer::waiting(link, None).await?;
    let now = Clock::system().now();
    let columns = print::room(0).max(COLUMNS);
    for approval in &approvals {
        print::folded(&approvals::in_short(approval, now, print::screen_width()))?;
    }
    if !approvals.is_empty() {
        print::note(
            "decide: abide approvals allow ID, or deny ID; details: abide approvals show ID",
        );
    }
    for question in &questions {
        print::folded(&answer::in_short(question, now, columns))?;
    }
    if !questions.is_empty() {
        print::note("answer one: abide answer ID \"text\"; all of them: abide answer");
    }
    Ok(())
}

fn id(run: &Value) -> &str {
    run["runId"].as_str().unwrap_or_default()
}

/// The newest of these runs, at most `limit`, and the total number.
async fn pages(link: &DaemonLink, mut filter: ListRuns, limit: usize) -> Result<RunList, Failure> {
    let mut runs = Vec::new();
    let mut total = None;
    loop {
        let room = limit.saturating_sub(runs.len());
        filter.limit = PageSize(
            u32::try_from(room)
                .unwrap_or(PAGE_LIMIT)
                .clamp(1, PAGE_LIMIT),
        );
        let mut raw = link.raw(&filter).await?;
        let page: Runs = link::read(&raw)?;
        total = total.or(page.total);
        if let Value::Array(page) = raw["runs"].take() {
            runs.extend(page.into_iter().take(room));
        }
        filter.cursor = page.next_cursor;
        // The total is needed only once.
        filter.total = false;
        if filter.cursor.is_none() || runs.len() >= limit {
            let total = total.unwrap_or(runs.len() as u64);
            return Ok(RunList { runs, total });
        }
    }
}
