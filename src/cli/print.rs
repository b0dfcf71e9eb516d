//! Writing to the terminal: the answer to standard output, notes to standard error. Colours
//! follow `NO_COLOR` and whether a terminal is there.

use std::io::{self, ErrorKind, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::failure::Failure;

/// For what went well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// For what went wrong.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// For what goes on.
pub(crate) const BUSY: Style = AnsiColor::Cyan.on_default();
/// For what matters less.
pub(crate) const DIM: Style = Style::new().dimmed();
/// For heads.
pub(crate) const HEAD: Style = Style::new().bold();

/// `text` in a style.
pub(crate) fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Prints a part of the answer, with a line end.
pub(crate) fn answer(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(failed)
}

/// Prints an object of the answer on a line of its own.
pub(crate) fn object(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::local("the answer cannot be written as JSON", error))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(failed)
}

/// Prints a note. Notes are a courtesy: where nobody can read them, the work goes on.
pub(crate) fn note(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Is somebody looking at the notes?
pub(crate) fn notes_are_watched() -> bool {
    io::stderr().is_terminal()
}

/// A reader that has seen enough is no failure of the command.
pub(crate) fn failed(error: io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::new(0, CLOSED, ""),
        _ => Failure::local("the answer cannot be printed", error),
    }
}

/// The kind of the failure that ends a command because nobody reads it any more.
pub(crate) const CLOSED: &str = "closed";
