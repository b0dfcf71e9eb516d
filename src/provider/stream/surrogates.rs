//! Handles lone surrogates in JSON escapes. A server that cuts its text by UTF-16 units sends
//! `"\ud83d"` in one piece and `"\ude00"` in the next. No Rust string can hold a lone surrogate,
//! and parsers refuse it, so it is replaced by a mark before parsing and joined with its other half
//! once the pieces of a field are together. One that stays alone becomes U+FFFD.
//!
//! The marks are the last 2,048 characters of Unicode, all for private use. If a server really
//! sends one of them, it is written as the marks of its own two surrogates, so nothing is lost.

use std::borrow::Cow;

/// The mark of the surrogate 0xD800; the others follow in order.
const FIRST: u32 = 0x10_F800;
/// The first byte of every mark in UTF-8.
const LEAD: u8 = 0xF4;
/// Replacement for a surrogate that stays alone.
const ALONE: char = '\u{FFFD}';

const HIGH: std::ops::RangeInclusive<u32> = 0xD800..=0xDBFF;
const LOW: std::ops::RangeInclusive<u32> = 0xDC00..=0xDFFF;

fn mark(half: u32) -> char {
    char::from_u32(FIRST + (half - 0xD800)).unwrap_or(ALONE)
}

/// The surrogate that `character` marks.
fn half(character: char) -> Option<u32> {
    (u32::from(character) >= FIRST).then(|| u32::from(character) - FIRST + 0xD800)
}

fn pair(high: u32, low: u32) -> char {
    char::from_u32(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00)).unwrap_or(ALONE)
}

/// Writes the two marks of a character that is itself in the range of the marks.
fn push_marks(character: char, out: &mut String) {
    let offset = u32::from(character) - 0x1_0000;
    out.push(mark(0xD800 + (offset >> 10)));
    out.push(mark(0xDC00 + (offset & 0x3FF)));
}

/// `json` with a mark for each lone surrogate, so that a parser accepts it.
pub(super) fn marked(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    if !bytes.contains(&LEAD) && !json.contains("\\u") {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find(|c: char| c == '\\' || half(c).is_some()) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = match (unit(rest), rest.get(6..).and_then(unit)) {
            (Some(high), Some(low)) if HIGH.contains(&high) && LOW.contains(&low) => {
                match pair(high, low) {
                    own if half(own).is_some() => push_marks(own, &mut out),
                    _ => out.push_str(&rest[..12]),
                }
                12
            }
            (Some(alone), _) if HIGH.contains(&alone) || LOW.contains(&alone) => {
                out.push(mark(alone));
                6
            }
            (Some(_), _) => {
                out.push_str(&rest[..6]);
                6
            }
            (None, _) => escape_or_own(rest, &mut out),
        };
        rest = &rest[taken..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The UTF-16 unit of a `\uXXXX` escape at the beginning of `text`.
fn unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let are_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| are_digits)
}

/// Copies another escape, or writes the marks of a character in their range; returns the number of
/// bytes read.
fn escape_or_own(rest: &str, out: &mut String) -> usize {
    let mut characters = rest.chars();
    let first = characters.next().unwrap_or('\\');
    if first != '\\' {
        push_marks(first, out);
        return first.len_utf8();
    }
    // The character after a backslash belongs to it: a second backslash begins no escape.
    let ends = characters.next().map_or(1, |second| 1 + second.len_utf8());
    out.push_str(&rest[..ends]);
    ends
}

/// `text` with its marks joined to characters.
pub(super) fn joined(text: &str) -> Cow<'_, str> {
    if !text.as_bytes().contains(&LEAD) || !text.chars().any(|c| half(c).is_some()) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let Some(first) = half(character) else {
            out.push(character);
            continue;
        };
        let second = characters.peek().copied().and_then(half);
        match second.filter(|second| HIGH.contains(&first) && LOW.contains(second)) {
            Some(second) => {
                characters.next();
                out.push(pair(first, second));
            }
            None => out.push(ALONE),
        }
    }
    Cow::Owned(out)
}

/// Text on its way to listeners: a surrogate at the end of a piece is held until the next piece.
#[derive(Debug, Default)]
pub(in crate::provider) struct LiveText {
    held: String,
}

impl LiveText {
    /// The text to emit after `piece` has arrived.
    pub(in crate::provider) fn push(&mut self, piece: &str) -> String {
        let mut text = std::mem::take(&mut self.held);
        text.push_str(piece);
        let waits = |c: &char| half(*c).is_some_and(|half| HIGH.contains(&half));
        if let Some(last) = text.chars().next_back().filter(waits) {
            text.truncate(text.len() - last.len_utf8());
            self.held.push(last);
        }
        joined(&text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The string that a parser followed by [`joined`] makes of a JSON text.
    fn read(json: &str) -> String {
        let text: String = serde_json::from_str(&marked(json)).unwrap();
        joined(&text).into_owned()
    }

    #[test]
    fn halves_join_and_a_lone_half_becomes_the_replacement_character() {
        for (json, expected) in [
            (r#""\ud83d\ude00""#, "😀"),
            (r#""a\ud83db""#, "a\u{FFFD}b"),
            (r#""\ude00\ud83d""#, "\u{FFFD}\u{FFFD}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{FFFD}😀"),
            (r#""\uD83D\n""#, "\u{FFFD}\n"),
            // A backslash before the escape makes it plain text.
            (r#""\\ud83d""#, "\\ud83d"),
            (r#""\\\ud83d""#, "\\\u{FFFD}"),
            // The characters that are used as marks, in both forms.
            ("\"\u{10F800}\u{10FFFF}\"", "\u{10F800}\u{10FFFF}"),
            (r#""\udbfe\udc00\udbff\udfff""#, "\u{10F800}\u{10FFFF}"),
        ] {
            assert_eq!(read(json), expected, "{json}");
        }
        for broken in [r#""\ud8"#, r#""\u12"#, "\"\\", r#""\ud83d\u12""#] {
            assert!(serde_json::from_str::<String>(&marked(broken)).is_err());
        }
    }

    #[test]
    fn a_half_at_the_end_of_a_piece_waits_for_the_next() {
        let mut live = LiveText::default();
        let piece = |json: &str| serde_json::from_str::<String>(&marked(json)).unwrap();
        let heard: Vec<String> = [r#""a\ud83d""#, r#""\ude00b\ud83d""#, r#""c""#]
            .iter()
            .map(|json| live.push(&piece(json)))
            .collect();
        assert_eq!(heard, ["a", "😀b", "\u{FFFD}c"]);
    }

    proptest! {
        /// Wherever a text is cut between UTF-16 units, the pieces give the same text.
        #[test]
        fn a_text_cut_anywhere_comes_together(
            text in "[a\\\\\"\u{10F800}-\u{10FFFF}😀é]{0,12}",
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let units: Vec<u16> = text.encode_utf16().collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(units.len() + 1)).collect();
            cuts.extend([0, units.len()]);
            cuts.sort_unstable();
            let mut whole = String::new();
            for range in cuts.windows(2) {
                let escapes = units[range[0]..range[1]].iter();
                let json: String = escapes.map(|unit| format!("\\u{unit:04x}")).collect();
                let piece: String = serde_json::from_str(&marked(&format!("\"{json}\""))).unwrap();
                whole.push_str(&piece);
            }
            prop_assert_eq!(joined(&whole), text.as_str());
        }
    }
}
