//! The program: parse, call the command line, answer with its exit code.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    abide::cli::execute(abide::cli::Arguments::parse())
}
