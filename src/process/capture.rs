//! Bounded capture of a program's output: keeps the first and the last part, and counts the bytes
//! between them.

use std::collections::VecDeque;

/// The kept parts of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    keep: usize,
    total: u64,
    is_cut: bool,
}

impl Captured {
    /// Keeps at most `keep` bytes: half of them from the beginning, half from the end.
    pub(super) fn new(keep: usize) -> Self {
        Captured {
            keep,
            ..Captured::default()
        }
    }

    /// Appends the next bytes of the stream.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let half = self.keep / 2;
        let fits = bytes.len().min(half.saturating_sub(self.head.len()));
        self.head.extend_from_slice(&bytes[..fits]);
        bytes = &bytes[fits..];
        let room = self.keep - half;
        let bytes = &bytes[bytes.len().saturating_sub(room)..];
        let over = (self.tail.len() + bytes.len()).saturating_sub(room);
        self.tail.drain(..over);
        self.tail.extend(bytes);
    }

    /// Marks the output as incomplete: the program was stopped while it was writing.
    pub(super) fn cut(&mut self) {
        self.is_cut = true;
    }

    /// The number of bytes that the program has written.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The number of bytes that were dropped between the first and the last part.
    pub fn left_out(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// The kept output as text. Invalid UTF-8 is replaced, a gap is stated on its own line, and no
    /// part is cut within a character.
    pub fn text(&self) -> String {
        let mut text = self.kept();
        if self.is_cut && !text.is_empty() {
            text.push('…');
        }
        text
    }

    fn kept(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if self.left_out() == 0 {
            let whole = [self.head.as_slice(), &tail].concat();
            return String::from_utf8_lossy(&whole).into_owned();
        }
        let head = whole_characters(&self.head);
        // At most three bytes can be the rest of a cut character.
        let is_rest = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
        let rest = tail.iter().take(3).take_while(is_rest).count();
        let cut = (self.head.len() - head.len() + rest) as u64;
        format!(
            "{}\n… {} bytes left out …\n{}",
            String::from_utf8_lossy(head),
            self.left_out() + cut,
            String::from_utf8_lossy(&tail[rest..])
        )
    }

    /// At most the last `most` bytes, starting at a character boundary. `…` marks a truncation, as
    /// everywhere; redaction relies on the mark to find a truncated secret.
    pub fn last(&self, most: usize) -> String {
        let text = self.text();
        let mut from = text.len().saturating_sub(most);
        if from == 0 {
            return text;
        }
        while !text.is_char_boundary(from) {
            from += 1;
        }
        format!("…{}", &text[from..])
    }
}

/// `bytes` without an incomplete character at the end.
fn whole_characters(bytes: &[u8]) -> &[u8] {
    match bytes.utf8_chunks().last() {
        // Invalid bytes in the middle stay and are replaced later.
        Some(chunk) if is_begun(chunk.invalid()) => &bytes[..bytes.len() - chunk.invalid().len()],
        _ => bytes,
    }
}

/// True if `bytes` are an incomplete character that more bytes could complete.
fn is_begun(bytes: &[u8]) -> bool {
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::secret::Secret;
    use crate::kernel::text::redact::Redactor;
    use proptest::prelude::*;

    fn captured(keep: usize, pieces: &[&[u8]]) -> Captured {
        let mut captured = Captured::new(keep);
        for piece in pieces {
            captured.push(piece);
        }
        captured
    }

    #[test]
    fn g13_3_the_first_and_the_last_part_are_kept_and_the_rest_is_counted() {
        let kept = captured(8, &[b"abc", b"defghijkl", b"mn"]);
        assert_eq!(kept.text(), "abcd\n… 6 bytes left out …\nklmn");
        assert_eq!((kept.total(), kept.left_out()), (14, 6));
        assert_eq!(captured(8, &[b"abcdefgh"]).text(), "abcdefgh");
        assert_eq!(captured(8, &[]).text(), "");
        assert_eq!(kept.last(3), "…lmn");
        assert_eq!(kept.last(100), kept.text());
    }

    #[test]
    fn g9_10_bytes_that_are_no_text_are_replaced() {
        assert_eq!(captured(8, &[b"a\xffb"]).text(), "a\u{fffd}b");
        // A character that starts in one piece and ends in the next.
        assert_eq!(captured(8, &[b"\xc3", b"\xa4"]).text(), "ä");
    }

    /// The reader redacts the secrets of the run and recognizes a cut by its mark.
    #[test]
    fn of_a_secret_across_a_cut_nothing_is_left_on_either_side() {
        let secret = Secret::new("canary-token-1");
        let redactor = Redactor::new([("A_TOKEN", &secret)]);
        for (before, behind) in [(3, 40), (9, 40), (40, 5), (40, 11), (5, 5)] {
            let dots = |count| ".".repeat(count);
            let text = format!("{}canary-token-1{}", dots(before), dots(behind));
            let shown = captured(24, &[text.as_bytes()]);
            for shown in [shown.text(), shown.last(8), shown.last(14)] {
                let without = redactor.text(&shown).into_owned();
                let parts = (0..11).map(|at| &"canary-token-1"[at..at + 4]);
                for part in parts {
                    assert!(!without.contains(part), "{shown:?}: {without:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn g9_11_a_gap_is_cut_between_characters(
            text in "[aä€𝄞]{0,60}", keep in 2usize..60, piece in 1usize..9
        ) {
            let mut kept = Captured::new(keep);
            for piece in text.as_bytes().chunks(piece) {
                kept.push(piece);
            }
            prop_assert_eq!(kept.total(), text.len() as u64);
            let shown = kept.text();
            prop_assert!(!shown.contains('\u{fffd}'), "{}", shown);
            match shown.split_once("\n… ") {
                None => prop_assert_eq!(shown, text),
                Some((head, rest)) => {
                    let (count, tail) = rest.split_once(" bytes left out …\n").unwrap();
                    prop_assert!(text.starts_with(head) && text.ends_with(tail));
                    let count: usize = count.parse().unwrap();
                    prop_assert_eq!(head.len() + count + tail.len(), text.len());
                    prop_assert!(head.len() + tail.len() <= keep);
                }
            }
        }
    }
}
