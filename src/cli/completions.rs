//! `abide completions`: what a shell needs to complete this program's commands.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::args::Arguments;
use super::failure::Failure;
use super::print;

/// Print completions for a shell
///
/// For bash: abide completions bash > ~/.local/share/bash-completion/completions/abide
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> Result<u8, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "abide", &mut script);
        let mut out = std::io::stdout().lock();
        out.write_all(&script)
            .and_then(|()| out.flush())
            .map_err(print::failed)?;
        Ok(0)
    }
}
