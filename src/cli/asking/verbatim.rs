//! Shows completely what a user decides on: nothing of it is cut, and what a terminal would hide or
//! interpret is made visible. Used where an approval lets a call be made.

use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::cli::output::text::{fitting, json};
use crate::kernel::text;

/// Marks the end of a line of the text itself, where longer lines are wrapped.
const LINE_END: char = '⏎';
/// Minimum width for wrapping.
const NARROW: usize = 16;

/// Writes out everything in `text` that has no shape of its own: control characters, marks that
/// change the direction of writing, and blanks other than the space. Line ends stay.
pub(crate) fn visible(text: &str) -> String {
    text::visible_but(text, |ch| ch != '\n' && is_hidden(ch))
}

fn is_hidden(ch: char) -> bool {
    ch.is_control()
        || ch == LINE_END
        || ch != ' ' && ch.is_whitespace()
        || ch.width().unwrap_or(0) == 0
        // Drawn as nothing, although they have a width.
        || matches!(ch, '\u{ad}' | '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}')
}

/// Makes `text` visible and wraps it to `columns`; with `None` it is broken only at its own line
/// ends. The concatenated lines are the complete text.
pub(crate) fn lines(text: &str, columns: Option<usize>) -> Vec<String> {
    let text = visible(text);
    let mut parts = text.split('\n').peekable();
    let mut out = Vec::new();
    while let Some(part) = parts.next() {
        let Some(columns) = columns else {
            out.push(part.to_owned());
            continue;
        };
        match parts.peek() {
            Some(_) => wrap(&format!("{part}{LINE_END}"), columns, &mut out),
            None => wrap(part, columns, &mut out),
        }
    }
    out
}

/// Breaks a line after a space if there is one in its second half, else anywhere; every character
/// is kept.
fn wrap(mut rest: &str, columns: usize, out: &mut Vec<String>) {
    let columns = columns.max(NARROW);
    while rest.width() > columns {
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let end = fitting(rest, columns).max(first);
        let space = rest[..end].rfind(' ').map_or(0, |at| at + 1);
        let end = if space * 2 > end { space } else { end };
        out.push(rest[..end].to_owned());
        rest = &rest[end..];
    }
    out.push(rest.to_owned());
}

/// Formats all arguments of a call, each under its name, without cutting.
pub(crate) fn arguments(arguments: &Value, columns: Option<usize>) -> String {
    let shown = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => json(other),
    };
    let fields: Vec<(String, String)> = match arguments {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (visible(name).replace('\n', "\\n"), shown(value)))
            .collect(),
        Value::Null => Vec::new(),
        other => vec![("arguments".to_owned(), shown(other))],
    };
    let mut out = String::new();
    for (name, text) in fields {
        let within = columns.map(|columns| columns.saturating_sub(4));
        let lines = lines(&text, within);
        if let [only] = &lines[..] {
            let line = format!("  {name}: {only}");
            if columns.is_none_or(|columns| line.width() <= columns) {
                out.push_str(&line);
                out.push('\n');
                continue;
            }
        }
        out.push_str(&format!("  {name}:\n"));
        for line in lines {
            out.push_str(&format!("    {line}\n"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn what_a_terminal_would_hide_or_obey_is_written_out() {
        for (text, shown) in [
            ("a\u{1b}[8mb", "a\\u{1b}[8mb"),
            ("a\rb\tc", "a\\rb\\tc"),
            (
                "a\u{202e}b\u{200b}c\u{a0}d",
                "a\\u{202e}b\\u{200b}c\\u{a0}d",
            ),
            (
                "\u{e0041}\u{feff}\u{2028}\u{3164}",
                "\\u{e0041}\\u{feff}\\u{2028}\\u{3164}",
            ),
            ("子 ä⏎", "子 ä\\u{23ce}"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }

    #[test]
    fn arguments_are_whole_in_a_pipe_and_on_a_screen() {
        let command = format!("echo {} && rm -rf ~", "x".repeat(100));
        let call = json!({ "command": format!("ls\n{command}"), "timeout": 5 });
        assert_eq!(
            arguments(&call, None),
            format!("  command:\n    ls\n    {command}\n  timeout: 5\n")
        );
        let screen = arguments(&call, Some(40));
        assert!(screen.starts_with("  command:\n    ls⏎\n"), "{screen}");
        assert!(screen.lines().all(|line| line.width() <= 40), "{screen}");
        let bare: String = screen.lines().map(str::trim_start).collect();
        assert!(bare.contains(&command), "{screen}");
        assert_eq!(
            arguments(&json!("no object"), Some(40)),
            "  arguments: no object\n"
        );
    }

    proptest! {
        #[test]
        fn wrapped_lines_are_the_text(text in "[ -~\n子\u{202e}]{0,200}", columns in 16usize..90) {
            let lines = lines(&text, Some(columns));
            for line in &lines {
                prop_assert!(line.width() <= columns, "{line:?}");
            }
            let expected = visible(&text).replace('\n', &LINE_END.to_string());
            prop_assert_eq!(lines.concat(), expected);
        }
    }
}
