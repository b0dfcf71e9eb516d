//! `cargo bench --features floors`: the speed targets, each measured with its floor in one run on
//! one machine. Floors and daemon are separate processes behind real sockets; the load comes from
//! one thread here. `docs/performance.md` explains the figures.

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock; the ban is there for the product"
)]
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]
#![expect(clippy::print_stderr, reason = "progress, for the person who waits")]

mod announces;
mod build;
mod calls;
mod client;
mod daemon;
mod doors;
mod fanout;
mod figure;
mod floor;
mod grown;
mod history;
mod long;
mod machine;
mod measure;
mod nodes;
mod pages;
mod programs;
mod report;
mod sample;
mod skills;
mod starts;
mod talk;
mod target;
mod turns;
mod waits;
mod webhooks;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Any error ends the benchmark.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Measures the speed targets and their floors
///
/// Without arguments: everything that takes about three minutes. Targets that need a long history
/// (P10, P11, and the starts of P7 with a million finished and with 10,000 open runs), and P15 and
/// P17, are measured with --all, or when --only names them. Histories are created once, a million runs in a few
/// minutes, and kept in target/tmp: about 6 GB including those of the floor.
#[derive(Debug, Parser)]
#[command(name = "targets", args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Run fewer and shorter rounds; the figures are not fit to be quoted
    #[arg(long)]
    quick: bool,

    /// Also measure targets that take minutes
    #[arg(long, conflicts_with = "only")]
    all: bool,

    /// Measure only these targets and what they depend on: --only P4,P11
    #[arg(long, value_name = "IDS", value_delimiter = ',', ignore_case = true)]
    #[arg(value_parser = measure::IDS)]
    only: Vec<String>,

    /// Number of finished runs of the longest history
    #[arg(long, value_name = "RUNS", default_value_t = 1_000_000)]
    history: u64,

    /// Print all results, including every round, as JSON
    #[arg(long)]
    json: bool,

    /// Measure this daemon instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,

    /// Passed by `cargo bench`; without it nothing is measured
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
    /// Run the bare server with its database in this folder, until standard input closes
    #[command(hide = true)]
    Floor { folder: PathBuf },
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(Floor::Floor { folder }) = arguments.floor {
        return floor::serve(&folder);
    }
    if !arguments.bench {
        // `cargo test --all-targets` also runs this program, and nothing is timed there.
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
