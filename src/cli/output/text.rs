//! Text for terminals: cleaning, wrapping, tables, short ids, ages.
//! Used by every command that prints.

use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::print::{self, HEAD, styled};
use crate::kernel::text;
use crate::kernel::time::Timestamp;

/// Width of the help, and of texts for which no other width is known.
pub(crate) const COLUMNS: usize = 80;

/// Text of others for the screen: what could control a terminal is written out, as `\u{1b}`. Line
/// ends and tabs stay.
pub(crate) fn clean(text: &str) -> String {
    text::visible(text)
}

/// JSON for people: control characters in its strings are written out as in every other text.
pub(crate) fn json(value: &Value) -> String {
    let text = value.to_string();
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(ch) = chars.next() {
        let kind = match ch {
            '\\' => chars.next(),
            _ => None,
        };
        let control = match kind {
            None => {
                out.push(ch);
                continue;
            }
            Some('u') => {
                let code: String = chars.by_ref().take(4).collect();
                u32::from_str_radix(&code, 16).ok().and_then(char::from_u32)
            }
            Some('b') => Some('\u{8}'),
            Some('f') => Some('\u{c}'),
            Some(other) => {
                out.extend([ch, other]);
                continue;
            }
        };
        out.extend(control.map(|control| clean(control.encode_utf8(&mut [0; 4]))));
    }
    out
}

/// Cleans `text` and joins it to one line, at most `columns` wide; a cut is shown by `…`.
pub(crate) fn line(text: &str, columns: usize) -> String {
    let joined = words(&clean(text));
    if joined.width() <= columns {
        return joined;
    }
    let mut cut = joined[..fitting(&joined, columns.saturating_sub(1))].to_owned();
    cut.push('…');
    cut
}

/// Cuts a cleaned line to at most `columns`, keeping its spaces; a cut is shown by `…`.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    let text = text.replace('\t', "    ");
    if text.width() <= columns {
        return text;
    }
    format!("{}…", &text[..fitting(&text, columns.saturating_sub(1))])
}

/// Maximum number of characters per column of a line: characters without a width would otherwise be
/// unlimited.
const MARKS: usize = 16;

/// Byte length of the longest prefix of `text` that is at most `columns` wide. A sequence of
/// characters may be wider than the sum of them, so it is measured as a whole.
pub(crate) fn fitting(text: &str, columns: usize) -> usize {
    let mut fits = 0;
    for (at, ch) in text.char_indices().take(columns * MARKS) {
        let end = at + ch.len_utf8();
        if text[..end].width() > columns {
            break;
        }
        fits = end;
    }
    fits
}

/// The last eight digits of an id, which is what users type.
pub(crate) fn short(id: impl std::fmt::Display) -> String {
    let text = id.to_string();
    match text.char_indices().rev().nth(7) {
        Some((start, _)) => text[start..].to_owned(),
        None => text,
    }
}

/// Formats a time span: `0.4s`, `12s`, `3m`, `5h`, `9d`. It is rounded, so that a moment less than
/// ten minutes is still `10m`.
pub(crate) fn span(ms: u64) -> String {
    let rounded = |unit: u64| ms.saturating_add(unit / 2) / unit;
    match ms {
        0..=9_949 => format!("{}.{}s", rounded(100) / 10, rounded(100) % 10),
        9_950..=119_499 => format!("{}s", rounded(1_000)),
        119_500..=7_169_999 => format!("{}m", rounded(60_000)),
        7_170_000..=170_999_999 => format!("{}h", rounded(3_600_000)),
        _ => format!("{}d", rounded(86_400_000)),
    }
}

/// Formats the time from `at` to `now`.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    span(now.since(at))
}

/// Formats a number of bytes.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} B"),
        10_000..=9_999_999 => format!("{} KiB", bytes >> 10),
        10_000_000..=9_999_999_999 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// Wraps text to lines of at most `columns`, between words where that is possible.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let lines = fold_line(&words(text), columns, 0, 0);
    lines.split('\n').map(str::to_owned).collect()
}

/// The words of `text`, each one space from the next.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Wraps lines that are wider than `columns` between words, indenting the rest by two more columns.
/// `taken` columns of the first line are in use. Styles and other characters without a width stay.
pub(crate) fn fold(text: &str, columns: usize, taken: usize) -> String {
    let lines = text.split('\n').enumerate();
    let folded = lines.map(|(at, line)| {
        let plain = seen(line);
        let own = plain.len() - plain.trim_start_matches(' ').len();
        let hang = if own + 2 < columns / 2 { own + 2 } else { 0 };
        fold_line(line, columns, if at == 0 { taken } else { 0 }, hang)
    });
    folded.collect::<Vec<_>>().join("\n")
}

/// The text without its styles.
fn seen(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

/// Wraps one line, and indents its continuation lines by `hang` columns.
fn fold_line(line: &str, columns: usize, taken: usize, hang: usize) -> String {
    if taken + seen(line).width() <= columns {
        return line.to_owned();
    }
    let mut out = String::new();
    let (mut at, mut gap, mut is_first) = (taken, 0, true);
    for word in line.split(' ') {
        let mut word = word;
        let mut width = seen(word).width();
        if !is_first && width > 0 && at + gap + width > columns {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', hang));
            (at, gap) = (hang, 0);
        }
        out.extend(std::iter::repeat_n(' ', gap));
        at += gap;
        // Break a word that is wider than a line.
        while at + width > columns && !word.contains('\u{1b}') {
            let first = word.chars().next().map_or(0, char::len_utf8);
            let end = fitting(word, columns.saturating_sub(at)).max(first);
            out.push_str(&word[..end]);
            word = &word[end..];
            width = word.width();
            if word.is_empty() {
                break;
            }
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', hang));
            at = hang;
        }
        out.push_str(word);
        at += width;
        is_first &= width == 0;
        gap = 1;
    }
    out
}

/// Wraps lines of prose that are wider than `columns`. Lines that are indented or between fences
/// are code, and keep their line ends.
pub(crate) fn flow(text: &str, columns: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || line.width() <= columns || line.starts_with([' ', '\t', '|']) {
            lines.push(line.to_owned());
            continue;
        }
        // Continuation lines of a list item are indented to its text.
        let hang = match line.split_once(' ') {
            Some((mark, _)) if is_bullet(mark) => mark.width() + 1,
            _ => 0,
        };
        lines.push(fold_line(&words(line), columns, 0, hang));
    }
    lines.join("\n")
}

fn is_bullet(mark: &str) -> bool {
    let numbered = |mark: &str| !mark.is_empty() && mark.bytes().all(|b| b.is_ascii_digit());
    matches!(mark, "-" | "*" | "•") || mark.strip_suffix(['.', ')']).is_some_and(numbered)
}

/// A table whose last column gets the width that the others leave. Columns that do not fit beside
/// each other continue on indented lines. The default width is that of the answer's terminal;
/// without a terminal nothing is cut.
pub(crate) struct TextTable {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    paint: Option<(usize, Paint)>,
    /// Maximum width; `None` for unlimited.
    width: Option<usize>,
}

/// Maximum width of a cell that is not the last, if the table has a width.
const WIDEST: usize = 24;
/// The last column stays on the line of the others if it gets this much of it.
const LAST_MIN: usize = 12;
/// Indentation of the lines on which a row continues.
const CONTINUED: &str = "  ";

/// Style of a cell, by its content.
type Paint = fn(&str) -> anstyle::Style;

impl TextTable {
    /// An empty table with these headings, as wide as the answer's terminal.
    pub(crate) fn new(heads: &[&'static str]) -> Self {
        TextTable {
            heads: heads.to_vec(),
            rows: Vec::new(),
            paint: None,
            width: print::screen_width(),
        }
    }

    /// Sets the maximum width; `None` for unlimited.
    #[must_use]
    pub(crate) fn fit(mut self, width: Option<usize>) -> Self {
        self.width = width;
        self
    }

    /// Sets the styles of a column's cells.
    #[must_use]
    pub(crate) fn painted(mut self, column: usize, paint: Paint) -> Self {
        self.paint = Some((column, paint));
        self
    }

    /// Adds a row; [`TextTable::lines`] cleans its cells.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Formats the heading and each row as text of at most its width. A cell that is too wide is
    /// cut.
    pub(crate) fn lines(&self) -> Vec<String> {
        let last = self.heads.len().saturating_sub(1);
        let mut heads: Vec<String> = self.heads.iter().map(|head| (*head).to_owned()).collect();
        let is_empty = |row: &Vec<String>| row.get(last).is_none_or(String::is_empty);
        if self.rows.iter().all(is_empty) {
            heads.pop();
        }
        let widest = self.width.map_or(usize::MAX, |width| width.min(WIDEST));
        let mut widths: Vec<usize> = self.heads.iter().map(|head| head.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(line(cell, widest).width());
            }
        }
        let starts = line_starts(&mut widths[..heads.len()], self.width);
        let text = |row: &[String], style: &dyn Fn(usize, &str) -> anstyle::Style| {
            let ends = starts.iter().skip(1).copied().chain([heads.len()]);
            let lines = starts.iter().zip(ends).map(|(start, end)| {
                let indent = if *start == 0 { "" } else { CONTINUED };
                let cells = row.iter().zip(&widths).enumerate().take(end).skip(*start);
                let cells = cells.map(|(column, (cell, width))| (&**cell, *width, column));
                format!("{indent}{}", join(cells, style))
            });
            // Only the first line may be empty: it is what the others belong to.
            let lines: Vec<String> = lines.collect();
            let shown = lines.iter().enumerate();
            let shown = shown.filter(|(index, line)| *index == 0 || !line.trim().is_empty());
            shown
                .map(|(_, line)| &**line)
                .collect::<Vec<_>>()
                .join("\n")
        };
        let mut lines = vec![text(&heads, &|_, _| HEAD)];
        lines.extend(self.rows.iter().map(|row| {
            text(row, &|column, cell| match self.paint {
                Some((painted, paint)) if painted == column => paint(cell),
                _ => anstyle::Style::new(),
            })
        }));
        lines
    }
}

/// Distributes columns of these widths over lines of `width`, and gives the last one the rest of its
/// line. Returns where each line begins.
fn line_starts(widths: &mut [usize], width: Option<usize>) -> Vec<usize> {
    let last = widths.len().saturating_sub(1);
    let room = width.unwrap_or(usize::MAX);
    let (mut starts, mut taken) = (vec![0], 0);
    for (column, width) in widths.iter_mut().enumerate() {
        let needed = match column == last {
            true => (*width).min(LAST_MIN),
            false => *width,
        };
        if taken > 0 && needed > room.saturating_sub(taken) {
            starts.push(column);
            taken = CONTINUED.len();
        }
        let rest = room.saturating_sub(taken).max(1);
        *width = match column == last {
            true => rest,
            false => (*width).min(rest),
        };
        taken = taken.saturating_add(width.saturating_add(2));
    }
    starts
}

/// Joins cells, each with its width and column, on one line.
fn join<'a>(
    cells: impl Iterator<Item = (&'a str, usize, usize)>,
    style: &dyn Fn(usize, &str) -> anstyle::Style,
) -> String {
    let mut out = String::new();
    let mut gap = 0;
    for (cell, width, column) in cells {
        let cell = line(cell, width);
        if !cell.is_empty() {
            out.extend(std::iter::repeat_n(' ', gap));
            gap = 0;
            out.push_str(&styled(style(column, &cell), &cell));
        }
        gap = (width - cell.width().min(width)).saturating_add(gap + 2);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn g14_text_of_models_cannot_steer_the_terminal() {
        let text = "a\u{1b}[31mb\u{1b}]0;title\u{7}c\u{9b}2Jd\u{8}e\rf\u{202e}g\n\th";
        let shown = "a\\u{1b}[31mb\\u{1b}]0;title\\u{7}c\\u{9b}2Jd\\u{8}e\\rf\\u{202e}g\n\th";
        assert_eq!(clean(text), shown);
        let value = serde_json::json!({ "a": "b\u{1b}\u{0}\u{8}\n\"\\u0041子" });
        assert_eq!(json(&value), r#"{"a":"b\u{1b}\0\u{8}\n\"\\u0041子"}"#);
    }

    #[test]
    fn a_line_is_cut_by_its_width_on_the_screen() {
        assert_eq!(line("one\n two", 20), "one two");
        assert_eq!(line("子代理恢复运行", 9), "子代理恢…");
        assert_eq!(line("abc", 3), "abc");
        assert_eq!(line("abcd", 3), "ab…");
    }

    #[test]
    fn columns_that_do_not_fit_continue_on_the_next_line() {
        let mut table = TextTable::new(&["RUN", "STATE", "AGENT", "WHAT"]);
        table.row(
            ["465cb135", "ok", "build", "the first task of all"]
                .map(str::to_owned)
                .into(),
        );
        table.row(
            ["49e0247b", "running", "explore", ""]
                .map(str::to_owned)
                .into(),
        );
        let lines = |table: &TextTable| {
            let lines = table.lines().join("\n");
            anstream::adapter::strip_str(&lines).to_string()
        };
        let table = table.fit(Some(40));
        assert_eq!(
            lines(&table),
            "RUN       STATE    AGENT    WHAT\n\
             465cb135  ok       build    the first t…\n\
             49e0247b  running  explore"
        );
        let table = table.fit(Some(30));
        assert_eq!(
            lines(&table),
            "RUN       STATE    AGENT\n  WHAT\n\
             465cb135  ok       build\n  the first task of all\n\
             49e0247b  running  explore"
        );
        let table = table.fit(None);
        assert!(lines(&table).contains("build    the first task of all"));
    }

    #[test]
    fn spans_read_as_people_say_them() {
        let said: Vec<String> = [
            412,
            9_949,
            9_950,
            61_000,
            599_900,
            3_600_000,
            90_000_000,
            864_000_000,
        ]
        .map(span)
        .into();
        let expected = ["0.4s", "9.9s", "10s", "61s", "10m", "60m", "25h", "10d"];
        assert_eq!(said, expected);
    }

    #[test]
    fn prose_is_parted_between_words_and_code_is_left_alone() {
        let text = "one two three four\n\n- five six seven\n    let code = \"long\";\n```\nfn main() { run() }\n```\n12. eight nine ten";
        assert_eq!(
            flow(text, 12),
            "one two\nthree four\n\n- five six\n  seven\n    let code = \"long\";\n```\nfn main() { run() }\n```\n12. eight\n    nine ten"
        );
        assert_eq!(flow("one two", 80), "one two");
    }

    #[test]
    fn long_lines_are_parted_between_words_and_go_on_further_in() {
        assert_eq!(
            fold("one two three\n  a hint", 9, 0),
            "one two\n  three\n  a hint"
        );
        assert_eq!(fold("  one two three", 11, 0), "  one two\n    three");
        assert_eq!(fold("one two three", 13, 7), "one\n  two three");
        let dim = format!("{}one two three{}", "\u{1b}[2m", "\u{1b}[0m");
        assert_eq!(fold(&dim, 9, 0), "\u{1b}[2mone two\n  three\u{1b}[0m");
        assert_eq!(fold("12345678901", 6, 0), "123456\n  7890\n  1");
    }

    proptest! {
        #[test]
        fn folded_text_is_whole_and_keeps_to_its_width(text in "[a-z子 ]{0,200}", taken in 0..9_usize) {
            let folded = fold(&text, 20, taken);
            for (at, line) in folded.split('\n').enumerate() {
                let taken = if at == 0 { taken } else { 0 };
                prop_assert!(line.trim_end().width() + taken <= 20, "{line:?}");
            }
            let bare = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(bare(&folded), bare(&text));
        }

        #[test]
        fn wrapped_text_is_whole_and_keeps_to_its_width(text in "[a-z子 ]{0,200}") {
            let lines = wrap(&text, 20);
            for line in &lines {
                prop_assert!(line.width() <= 20, "{line:?}");
            }
            let bare = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(bare(&lines.join(" ")), bare(&text));
        }

        #[test]
        fn a_table_keeps_to_its_width(
            cells in proptest::collection::vec("\\PC{0,60}", 3..30),
            columns in 24_usize..=COLUMNS,
        ) {
            let mut table = TextTable::new(&["RUN", "STATE", "WHAT"]).fit(Some(columns));
            for row in cells.chunks_exact(3) {
                table.row(row.to_vec());
            }
            for line in table.lines().iter().flat_map(|row| row.split('\n')) {
                let plain = anstream::adapter::strip_str(line).to_string();
                prop_assert!(plain.width() <= columns, "{line:?}");
            }
        }
    }
}
