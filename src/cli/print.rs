//! Writing to the terminal: the answer to standard output, notes to standard error. Colours
//! follow `NO_COLOR` and whether a terminal is there.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::failure::Failure;
use super::markdown::Markdown;
use super::text::{clean, flow, fold};

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

/// Prints a text that was written by a model or a person. On a terminal its long lines are
/// parted between words, and its Markdown is shown as such where there are colours; anywhere
/// else it stays as it is.
pub(crate) fn prose(text: &str) -> Result<(), Failure> {
    let has_styles = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
    match screen_width().filter(|_| has_styles) {
        Some(columns) => answer(&Markdown::render(text, columns)),
        None => answer(&for_screen(text, 0)),
    }
}

/// A text as [`prose`] prints it, to be a part of something in which it stands behind `indent`
/// columns.
pub(crate) fn for_screen(text: &str, indent: usize) -> String {
    let clean = clean(text);
    let text = clean.trim_end();
    match screen_width() {
        Some(columns) => flow(text, columns - indent),
        None => text.to_owned(),
    }
}

/// A note, whose first line stands behind `indent` columns, as lines that a terminal takes whole.
pub(crate) fn note_for_screen(text: &str, indent: usize) -> String {
    match notes_width() {
        Some(columns) => fold(text, columns, indent),
        None => text.to_owned(),
    }
}

/// Prints lines of the answer that are no table; a terminal gets them parted between words.
pub(crate) fn folded(text: &str) -> Result<(), Failure> {
    match screen_width() {
        Some(columns) => answer(&fold(text, columns, 0)),
        None => answer(text),
    }
}

/// How wide the terminal is that the answer goes to, if it goes to one.
pub(crate) fn screen_width() -> Option<usize> {
    width_of(io::stdout())
}

/// How wide the terminal is that the notes go to, if they go to one.
pub(crate) fn notes_width() -> Option<usize> {
    width_of(io::stderr())
}

/// How many columns a line of the answer may have behind so many that are taken: as many as the
/// terminal has, and any number where it goes to none, so that nothing is cut for a program.
pub(crate) fn room(taken: usize) -> usize {
    screen_width().map_or(usize::MAX, |columns| columns.saturating_sub(taken))
}

/// The same of a note.
pub(crate) fn note_room(taken: usize) -> usize {
    notes_width().map_or(usize::MAX, |columns| columns.saturating_sub(taken))
}

/// Columns and lines of the terminal that the notes go to, if they go to one that says so.
pub(crate) fn notes_size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    let size = (usize::from(size.ws_col), usize::from(size.ws_row));
    Some(size).filter(|(columns, rows)| *columns > 0 && *rows > 0)
}

fn width_of(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns >= NARROW)
}

/// A screen that is narrower than this is left to part lines itself.
const NARROW: usize = 20;

/// Prints an object of the answer on a line of its own.
pub(crate) fn object(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::local("the answer cannot be written as JSON", error))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(failed)
}

/// Prints a note; lines that a terminal would break are parted between words. Notes are a courtesy:
/// where they cannot be read, the work goes on.
pub(crate) fn note(text: &str) {
    let text = note_for_screen(text, 0);
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Asks for a line, which is typed behind the text.
pub(crate) fn prompt(text: &str) {
    let mut err = anstream::stderr().lock();
    let _ = write!(err, "{text}").and_then(|()| err.flush());
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
