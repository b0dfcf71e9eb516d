//! `cargo bench`: the speed targets, each measured beside its floor in one call on one
//! machine. Floors and daemon are processes of their own behind real sockets; the load comes
//! from one thread here. `docs/performance.md` says how to read the figures.

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock; the ban is there for the product"
)]
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]
#![expect(clippy::print_stderr, reason = "progress, for whoever waits")]

mod build;
mod client;
mod daemon;
mod fanout;
mod floor;
mod machine;
mod measure;
mod report;
mod sample;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Anything may go wrong here, and all of it ends the benchmark.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Measures the speed targets beside their floors
#[derive(Debug, Parser)]
#[command(name = "targets", args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Fewer and shorter rounds: a look, not a figure to quote
    #[arg(long)]
    quick: bool,

    /// Print everything, every round of it, as JSON
    #[arg(long)]
    json: bool,

    /// Measure this daemon instead of building the release binary
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,

    /// Given by `cargo bench`; without it nothing is measured
    #[arg(long, hide = true)]
    bench: bool,

    #[command(subcommand)]
    floor: Option<Floor>,
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
    let binary = match arguments.binary {
        Some(binary) => binary,
        None => build::release()?,
    };
    let plan = match arguments.quick {
        true => measure::Plan::quick(),
        false => measure::Plan::full(),
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
