//! Writes to the terminal: answers to standard output, notes to standard error. Colours follow
//! `NO_COLOR` and whether the stream is a terminal.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::markdown::Markdown;
use super::text::{COLUMNS, clean, flow, fold};
use crate::cli::common::failure::Failure;

/// Style of success.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Style of failure.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// Style of running work.
pub(crate) const BUSY: Style = AnsiColor::Cyan.on_default();
/// Style of secondary text.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Style of headings.
pub(crate) const HEAD: Style = Style::new().bold();

/// Formats `text` in a style.
pub(crate) fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Prints a part of the answer and a line end.
pub(crate) fn answer(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(failed)
}

/// Prints a text of a model or a user. On a terminal, long lines are wrapped between words, and
/// Markdown is rendered if colours are on; otherwise the text keeps its lines.
pub(crate) fn prose(text: &str) -> Result<(), Failure> {
    let has_styles = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
    match screen_width().filter(|_| has_styles) {
        Some(columns) => answer(&Markdown::render(text, columns)),
        None => answer(&for_screen(text, 0)),
    }
}

/// Formats a text like [`prose`] without Markdown, for a position behind `indent` columns.
pub(crate) fn for_screen(text: &str, indent: usize) -> String {
    let clean = clean(text);
    let text = clean.trim_end();
    match screen_width() {
        Some(columns) => flow(text, columns - indent),
        None => text.to_owned(),
    }
}

/// Wraps a note for the terminal; its first line starts behind `indent` columns.
pub(crate) fn note_for_screen(text: &str, indent: usize) -> String {
    match notes_width() {
        Some(columns) => fold(text, columns, indent),
        None => text.to_owned(),
    }
}

/// Prints lines of the answer that are not a table; on a terminal they are wrapped between words.
pub(crate) fn folded(text: &str) -> Result<(), Failure> {
    match screen_width() {
        Some(columns) => answer(&fold(text, columns, 0)),
        None => answer(text),
    }
}

/// Width of the answer's terminal; `None` without one, or if it is narrower than 20 columns.
pub(crate) fn screen_width() -> Option<usize> {
    width_of(io::stdout())
}

/// Width for wrapped text of the answer: that of the terminal, at most 80 columns.
pub(crate) fn columns() -> usize {
    screen_width().map_or(COLUMNS, |columns| columns.min(COLUMNS))
}

/// Width of the notes' terminal; `None` without one, or if it is narrower than 20 columns.
pub(crate) fn notes_width() -> Option<usize> {
    width_of(io::stderr())
}

/// Columns that are left in a line of the answer after `taken`; unlimited without a terminal, so
/// that nothing is cut for a program.
pub(crate) fn room(taken: usize) -> usize {
    screen_width().map_or(usize::MAX, |columns| columns.saturating_sub(taken))
}

/// Like [`room`], for a note.
pub(crate) fn note_room(taken: usize) -> usize {
    notes_width().map_or(usize::MAX, |columns| columns.saturating_sub(taken))
}

/// Columns and rows of the notes' terminal, if there is one that reports its size.
pub(crate) fn notes_size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    let size = (usize::from(size.ws_col), usize::from(size.ws_row));
    Some(size).filter(|(columns, rows)| *columns > 0 && *rows > 0)
}

fn width_of(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns >= NARROW)
}

/// Minimum width; a narrower terminal wraps lines itself.
const NARROW: usize = 20;

/// Prints a JSON object of the answer on its own line.
pub(crate) fn object(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::local("the answer cannot be written as JSON", error))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(failed)
}

/// Prints a note; long lines are wrapped between words. Notes are optional: a failed write is
/// ignored.
pub(crate) fn note(text: &str) {
    let text = note_for_screen(text, 0);
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Prints a prompt; the user types behind it.
pub(crate) fn prompt(text: &str) {
    let mut err = anstream::stderr().lock();
    let _ = write!(err, "{text}").and_then(|()| err.flush());
}

/// True if the notes go to a terminal.
pub(crate) fn notes_are_watched() -> bool {
    io::stderr().is_terminal()
}

/// The failure for a failed write of the answer; a closed pipe exits with 0.
pub(crate) fn failed(error: io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::new(0, CLOSED, ""),
        _ => Failure::local("the answer cannot be printed", error),
    }
}

/// Failure kind for output whose reader has closed it.
pub(crate) const CLOSED: &str = "closed";
