//! The person at the terminal: what they type, and what they were asked already. Used where a
//! conversation goes on, and where runs that are followed ask something.

use std::collections::HashSet;
use std::io::{IsTerminal, Read, stdin};

use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::asked::Asked;
use super::print;

/// Whoever types, or a pipe that stands in for them.
pub(crate) struct Person {
    /// Somebody types and sees what is asked for.
    pub(crate) is_there: bool,
    wants: mpsc::UnboundedSender<()>,
    /// What was read; nothing: the input has ended.
    reads: mpsc::UnboundedReceiver<Vec<u8>>,
    is_reading: bool,
    /// What was read and not taken yet.
    pending: Vec<u8>,
    typing: Typing,
    /// What was put to them, answered or not.
    put: HashSet<Uuid>,
}

/// What comes of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// The line is another one now.
    More,
    /// The line is whole; `None` at the end of the input.
    Line(Option<String>),
}

impl Person {
    /// Reads nothing until it is wanted: what stands in standard input may be another program's.
    pub(crate) fn new() -> Person {
        let (wants, mut wanted) = mpsc::unbounded_channel();
        let (said, reads) = mpsc::unbounded_channel();
        // A thread of its own, which ends with the program, so that Ctrl-C is heard while
        // nobody types.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Some(()) = wanted.blocking_recv() {
                let count = stdin().lock().read(&mut bytes).unwrap_or(0);
                if said.send(bytes[..count].to_vec()).is_err() || count == 0 {
                    return;
                }
            }
        });
        Person {
            is_there: is_at_the_terminal() && print::notes_are_watched(),
            wants,
            reads,
            is_reading: false,
            pending: Vec::new(),
            typing: Typing::default(),
            put: HashSet::new(),
        }
    }

    /// The person, if one can be asked.
    pub(crate) fn if_there() -> Option<Person> {
        (is_at_the_terminal() && print::notes_are_watched()).then(Person::new)
    }

    /// The next line, as the terminal or a pipe gives it; `None` at the end of the input. What
    /// is not waited for any more comes the next time.
    pub(crate) async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Some(text(&line[..end]));
            }
            if !self.read().await {
                let rest = std::mem::take(&mut self.pending);
                return (!rest.is_empty()).then(|| text(&rest));
            }
        }
    }

    /// What comes of the keys that are pressed next, on a terminal that gives them as they are.
    pub(crate) async fn key(&mut self) -> Typed {
        if self.pending.is_empty() && !self.read().await {
            return Typed::Line(None);
        }
        let mut keys = std::mem::take(&mut self.pending).into_iter();
        for key in keys.by_ref() {
            if let Some(line) = self.typing.take(key) {
                self.pending = keys.collect();
                return Typed::Line(line);
            }
        }
        Typed::More
    }

    /// What was typed of a line that is not whole yet.
    pub(crate) fn typed(&self) -> &str {
        &self.typing.text
    }

    /// Drops what was typed of a line that is not wanted any more.
    pub(crate) fn forget_typed(&mut self) {
        self.typing = Typing::default();
    }

    /// Reads more; `false` at the end of the input.
    async fn read(&mut self) -> bool {
        if !self.is_reading {
            // Where nobody reads any more, the input has ended.
            let _ = self.wants.send(());
            self.is_reading = true;
        }
        let bytes = self.reads.recv().await.unwrap_or_default();
        self.is_reading = false;
        self.pending.extend(&bytes);
        !bytes.is_empty()
    }

    /// The first of these that was not put to them yet.
    pub(crate) fn next_of(&mut self, asked: &[Asked]) -> Option<Asked> {
        let next = asked.iter().find(|one| !self.put.contains(&one.id()))?;
        self.put.insert(next.id());
        Some(next.clone())
    }

    /// What they said to this did not arrive: it is put to them again.
    pub(crate) fn was_not_heard(&mut self, asked: Uuid) {
        self.put.remove(&asked);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\r')
        .to_owned()
}

/// May standard input be read and set up by this program? A shell's job in the background would
/// be stopped by it.
pub(crate) fn is_at_the_terminal() -> bool {
    // Where the terminal is not this session's, nobody is stopped.
    let in_front = || tcgetpgrp(stdin()).map_or(true, |group| group == getpgrp());
    stdin().is_terminal() && in_front()
}

/// A line that is being typed.
#[derive(Default)]
struct Typing {
    text: String,
    /// The beginning of a character.
    part: Vec<u8>,
    escape: Escape,
}

/// How far a sequence has come that a key without a character sends.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    Begun,
    Inside,
}

impl Typing {
    /// Takes a key; the line once it is whole, `None` inside where the input was ended.
    fn take(&mut self, key: u8) -> Option<Option<String>> {
        match (self.escape, key) {
            (Escape::Begun, b'[' | b'O') => self.escape = Escape::Inside,
            (Escape::Inside, 0x20..=0x3f) => {}
            (Escape::Begun | Escape::Inside, _) => self.escape = Escape::None,
            (Escape::None, b'\n' | b'\r') => return Some(Some(std::mem::take(&mut self.text))),
            // Ctrl-D
            (Escape::None, 0x04) if self.text.is_empty() => return Some(None),
            // Backspace
            (Escape::None, 0x7f | 0x08) => drop(self.text.pop()),
            // Ctrl-U, Ctrl-W
            (Escape::None, 0x15) => self.text.clear(),
            (Escape::None, 0x17) => {
                let rest = self.text.trim_end();
                let end = rest.rfind(char::is_whitespace).map_or(0, |at| at + 1);
                self.text.truncate(end);
            }
            (Escape::None, 0x1b) => self.escape = Escape::Begun,
            (Escape::None, 0..=0x1f) => {}
            (Escape::None, _) => self.character(key),
        }
        None
    }

    fn character(&mut self, byte: u8) {
        self.part.push(byte);
        match std::str::from_utf8(&self.part) {
            Ok(text) => self.text.push_str(text),
            Err(error) if error.error_len().is_none() => return,
            Err(_) => {}
        }
        self.part.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &str) -> (String, Option<Option<String>>) {
        let mut typing = Typing::default();
        let done = keys.bytes().find_map(|key| typing.take(key));
        (typing.text, done)
    }

    #[test]
    fn keys_become_a_line() {
        let line = |text: &str| (String::new(), Some(Some(text.to_owned())));
        assert_eq!(typed("yes\n"), line("yes"));
        assert_eq!(typed("noo\u{7f}\r"), line("no"));
        assert_eq!(typed("子代\u{7f}理é\n"), line("子理é"));
        assert_eq!(typed("one two  \u{17}3\n"), line("one 3"));
        assert_eq!(typed("one\u{15}two\n"), line("two"));
        // Arrows and the like are no characters.
        assert_eq!(typed("a\u{1b}[1;5C\u{1b}OA\u{1b}b\u{7}c\n"), line("ac"));
        assert_eq!(typed("\u{4}"), (String::new(), Some(None)));
        assert_eq!(typed("ab\u{4}"), ("ab".to_owned(), None));
    }
}
