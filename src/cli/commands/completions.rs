//! `abide completions`: generates shell completion scripts.

use std::io::Write;

use clap::Args;
use clap_complete::Shell;

use crate::cli::common::failure::Failure;
use crate::cli::help;
use crate::cli::output::print;

/// Print completions for a shell
///
/// Bash wants the file in ~/.local/share/bash-completion/completions, fish in
/// ~/.config/fish/completions, zsh in any folder of its fpath, under the name _abide.
#[derive(Debug, Args)]
#[command(after_help = "\
abide completions bash > ~/.local/share/bash-completion/completions/abide
abide completions fish > ~/.config/fish/completions/abide.fish
abide completions zsh > ~/.zfunc/_abide")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> Result<u8, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(
            self.shell,
            &mut help::command_with_help(),
            "abide",
            &mut script,
        );
        let mut out = std::io::stdout().lock();
        out.write_all(&script)
            .and_then(|()| out.flush())
            .map_err(print::failed)?;
        Ok(0)
    }
}
