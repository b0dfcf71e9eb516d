//! Questions to the user at the terminal, outside of a chat.

use std::io::{self, IsTerminal};

use super::failure::Failure;
use crate::cli::output::print;

/// True if a question would be seen and could be answered.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && print::notes_are_watched()
}

/// Prompts for a line on standard input.
pub(crate) fn said(question: &str) -> Result<String, Failure> {
    print::prompt(question);
    let mut line = String::new();
    io::stdin()
        .read_line(&mut line)
        .map_err(|fault| Failure::local("the answer cannot be read", fault))?;
    Ok(line.trim().to_owned())
}

/// Prompts for a yes or no.
pub(crate) fn agrees(question: &str) -> Result<bool, Failure> {
    Ok(matches!(
        &*said(question)?.to_ascii_lowercase(),
        "y" | "yes"
    ))
}
