//! Shortens and cleans text, always at character boundaries.

pub mod redact;
pub mod text_enum;

/// External text without its trailing full stop, so that a message can continue after it.
pub fn open_ended(text: &str) -> &str {
    text.trim_end_matches(|ch: char| ch == '.' || ch.is_whitespace())
}

/// The first `most` characters of `text`.
pub fn prefix_chars(text: &str, most: usize) -> &str {
    let end = text
        .char_indices()
        .nth(most)
        .map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// The longest prefix of `text` of at most `max` bytes that ends between two characters.
pub fn prefix(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// `text` on one line, at most `max` characters, [`visible`]; a cut is shown by `…`.
pub fn preview(text: &str, max: usize) -> String {
    let shown = one_line(text).flat_map(|ch| written_out(ch, is_hidden(ch)));
    cut(shown, max)
}

/// `text` on one line in quotation marks, at most `max` characters between them, written as a Rust
/// string; a cut is shown by `…`.
pub fn in_quotes(text: &str, max: usize) -> String {
    format!("{:?}", cut(one_line(text), max))
}

/// `text` with everything written out that a terminal would obey or hide: control characters, marks
/// that change the direction of writing, and characters that are drawn as nothing. Line ends and
/// tabs stay.
pub fn visible(text: &str) -> String {
    visible_but(text, |ch| !matches!(ch, '\n' | '\t') && is_hidden(ch))
}

/// `text` with the characters written out that `is_hidden` selects, all in the spelling that
/// Rust's strings have: `\r`, `\u{1b}`. Every text that a user sees has this spelling.
pub fn visible_but(text: &str, is_hidden: impl Fn(char) -> bool) -> String {
    text.chars()
        .flat_map(|ch| written_out(ch, is_hidden(ch)))
        .collect()
}

fn written_out(ch: char, is_hidden: bool) -> impl Iterator<Item = char> {
    let short = ch.escape_debug();
    let (plain, short, code) = match (is_hidden, short.len()) {
        (false, _) => (Some(ch), None, None),
        (true, 1) => (None, None, Some(ch.escape_unicode())),
        (true, _) => (None, Some(short), None),
    };
    let escaped = short.into_iter().flatten();
    plain
        .into_iter()
        .chain(escaped)
        .chain(code.into_iter().flatten())
}

/// True for what a terminal obeys, and for what it draws as nothing. Joiners and variation
/// selectors stay: they are parts of letters and emoji.
fn is_hidden(ch: char) -> bool {
    ch.is_control()
        || matches!(
            ch,
            '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// The words of `text` with single spaces between them.
fn one_line(text: &str) -> impl Iterator<Item = char> {
    let words = text.split_whitespace().enumerate();
    words.flat_map(|(at, word)| (at > 0).then_some(' ').into_iter().chain(word.chars()))
}

fn cut(text: impl Iterator<Item = char>, max: usize) -> String {
    let mut line = String::new();
    for (count, ch) in text.enumerate() {
        if count + 1 >= max {
            line.push('…');
            break;
        }
        line.push(ch);
    }
    line
}

/// `text` with U+0000 replaced, which a portable text column cannot hold.
pub fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn g9_11_prefix_cuts_between_characters(text in "\\PC{0,40}", max in 0usize..80) {
            let cut = prefix(&text, max);
            prop_assert!(cut.len() <= max);
            prop_assert!(text.starts_with(cut));
            // As long as possible: the next character would not fit.
            if let Some(next) = text[cut.len()..].chars().next() {
                prop_assert!(cut.len() + next.len_utf8() > max);
            }
        }

        #[test]
        fn g9_11_preview_is_bounded_in_characters(text in "[\\PC\n\t]{0,60}", max in 1usize..50) {
            let line = preview(&text, max);
            prop_assert!(line.chars().count() <= max);
            prop_assert!(!line.contains('\n'));
        }
    }

    #[test]
    fn preview_joins_lines() {
        assert_eq!(preview("one\n  two\tthree", 40), "one two three");
        assert_eq!(preview("äöüäöü", 4), "äöü…");
        // The space between two words counts too.
        assert_eq!(preview("ab cd", 3), "ab…");
    }

    #[test]
    fn hidden_characters_have_one_spelling() {
        let text = "a\u{1b}[31m\0\u{7}\u{9b}\u{202e}\u{200b}\u{feff}z";
        let shown = "a\\u{1b}[31m\\0\\u{7}\\u{9b}\\u{202e}\\u{200b}\\u{feff}z";
        assert_eq!(visible(text), shown);
        assert_eq!(visible("a\rb"), "a\\rb");
        assert_eq!(preview(text, 200), shown);
        assert_eq!(format!("\"{shown}\""), in_quotes(text, 200));
        assert_eq!(format!("\"{shown}\""), format!("{text:?}"));
        // What is written out once stays as it is.
        assert_eq!(visible(&visible(text)), shown);
        for plain in [
            "one\n\ttwo",
            "äöü 子 👩\u{200d}👧 e\u{301}",
            "C:\\new \"quoted\" 'x'",
        ] {
            assert_eq!(visible(plain), plain);
        }
        // A line end is written out only where the text is to be one line.
        assert_eq!(visible_but("a\nb\tc", |_| false), "a\nb\tc");
        assert_eq!(visible_but("a\nb", char::is_control), "a\\nb");
    }

    #[test]
    fn a_sentence_of_others_has_no_full_stop_before_ours() {
        for text in ["It broke", "It broke.", "It broke... \n"] {
            assert_eq!(open_ended(text), "It broke");
        }
        assert_eq!(open_ended("v1.2 failed"), "v1.2 failed");
    }
}
