//! `cargo bench --features floors`: the speed targets, each measured beside its floor in one call on one
//! machine. Floors and daemon are processes of their own behind real sockets; the load comes
//! from one thread here. `docs/performance.md` says how to read the figures.

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock; the ban is there for the product"
)]
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]
#![expect(clippy::print_stderr, reason = "progress, for whoever waits")]

mod announces;
mod build;
mod calls;
mod client;
mod daemon;
mod fanout;
mod figure;
mod floor;
mod grown;
mod history;
mod long;
mod machine;
mod measure;
mod pages;
mod report;
mod sample;
mod skills;
mod starts;
mod talk;
mod target;
mod turns;
mod waits;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Anything may go wrong here, and all of it ends the benchmark.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Measures the speed targets beside their floors
///
/// Without arguments: everything that takes about three minutes. What needs a long history
/// (P10, P11, and the starts of P7 with a million finished and with 10,000 open runs) is
/// measured with --all, or when --only names it. Histories are made once, a million runs in
/// some minutes, and kept below target/tmp: about 6 GB with those of the floor.
#[derive(Debug, Parser)]
#[command(name = "targets", args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Fewer and shorter rounds: a look, not a figure to quote
    #[arg(long)]
    quick: bool,

    /// Also what takes long
    #[arg(long, conflicts_with = "only")]
    all: bool,

    /// Only these targets, with all that belongs to them: --only P4,P11
    #[arg(long, value_name = "IDS", value_delimiter = ',', ignore_case = true)]
    #[arg(value_parser = measure::IDS)]
    only: Vec<String>,

    /// Finished runs of the longest history
    #[arg(long, value_name = "RUNS", default_value_t = 1_000_000)]
    history: u64,

    /// Print everything, every round of it, as JSON
    #[arg(long)]
    json: bool,

    /// Measure this daemon instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,

    /// Given by `cargo bench`; without it nothing is measured
    #[arg(long, hide = true)]
    bench: bool,

    #[command(subcommand)]
    floor: Option<Floor>,
}

impl Arguments {
    fn plan(&self) -> measure::Plan {
        let mut plan = match self.quick {
            true => measure::Plan::quick(),
            false => measure::Plan::full(),
        };
        plan.long = self.all || !self.only.is_empty();
        plan.only = match self.only.is_empty() {
            true => measure::IDS.map(str::to_owned).into(),
            false => self.only.clone(),
        };
        if !plan.long {
            plan.only.retain(|id| !measure::LONG.contains(&id.as_str()));
        }
        let needs = |ids: &[&str]| plan.long && plan.only.iter().any(|id| ids.contains(&&**id));
        if needs(&["P11"]) {
            let shorter = [1_000, 100_000].into_iter();
            plan.histories
                .extend(shorter.filter(|runs| *runs < self.history));
        }
        if needs(&["P7", "P10", "P11"]) {
            plan.histories.push(self.history);
        }
        plan
    }
}

#[derive(Debug, Subcommand)]
enum Floor {
    /// Be the bare server with its database in this folder; ends with its standard input
    #[command(hide = true)]
    Floor { folder: PathBuf },
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(Floor::Floor { folder }) = arguments.floor {
        return floor::serve(&folder);
    }
    if !arguments.bench {
        // `cargo test --all-targets` comes by here: no test is timed.
        println!("nothing is measured without cargo bench");
        return Ok(());
    }
    let plan = arguments.plan();
    let binary = match arguments.binary {
        Some(binary) => binary,
        None => build::dist()?,
    };
    let figures = measure::all(&binary, &plan)?;
    let report = report::Report::new(&binary, figures)?;
    if arguments.json {
        println!("{}", report.json()?);
    } else {
        println!("{report}");
    }
    Ok(())
}
