//! Parses keys from the bytes that a terminal in raw mode sends.

/// A pressed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PressedKey {
    /// A character.
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-U.
    Erase,
    /// Ctrl-L.
    Redraw,
    /// Ctrl-C or Ctrl-D.
    Interrupt,
    /// A character of pasted text: no key was pressed.
    Pasted(char),
}

/// Marks at the start and the end of pasted text.
const PASTE: [&[u8]; 2] = [b"\x1b[200~", b"\x1b[201~"];
/// Minimum length of a mark's beginning that is the beginning of no key handled here.
const PART: usize = 3;

/// Parses keys; pasted text may arrive in several parts.
#[derive(Default)]
pub(super) struct Keys {
    is_pasted: bool,
    /// The beginning of a mark, from the previous read.
    held: Vec<u8>,
}

impl Keys {
    /// Parses the keys in `bytes`. The sequence of a key that is cut at the end is not held back:
    /// terminals write the bytes of a key in one write.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<PressedKey> {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let mut keys = Vec::new();
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            let mark = PASTE[usize::from(self.is_pasted)];
            if rest.starts_with(mark) {
                self.is_pasted = !self.is_pasted;
                rest = &rest[mark.len()..];
                continue;
            }
            let least = if self.is_pasted { 1 } else { PART };
            if rest.len() >= least && mark.starts_with(rest) {
                self.held = rest.to_vec();
                break;
            }
            let (key, taken) = match self.is_pasted {
                true => pasted(rest),
                false => pressed(rest),
            };
            keys.extend(key);
            rest = &rest[taken.min(rest.len())..];
        }
        keys
    }
}

/// Pasted text triggers no keys; its line ends become spaces.
fn pasted(bytes: &[u8]) -> (Option<PressedKey>, usize) {
    match bytes.first() {
        Some(b'\r' | b'\n' | b'\t') => (Some(PressedKey::Pasted(' ')), 1),
        Some(0..=0x1f | 0x7f) => (None, 1),
        _ => match character(bytes) {
            (Some(PressedKey::Char(ch)), taken) => (Some(PressedKey::Pasted(ch)), taken),
            (_, taken) => (None, taken),
        },
    }
}

/// The first key in these bytes, and its length in bytes.
fn pressed(bytes: &[u8]) -> (Option<PressedKey>, usize) {
    match bytes.first() {
        Some(0x1b) => escape(bytes),
        Some(b'\r' | b'\n') => (Some(PressedKey::Enter), 1),
        Some(b'\t') => (Some(PressedKey::Tab), 1),
        Some(0x7f | 0x08) => (Some(PressedKey::Backspace), 1),
        Some(0x03 | 0x04) => (Some(PressedKey::Interrupt), 1),
        Some(0x0c) => (Some(PressedKey::Redraw), 1),
        Some(0x15) => (Some(PressedKey::Erase), 1),
        Some(0..=0x1f) => (None, 1),
        _ => character(bytes),
    }
}

/// A key that sends a sequence, or Escape itself, and its length in bytes.
fn escape(bytes: &[u8]) -> (Option<PressedKey>, usize) {
    let (Some(b'[' | b'O'), Some(_)) = (bytes.get(1), bytes.get(2)) else {
        return (Some(PressedKey::Escape), 1);
    };
    let end = bytes[2..]
        .iter()
        .position(|byte| (0x40..=0x7e).contains(byte))
        .map_or(bytes.len(), |at| at + 3);
    let key = match &bytes[2..end] {
        b"A" => Some(PressedKey::Up),
        b"B" => Some(PressedKey::Down),
        b"H" | b"1~" | b"7~" => Some(PressedKey::Home),
        b"F" | b"4~" | b"8~" => Some(PressedKey::End),
        b"5~" => Some(PressedKey::PageUp),
        b"6~" => Some(PressedKey::PageDown),
        _ => None,
    };
    (key, end)
}

fn character(bytes: &[u8]) -> (Option<PressedKey>, usize) {
    let longest = &bytes[..bytes.len().min(4)];
    let text = match std::str::from_utf8(longest) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&longest[..error.valid_up_to()]).unwrap_or_default(),
    };
    match text.chars().next() {
        Some(ch) => (Some(PressedKey::Char(ch)), ch.len_utf8()),
        None => (None, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<PressedKey> {
        Keys::default().read(bytes)
    }

    #[test]
    fn pasted_text_is_no_key_however_it_is_cut() {
        let text = "q\u{1b}[200~y\ré\u{3}\u{1b}[201~n".as_bytes();
        let expected = [
            PressedKey::Char('q'),
            PressedKey::Pasted('y'),
            PressedKey::Pasted(' '),
            PressedKey::Pasted('é'),
            PressedKey::Char('n'),
        ];
        for cut in [4, 5, 7, 8, 9, 12, 13, 15, 17] {
            let mut keys = Keys::default();
            let mut all = keys.read(&text[..cut]);
            all.extend(keys.read(&text[cut..]));
            assert_eq!(all, expected, "{cut}");
        }
    }

    #[test]
    fn sequences_and_characters_are_told_apart() {
        let keys = read("j\u{1b}[B\u{1b}OA\u{1b}[6~é子\r\u{7f}\u{3}".as_bytes());
        let expected = [
            PressedKey::Char('j'),
            PressedKey::Down,
            PressedKey::Up,
            PressedKey::PageDown,
            PressedKey::Char('é'),
            PressedKey::Char('子'),
            PressedKey::Enter,
            PressedKey::Backspace,
            PressedKey::Interrupt,
        ];
        assert_eq!(keys, expected);
        assert_eq!(read(b"\x1b"), [PressedKey::Escape]);
        assert_eq!(read(b"\x1b[1;5Cq"), [PressedKey::Char('q')]);
        assert_eq!(read(b"\xff\xfea"), [PressedKey::Char('a')]);
    }
}
