//! Renders Markdown for a terminal line by line, so that it can be shown while it is streamed:
//! headings, lists, quotes, fenced code, bold, italic and inline code. Used where the answer of a
//! model is shown. The text is cleaned here, so that it cannot control the terminal.

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

use super::print::{DIM, HEAD, styled};
use super::text::{clean, fitting};

/// Style of code.
const CODE: Style = AnsiColor::Cyan.on_default();
/// Maximum width of a horizontal rule.
const RULE: usize = 40;
/// Maximum number of characters per column of a line; some characters have no width.
const MARKS: usize = 16;
/// Maximum number of bytes between a mark and its end.
const REACH: usize = 500;
/// Minimum width for wrapping.
const NARROW: usize = 8;

/// State that earlier lines have set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Markdown {
    /// The opening fence while in a code block.
    fence: Option<String>,
}

/// A character and its style.
type Cell = (char, Style);

impl Markdown {
    /// Renders a whole text as styled lines of at most `columns`. Lines of code are not wrapped.
    pub(crate) fn render(text: &str, columns: usize) -> String {
        let mut markdown = Markdown::default();
        let lines = text.trim_end().lines();
        let shown: Vec<String> = lines
            .flat_map(|line| markdown.line(line, columns, false))
            .collect();
        shown.join("\n")
    }

    /// Renders the next source line as styled lines of at most `columns`. Code is wrapped only with
    /// `hard`: lines that the terminal wraps itself are copied without line breaks.
    pub(crate) fn line(&mut self, source: &str, columns: usize, hard: bool) -> Vec<String> {
        let source = clean(source).replace('\t', "    ");
        let columns = columns.max(NARROW);
        let bare = source.trim();
        if let Some(fence) = &self.fence {
            if bare.starts_with(fence.as_str()) && bare.trim_start_matches(['`', '~']).is_empty() {
                self.fence = None;
                return vec![paint(&cells(bare, DIM))];
            }
            return code(&source, columns, hard);
        }
        if let Some(fence) = fence_of(bare) {
            self.fence = Some(fence);
            return wrap(cells(bare, DIM), 0, columns);
        }
        if bare.is_empty() {
            return vec![String::new()];
        }
        // The columns of a table align only if it is printed as written.
        if bare.starts_with('|') {
            return code_like(&source, columns, hard);
        }
        if is_rule(bare) {
            return vec![paint(&cells(&"─".repeat(columns.min(RULE)), DIM))];
        }
        if let Some(heading) = heading(bare) {
            return wrap(inline(heading, HEAD), 0, columns);
        }
        let indent = source.len() - source.trim_start().len();
        if let Some(quoted) = bare.strip_prefix('>') {
            let rows = wrap(inline(quoted.trim_start(), DIM), 0, columns - 2);
            let mark = paint(&cells("│ ", DIM));
            return rows.into_iter().map(|row| format!("{mark}{row}")).collect();
        }
        let (mark, rest) = match bullet(bare) {
            Some((mark, rest)) => (mark, rest),
            // Four leading blanks are code, too.
            None if indent >= 4 => return code_like(&source, columns, hard),
            None => (String::new(), bare),
        };
        let hang = (indent + mark.width()).min(columns / 2);
        let mut line = cells(&" ".repeat(indent.min(columns / 2)), Style::new());
        line.extend(cells(&mark, Style::new()));
        line.extend(inline(rest, Style::new()));
        wrap(line, hang, columns)
    }
}

fn fence_of(bare: &str) -> Option<String> {
    let mark = bare.chars().next().filter(|ch| matches!(ch, '`' | '~'))?;
    let count = bare.chars().take_while(|ch| *ch == mark).count();
    // Three backticks within a line of prose are inline code.
    let is_alone = !bare[count..].contains('`');
    (count >= 3 && is_alone).then(|| bare[..count].to_owned())
}

fn is_rule(bare: &str) -> bool {
    let of = |mark: char| bare.chars().all(|ch| ch == mark || ch == ' ');
    bare.len() >= 3 && ['-', '*', '_'].into_iter().any(of)
}

fn heading(bare: &str) -> Option<&str> {
    let rest = bare.trim_start_matches('#');
    let level = bare.len() - rest.len();
    let is_one = (1..=6).contains(&level) && rest.starts_with(' ');
    is_one.then(|| rest.trim())
}

/// Splits a list item into its mark and its text.
fn bullet(bare: &str) -> Option<(String, &str)> {
    let (mark, rest) = bare.split_once(' ')?;
    if matches!(mark, "-" | "*" | "+" | "•") {
        return Some(("• ".to_owned(), rest.trim_start()));
    }
    let digits = mark.strip_suffix(['.', ')'])?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| (format!("{mark} "), rest.trim_start()))
}

fn code(source: &str, columns: usize, hard: bool) -> Vec<String> {
    let style = CODE;
    parts(source, columns, hard)
        .map(|part| paint(&cells(part, style)))
        .collect()
}

fn code_like(source: &str, columns: usize, hard: bool) -> Vec<String> {
    parts(source, columns, hard).map(str::to_owned).collect()
}

/// Splits `text` into parts that fit if `hard`; otherwise returns it as one part.
fn parts(text: &str, columns: usize, hard: bool) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        if !hard || text.width() <= columns {
            return Some(text);
        }
        let first = text.chars().next().map_or(0, char::len_utf8);
        let (part, more) = text.split_at(fitting(text, columns).max(first));
        rest = Some(more);
        Some(part)
    })
}

fn cells(text: &str, style: Style) -> Vec<Cell> {
    text.chars().map(|ch| (ch, style)).collect()
}

/// Styles inline marks: `code`, **bold**, *italic*. A mark without an end stays text.
fn inline(text: &str, base: Style) -> Vec<Cell> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    let mut before = None;
    while let Some(ch) = rest.chars().next() {
        if let Some((inside, style, after)) = marked(rest, before, base) {
            match style {
                Some(style) => out.extend(inline(inside, style)),
                None => out.extend(cells(inside, CODE)),
            }
            before = Some(ch);
            rest = after;
            continue;
        }
        out.push((ch, base));
        before = Some(ch);
        rest = &rest[ch.len_utf8()..];
    }
    out
}

/// The text that a mark at the beginning of `rest` encloses, its style (`None` for code), and the
/// rest.
fn marked(rest: &str, before: Option<char>, base: Style) -> Option<(&str, Option<Style>, &str)> {
    for (mark, style) in [
        ("**", base.bold()),
        ("__", base.bold()),
        ("*", base.italic()),
        ("_", base.italic()),
    ] {
        let Some(inner) = rest.strip_prefix(mark) else {
            continue;
        };
        // Within a word an underscore is part of a name.
        if mark.starts_with('_') && before.is_some_and(char::is_alphanumeric) {
            return None;
        }
        let end = near(inner).find(mark)?;
        let (inside, after) = (&inner[..end], &inner[end + mark.len()..]);
        let next = after.chars().next();
        let is_name = mark.starts_with('_') && next.is_some_and(char::is_alphanumeric);
        let is_tight = !inside.is_empty()
            && !inside.starts_with(char::is_whitespace)
            && !inside.ends_with(char::is_whitespace);
        return (is_tight && !is_name).then_some((inside, Some(style), after));
    }
    let ticks = rest.len() - rest.trim_start_matches('`').len();
    if ticks == 0 {
        return None;
    }
    let (mark, inner) = rest.split_at(ticks);
    let end = near(inner).find(mark)?;
    let inside = &inner[..end];
    (!inside.is_empty()).then_some((inside, None, &inner[end + ticks..]))
}

/// The range that is searched for the end of a mark, limited so that a long line full of marks
/// stays cheap.
fn near(text: &str) -> &str {
    let mut end = text.len().min(REACH);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Wraps cells between words to at most `columns`; lines after the first are indented by `hang`.
fn wrap(line: Vec<Cell>, hang: usize, columns: usize) -> Vec<String> {
    if width(&line) <= columns {
        return vec![paint(&line)];
    }
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut row: Vec<Cell> = Vec::new();
    // Keep the blanks before the first word.
    let lead = line.iter().take_while(|(ch, _)| *ch == ' ').count();
    row.extend(&line[..lead]);
    let mut is_first = true;
    for word in line[lead..].split(|(ch, _)| *ch == ' ') {
        if word.is_empty() {
            continue;
        }
        let gap = usize::from(!is_first);
        if !is_first && width(&row) + gap + width(word) > columns {
            rows.push(std::mem::replace(
                &mut row,
                cells(&" ".repeat(hang), Style::new()),
            ));
        } else if !is_first {
            row.push((' ', row.last().map_or(Style::new(), |last| last.1)));
        }
        is_first = false;
        // Break a word that is wider than a line.
        for cell in word {
            row.push(*cell);
            if width(&row) > columns || row.len() > columns * MARKS {
                row.pop();
                rows.push(std::mem::replace(
                    &mut row,
                    cells(&" ".repeat(hang), Style::new()),
                ));
                row.push(*cell);
            }
        }
    }
    rows.push(row);
    rows.iter().map(|row| paint(row)).collect()
}

fn width(cells: &[Cell]) -> usize {
    let text: String = cells.iter().map(|(ch, _)| *ch).collect();
    text.width()
}

/// Formats cells as text, setting the style once per run of equal cells.
fn paint(cells: &[Cell]) -> String {
    let mut out = String::with_capacity(cells.len() + 16);
    for run in cells.chunk_by(|one, other| one.1 == other.1) {
        let style = run[0].1;
        let text = run.iter().map(|(ch, _)| *ch);
        if style == Style::new() {
            out.extend(text);
        } else {
            out.push_str(&styled(style, text.collect::<String>()));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn marks_become_styles() {
        let shown = Markdown::render(
            "## A *title*\n- one **bold** `code`\n  1. two\n> said\n---\nsnake_case_name 2 * 3 * 4\n```rust\nlet a = \"**\";\n```\n| a | b |",
            80,
        );
        assert_eq!(
            plain(&shown),
            format!(
                "A title\n• one bold code\n  1. two\n│ said\n{}\nsnake_case_name 2 * 3 * 4\n```rust\nlet a = \"**\";\n```\n| a | b |",
                "─".repeat(RULE)
            )
        );
        for styled in [
            "\u{1b}[1mA ",
            "\u{1b}[1mbold\u{1b}[0m",
            "\u{1b}[36mcode\u{1b}[0m",
            "\u{1b}[36mlet a = \"**\";\u{1b}[0m",
        ] {
            assert!(shown.contains(styled), "{styled:?}: {shown:?}");
        }
    }

    #[test]
    fn a_mark_without_an_end_is_text() {
        for text in ["a ** b", "**a", "`a", "*a", "_a", "a_b_c", "``", "* "] {
            assert_eq!(
                plain(&Markdown::render(&format!("x {text}"), 80)),
                format!("x {}", text.trim_end())
            );
        }
    }

    #[test]
    fn items_hang_below_their_beginning_and_code_is_wrapped_only_where_it_must_be() {
        let shown = plain(&Markdown::render("- one two **three four** five", 12));
        assert_eq!(shown, "• one two\n  three four\n  five");
        let mut markdown = Markdown::default();
        markdown.line("```", 12, false);
        let long = "0123456789abcdef";
        assert_eq!(markdown.clone().line(long, 12, false).len(), 1);
        assert_eq!(markdown.line(long, 12, true).len(), 2);
    }

    #[test]
    fn g14_a_text_of_a_model_sets_no_style_of_its_own() {
        let shown = Markdown::render("a\u{1b}[31mb\u{1b}]0;t\u{7} `c\u{1b}[2J` \u{202e}d", 80);
        let expected = "a\\u{1b}[31mb\\u{1b}]0;t\\u{7} c\\u{1b}[2J \\u{202e}d";
        assert_eq!(plain(&shown), expected);
        let styles = ["\u{1b}[31m", "\u{1b}[2J", "\u{1b}]0;"];
        assert!(
            !styles.iter().any(|style| shown.contains(style)),
            "{shown:?}"
        );
    }

    proptest! {
        #[test]
        fn prose_keeps_to_its_width_and_loses_no_word(text in "[a-z子][a-z子 ]{0,120}", columns in 10usize..60) {
            let shown = plain(&Markdown::render(&text, columns));
            for line in shown.lines() {
                prop_assert!(line.width() <= columns.max(NARROW), "{line:?}");
            }
            let bare = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(bare(&shown), bare(&text));
        }

        #[test]
        fn whatever_is_written_is_shown(text in "[-*_`#>|~ a1.\\n]{0,80}", columns in 10usize..60) {
            let _ = Markdown::render(&text, columns);
        }
    }
}
