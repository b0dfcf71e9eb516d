//! The person at the terminal: what they type, and what they were asked already. Used where a
//! conversation goes on, and where runs that are followed ask something.

use std::collections::HashSet;
use std::io::{IsTerminal, Read, Write, stdin};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::getpgrp;
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};
use rustix::time::Timespec;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::asked::Asked;
use super::print;

/// Whoever types, or a pipe that stands in for them.
pub(crate) struct Person {
    /// Somebody types and sees what is asked for.
    pub(crate) is_there: bool,
    wants: mpsc::UnboundedSender<()>,
    reads: mpsc::UnboundedReceiver<Came>,
    /// A byte here makes the reader stop waiting for input.
    rest: Option<UnixStream>,
    is_reading: bool,
    /// What was read and not taken yet.
    pending: Vec<u8>,
    typing: Typing,
    /// What was typed is an answer, and this was typed before it was asked for.
    aside: Option<String>,
    /// Lines that were typed while nothing was asked for.
    ahead: Vec<String>,
    /// What was put to them, answered or not.
    put: HashSet<Uuid>,
}

/// What the reader has.
enum Came {
    /// What was read; nothing: the input has ended.
    Bytes(Vec<u8>),
    /// It does not wait any more, and has taken nothing.
    Rests,
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
        let (rest, mut bell) = match UnixStream::pair() {
            Ok((rest, bell)) => (Some(rest), Some(bell)),
            // Without it what is typed after a question ran out is taken with the next one.
            Err(_) => (None, None),
        };
        std::thread::spawn(move || {
            while let Some(()) = wanted.blocking_recv() {
                let came = wait(bell.as_mut());
                let is_over = matches!(&came, Came::Bytes(bytes) if bytes.is_empty());
                if said.send(came).is_err() || is_over {
                    return;
                }
            }
        });
        Person {
            is_there: is_at_the_terminal() && print::notes_are_watched(),
            wants,
            reads,
            rest,
            is_reading: false,
            pending: Vec::new(),
            typing: Typing::default(),
            aside: None,
            ahead: Vec::new(),
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

    /// The bytes of the keys that are pressed next, on a terminal in raw mode; `None` at the end of
    /// the input. Nothing is lost when this is dropped.
    pub(crate) async fn bytes(&mut self) -> Option<Vec<u8>> {
        if self.pending.is_empty() && !self.read().await {
            return None;
        }
        Some(std::mem::take(&mut self.pending))
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

    /// Nothing is asked any more: the line that was typed before goes on.
    pub(crate) fn goes_on(&mut self) {
        self.forget_typed();
        self.typing.text = self.aside.take().unwrap_or_default();
    }

    /// This was typed already of the next line.
    pub(crate) fn has_typed(&mut self, text: String) {
        self.typing = Typing {
            text,
            ..Typing::default()
        };
    }

    /// A line that was typed while nothing was asked for.
    pub(crate) fn types_ahead(&mut self, line: String) {
        if !line.trim().is_empty() {
            self.ahead.push(line);
        }
    }

    /// Reads no more until it is wanted again: the lines that were typed while nothing was asked
    /// for, and what was typed of the next one.
    pub(crate) async fn typed_ahead(&mut self) -> (Vec<String>, String) {
        if self.aside.is_some() {
            self.goes_on();
        }
        let mut typing = std::mem::take(&mut self.typing);
        let keys = self.rest().await;
        for key in keys.bytes() {
            if let Some(Some(line)) = typing.take(key) {
                self.types_ahead(line);
            }
        }
        (std::mem::take(&mut self.ahead), typing.text)
    }

    /// Drops what was typed of a line that is not wanted any more.
    pub(crate) fn forget_typed(&mut self) {
        self.typing = Typing::default();
    }

    /// Reads more; `false` at the end of the input.
    async fn read(&mut self) -> bool {
        loop {
            if !self.is_reading {
                // Where nobody reads any more, the input has ended.
                let _ = self.wants.send(());
                self.is_reading = true;
            }
            let came = self.reads.recv().await;
            self.is_reading = false;
            match came {
                Some(Came::Bytes(bytes)) => {
                    self.pending.extend(&bytes);
                    return !bytes.is_empty();
                }
                // That was for an earlier one.
                Some(Came::Rests) => {}
                None => return false,
            }
        }
    }

    /// Reads no more until it is wanted again, so that others may; what was read already and not
    /// taken.
    pub(crate) async fn rest(&mut self) -> String {
        self.stop().await;
        self.forget_typed();
        text(&std::mem::take(&mut self.pending))
    }

    /// Sets aside what was typed until now: it was typed before the person has seen what is put to
    /// them next, so it is no answer to that. Whole lines of it are typed ahead, and the rest goes on
    /// once nothing is asked any more.
    pub(crate) async fn set_aside(&mut self) {
        self.stop().await;
        let mut keys = std::mem::take(&mut self.pending);
        if !self.is_reading {
            keys.append(&mut waiting_input());
        }
        let mut typing = std::mem::take(&mut self.typing);
        if let Some(text) = self.aside.take() {
            typing = Typing {
                text,
                ..Typing::default()
            };
        }
        for key in keys {
            if let Some(Some(line)) = typing.take(key) {
                self.types_ahead(line);
            }
        }
        self.aside = Some(typing.text);
    }

    /// Stops the reader; what it has read comes before what is typed later.
    async fn stop(&mut self) {
        let bell = self.rest.as_mut();
        if self.is_reading && bell.is_some_and(|bell| bell.write_all(&[0]).is_ok()) {
            if let Some(Came::Bytes(bytes)) = self.reads.recv().await {
                self.pending.extend(bytes);
            }
            self.is_reading = false;
        }
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

/// Returns when there is something to read, or when the bell rings.
fn wait(bell: Option<&mut UnixStream>) -> Came {
    if let Some(bell) = bell {
        let input = stdin();
        let mut both = [
            PollFd::new(&*bell, PollFlags::IN),
            PollFd::new(&input, PollFlags::IN),
        ];
        while matches!(poll(&mut both, None), Err(rustix::io::Errno::INTR)) {}
        if !both[0].revents().is_empty() {
            // The other end is open as long as somebody wants something.
            let _ = bell.read(&mut [0]);
            return Came::Rests;
        }
    }
    // Past the standard library's buffer, which the poll above knows nothing of.
    let mut bytes = [0; 4096];
    loop {
        match rustix::io::read(stdin(), &mut bytes) {
            Err(rustix::io::Errno::INTR) => {}
            read => return Came::Bytes(bytes[..read.unwrap_or(0)].to_vec()),
        }
    }
}

/// Takes what the terminal has of input that nobody has read yet.
fn waiting_input() -> Vec<u8> {
    let input = stdin();
    let mut typed = Vec::new();
    if !input.is_terminal() {
        return typed;
    }
    let now = Timespec::default();
    let mut bytes = [0; 4096];
    loop {
        let mut one = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut one, Some(&now)) {
            Ok(1..) if one[0].revents().contains(PollFlags::IN) => {}
            _ => break,
        }
        match rustix::io::read(&input, &mut bytes) {
            Ok(count @ 1..) => typed.extend(&bytes[..count]),
            _ => break,
        }
    }
    // The beginning of a line that the terminal would give as a whole.
    let _ = tcflush(&input, QueueSelector::IFlush);
    typed
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
