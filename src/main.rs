//! The program: parse, call the command line, answer with its exit code.

fn main() {}
