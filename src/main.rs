//! The program: parse, call the command line, answer with its exit code.

use std::process::ExitCode;

use abide::cli;

fn main() -> ExitCode {
    cli::main()
}
