//! Live display on standard error: lines that are redrawn in place, and a prompt below them.
//! Without a suitable terminal nothing is drawn, and the callers print plain lines instead.
//! `view.rs` decides what is shown.

use std::io::Write;

use crossterm::Command;
use crossterm::cursor::{MoveDown, MoveToColumn, MoveUp};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap,
    EndSynchronizedUpdate,
};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use unicode_width::UnicodeWidthStr;

use super::print;
use super::text::fold;
use crate::cli::asking::person;

/// Assumed columns and rows of a terminal that does not report its size.
const USUAL: (usize, usize) = (80, 24);

/// Number of columns that are reserved for what is typed behind a prompt.
const TYPED: usize = 10;

/// Lines that are redrawn in place.
pub(crate) struct Screen {
    canvas: Canvas,
    /// Restores the terminal's mode when the screen is dropped.
    _silence: Option<Silence>,
}

impl Screen {
    /// A screen on standard error; `None` if it would not be visible.
    pub(crate) fn new() -> Option<Screen> {
        Screen::is_possible().then(|| Screen {
            canvas: Canvas::default(),
            _silence: Silence::keep(),
        })
    }

    /// True if standard error is a terminal that can be drawn on.
    pub(crate) fn is_possible() -> bool {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        print::notes_are_watched() && !is_dumb
    }

    /// Maximum number of columns and lines of a picture.
    pub(crate) fn room() -> (usize, usize) {
        let (columns, rows) = print::notes_size().unwrap_or(USUAL);
        // The prompt's line and the cursor's line are below it.
        (columns, rows.saturating_sub(2).max(1))
    }

    /// Replaces the drawn lines.
    pub(crate) fn draw(&mut self, lines: Vec<String>) {
        if self.canvas.lines != lines {
            self.canvas.lines = lines;
            self.paint("");
        }
    }

    /// Runs `work` while the live part is removed from the screen, and draws it again afterwards.
    pub(crate) fn aside<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before = std::mem::take(&mut self.canvas);
        self.canvas.drawn = before.drawn;
        self.paint("");
        let done = work();
        self.canvas.lines = before.lines;
        self.canvas.prompt = before.prompt;
        self.canvas.lead = before.lead;
        self.paint("");
        done
    }

    /// Prints a text above the live part, where it stays.
    pub(crate) fn keep(&mut self, text: &str) {
        let text = print::note_for_screen(text, 0);
        self.paint(text.trim_end_matches('\n'));
    }

    /// Like [`Screen::keep`], and replaces the drawn lines at the same time.
    pub(crate) fn keep_above(&mut self, text: &str, lines: Vec<String>) {
        self.canvas.lines = lines;
        self.paint(text.trim_end_matches('\n'));
    }

    /// Shows a prompt with the text typed so far below the picture; `None` removes it.
    pub(crate) fn ask(&mut self, prompt: Option<(&str, &str)>) {
        let (columns, _) = print::notes_size().unwrap_or(USUAL);
        let room = columns.saturating_sub(TYPED).max(TYPED);
        self.canvas.lead.clear();
        self.canvas.prompt = prompt.map(|(prompt, typed)| {
            let folded = fold(prompt, room, 0);
            let mut lines: Vec<String> = folded.split('\n').map(str::to_owned).collect();
            let last = lines.pop().unwrap_or_default();
            self.canvas.lead = lines;
            (last, typed.to_owned())
        });
        self.paint("");
    }

    fn paint(&mut self, above: &str) {
        let (columns, _) = print::notes_size().unwrap_or(USUAL);
        write(&coloured(self.canvas.paint(above, columns)));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let before = std::mem::take(&mut self.canvas);
        if !before.drawn.is_empty() || before.prompt.is_some() {
            self.canvas.drawn = before.drawn;
            self.paint("");
        }
    }
}

/// Content of the live part, and what is drawn of it.
#[derive(Default)]
struct Canvas {
    lines: Vec<String>,
    /// All lines but the last of a prompt that does not fit one line.
    lead: Vec<String>,
    /// Widths of the drawn lines above the cursor's line.
    drawn: Vec<usize>,
    /// The prompt and the typed text, on the cursor's line.
    prompt: Option<(String, String)>,
}

impl Canvas {
    /// Terminal sequence that replaces the drawn picture by `above`, the lines and the prompt.
    fn paint(&mut self, above: &str, columns: usize) -> String {
        let mut out = String::new();
        add(&mut out, BeginSynchronizedUpdate);
        add(&mut out, MoveToColumn(0));
        let height = self.height(columns);
        up(&mut out, height);
        if self.lines.is_empty() || !above.is_empty() {
            // Line by line: some terminals keep text that is cleared from the top of the screen
            // down.
            for _ in 0..height {
                add(&mut out, Clear(ClearType::CurrentLine));
                add(&mut out, MoveDown(1));
            }
            add(&mut out, Clear(ClearType::CurrentLine));
            up(&mut out, height);
        }
        if !above.is_empty() {
            out.push_str(&above.replace('\n', "\r\n"));
            out.push_str("\r\n");
        }
        // If a terminal takes a character for wider than it is, it then cuts the line instead of
        // using one more row than is counted here.
        add(&mut out, DisableLineWrap);
        self.drawn.clear();
        for line in self.lines.iter().chain(&self.lead) {
            // Clear before the text: at the end of a full line it would erase the last character.
            add(&mut out, Clear(ClearType::UntilNewLine));
            out.push_str(line);
            out.push_str("\r\n");
            self.drawn.push(plain(line).width());
        }
        if !self.lines.is_empty() || !self.lead.is_empty() {
            add(&mut out, Clear(ClearType::FromCursorDown));
        }
        if let Some((prompt, typed)) = &self.prompt {
            out.push_str(prompt);
            // Of a long input only the end is shown.
            let room = columns.saturating_sub(plain(prompt).width() + 1);
            let mut shown = typed.as_str();
            while shown.width() > room {
                let first = shown.chars().next().map_or(0, char::len_utf8);
                shown = &shown[first..];
            }
            out.push_str(shown);
        }
        add(&mut out, EnableLineWrap);
        add(&mut out, EndSynchronizedUpdate);
        out
    }

    /// Number of rows from the first drawn line to the cursor. Lines that were drawn on a wider
    /// screen take more rows on a narrow one.
    fn height(&self, columns: usize) -> usize {
        let rows = |width: &usize| width.div_ceil(columns.max(1)).max(1);
        self.drawn.iter().map(rows).sum()
    }
}

/// Moves the cursor up, unless by 0, which some terminals treat as 1.
fn up(out: &mut String, lines: usize) {
    if let Ok(lines @ 1..) = u16::try_from(lines) {
        add(out, MoveUp(lines));
    }
}

fn add(out: &mut String, command: impl Command) {
    // Writing to a string cannot fail.
    let _ = command.write_ansi(out);
}

/// Writes to the terminal; a failure is ignored, because it must not stop the work.
fn write(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

/// Removes colours if standard error must have none: this output bypasses the stream that checks
/// it.
fn coloured(text: String) -> String {
    match anstream::AutoStream::choice(&std::io::stderr()) {
        anstream::ColorChoice::Never => without_styles(&text),
        _ => text,
    }
}

/// Removes colours and weights; cursor movements stay.
fn without_styles(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|ch: char| ch.is_ascii_digit() || ch == ';');
        match rest.strip_prefix('m') {
            Some(text) => out.push_str(text),
            None => {
                out.push_str("\u{1b}[");
                out.push_str(part);
            }
        }
    }
    out
}

/// Terminal mode without echo and line editing: keys arrive at once and do not appear in the
/// picture. The previous mode is restored when this is dropped.
struct Silence(Termios);

impl Silence {
    fn keep() -> Option<Silence> {
        if !person::is_at_the_terminal() {
            return None;
        }
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut silent = before.clone();
        silent
            .local_modes
            .remove(LocalModes::ECHO | LocalModes::ICANON);
        silent.special_codes[SpecialCodeIndex::VMIN] = 1;
        silent.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(std::io::stdin(), OptionalActions::Now, &silent).ok()?;
        Some(Silence(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::print::{GOOD, styled};

    /// A terminal of eight rows that shows what is painted.
    struct Watched {
        canvas: Canvas,
        terminal: vt100::Parser,
        columns: u16,
    }

    impl Watched {
        fn new() -> Watched {
            Watched {
                canvas: Canvas::default(),
                terminal: vt100::Parser::new(8, 20, 0),
                columns: 20,
            }
        }

        fn paint(&mut self, above: &str, lines: &[&str]) -> String {
            self.canvas.lines = lines.iter().map(|line| styled(GOOD, line)).collect();
            let text = self.canvas.paint(above, self.columns.into());
            self.terminal.process(text.as_bytes());
            self.terminal.screen().contents()
        }
    }

    #[test]
    fn a_picture_takes_the_place_of_the_one_before_it() {
        let mut watched = Watched::new();
        assert_eq!(
            watched.paint("", &["one", "two", "three"]),
            "one\ntwo\nthree"
        );
        assert_eq!(watched.paint("", &["four", "5"]), "four\n5");
        assert_eq!(watched.paint("kept\nlong", &["six"]), "kept\nlong\nsix");
        assert_eq!(
            watched.paint("", &["six", "seven"]),
            "kept\nlong\nsix\nseven"
        );
        let full = "12345678901234567890";
        assert_eq!(
            watched.paint("", &[full, full]),
            format!("kept\nlong\n{full}\n{full}")
        );
        assert_eq!(watched.paint("", &[]), "kept\nlong");
    }

    #[test]
    fn a_picture_that_is_drawn_again_at_the_foot_of_the_screen_stays_one() {
        let mut watched = Watched::new();
        for line in 0..9 {
            watched.paint(&format!("above {line}"), &["first", "last"]);
        }
        let shown = watched.paint("", &["first", "last"]);
        assert_eq!(
            shown,
            "above 4\nabove 5\nabove 6\nabove 7\nabove 8\nfirst\nlast"
        );
    }

    #[test]
    fn a_prompt_stands_below_the_picture_with_what_was_typed() {
        let mut watched = Watched::new();
        let ask = |watched: &mut Watched, typed: &str| {
            let prompt = styled(GOOD, "allow it? ");
            watched.canvas.prompt = Some((prompt, typed.to_owned()));
        };
        ask(&mut watched, "");
        assert_eq!(watched.paint("", &["tree"]), "tree\nallow it? ");
        ask(&mut watched, "ye");
        // A note and a change of the lines arrive meanwhile.
        assert_eq!(watched.paint("told", &["tree"]), "told\ntree\nallow it? ye");
        ask(&mut watched, "yes, 子代理恢复运行");
        let shown = "told\ntree\nof two\nallow it? 恢复运行";
        assert_eq!(watched.paint("", &["tree", "of two"]), shown);
        watched.canvas.prompt = None;
        assert_eq!(watched.paint("", &["tree"]), "told\ntree");
    }

    #[test]
    fn lines_of_a_wider_window_are_counted_as_the_smaller_one_shows_them() {
        let mut watched = Watched::new();
        watched.paint("", &["12345678901234567890", "123"]);
        assert_eq!(watched.canvas.height(20), 2);
        assert_eq!(watched.canvas.height(8), 4);
    }

    #[test]
    fn without_styles_the_cursor_is_moved_all_the_same() {
        let text = format!("\u{1b}[2A{}\u{1b}[K", styled(GOOD.bold(), "x"));
        assert_eq!(without_styles(&text), "\u{1b}[2Ax\u{1b}[K");
    }
}
