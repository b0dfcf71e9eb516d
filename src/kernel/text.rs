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

/// `text` on one line, at most `max` characters; a cut is shown by `…`.
pub fn preview(text: &str, max: usize) -> String {
    let mut line = String::new();
    let mut count = 0;
    for word in text.split_whitespace() {
        let gap = (count > 0).then_some(' ');
        let letters = word.chars().filter(|ch| !ch.is_control());
        for ch in gap.into_iter().chain(letters) {
            if count + 1 >= max {
                line.push('…');
                return line;
            }
            line.push(ch);
            count += 1;
        }
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
    fn a_sentence_of_others_has_no_full_stop_before_ours() {
        for text in ["It broke", "It broke.", "It broke... \n"] {
            assert_eq!(open_ended(text), "It broke");
        }
        assert_eq!(open_ended("v1.2 failed"), "v1.2 failed");
    }
}
