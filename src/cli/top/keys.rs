//! Keys out of the bytes that a terminal in raw mode sends.

/// A key that a person has pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A character.
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// Tab.
    Tab,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
    /// Ctrl-U.
    Erase,
    /// Ctrl-L.
    Redraw,
    /// Ctrl-C or Ctrl-D.
    Interrupt,
}

/// Marks around text that was pasted.
const PASTE: [&[u8]; 2] = [b"\x1b[200~", b"\x1b[201~"];

/// The keys in these bytes. A sequence that is cut at the end is taken as it is: terminals write
/// the bytes of a key at once.
pub(super) fn read(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let (key, taken) = match first {
            _ if PASTE.iter().any(|mark| rest.starts_with(mark)) => (None, PASTE[0].len()),
            0x1b => escape(rest),
            b'\r' | b'\n' => (Some(Key::Enter), 1),
            b'\t' => (Some(Key::Tab), 1),
            0x7f | 0x08 => (Some(Key::Backspace), 1),
            0x03 | 0x04 => (Some(Key::Interrupt), 1),
            0x0c => (Some(Key::Redraw), 1),
            0x15 => (Some(Key::Erase), 1),
            0..=0x1f => (None, 1),
            _ => character(rest),
        };
        keys.extend(key);
        rest = &rest[taken.min(rest.len())..];
    }
    keys
}

/// A key that sends a sequence, or Escape itself; and how many bytes it takes.
fn escape(bytes: &[u8]) -> (Option<Key>, usize) {
    let (Some(b'[' | b'O'), Some(_)) = (bytes.get(1), bytes.get(2)) else {
        return (Some(Key::Escape), 1);
    };
    let end = bytes[2..]
        .iter()
        .position(|byte| (0x40..=0x7e).contains(byte))
        .map_or(bytes.len(), |at| at + 3);
    let key = match &bytes[2..end] {
        b"A" => Some(Key::Up),
        b"B" => Some(Key::Down),
        b"H" | b"1~" | b"7~" => Some(Key::Home),
        b"F" | b"4~" | b"8~" => Some(Key::End),
        b"5~" => Some(Key::PageUp),
        b"6~" => Some(Key::PageDown),
        _ => None,
    };
    (key, end)
}

fn character(bytes: &[u8]) -> (Option<Key>, usize) {
    let longest = &bytes[..bytes.len().min(4)];
    let text = match std::str::from_utf8(longest) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&longest[..error.valid_up_to()]).unwrap_or_default(),
    };
    match text.chars().next() {
        Some(ch) => (Some(Key::Char(ch)), ch.len_utf8()),
        None => (None, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_and_characters_are_told_apart() {
        let keys = read("j\u{1b}[B\u{1b}OA\u{1b}[6~é子\r\u{7f}\u{3}".as_bytes());
        let expected = [
            Key::Char('j'),
            Key::Down,
            Key::Up,
            Key::PageDown,
            Key::Char('é'),
            Key::Char('子'),
            Key::Enter,
            Key::Backspace,
            Key::Interrupt,
        ];
        assert_eq!(keys, expected);
        assert_eq!(read(b"\x1b"), [Key::Escape]);
        assert_eq!(read(b"\x1b[1;5Cq"), [Key::Char('q')]);
        assert_eq!(
            read(b"\x1b[200~yes\x1b[201~"),
            [Key::Char('y'), Key::Char('e'), Key::Char('s')]
        );
        assert_eq!(read(b"\xff\xfea"), [Key::Char('a')]);
    }
}
