//! The binary: runs the command line and returns its exit code.

use std::process::ExitCode;

use abide::cli;

fn main() -> ExitCode {
    cli::main()
}
