//! The user at the terminal: reads their input, and records which requests they were asked. Used by
//! conversations and by the commands that follow runs interactively.

use std::collections::HashSet;
use std::io::{IsTerminal, Read, Write, stdin};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::getpgrp;
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};
use rustix::time::Timespec;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::open_requests::OpenRequest;
use crate::cli::output::print;

/// The user who types, or a pipe in their place.
pub(crate) struct Person {
    /// True if a user types and sees the prompts.
    pub(crate) is_there: bool,
    wants: mpsc::UnboundedSender<()>,
    reads: mpsc::UnboundedReceiver<Came>,
    /// A byte written here stops the reader's wait for input.
    stop_bell: Option<UnixStream>,
    is_reading: bool,
    /// Bytes that were read and not consumed yet.
    pending: Vec<u8>,
    typing: Typing,
    /// While a request is prompted: the unfinished line that was typed before it.
    aside: Option<String>,
    /// Complete lines that were typed while no request was prompted.
    ahead: Vec<String>,
    /// Requests that the user was asked, answered or not.
    asked_ids: HashSet<Uuid>,
}

/// Result of one read by the reader thread.
enum Came {
    /// The bytes that were read; empty at the end of the input.
    Bytes(Vec<u8>),
    /// The wait was stopped, and nothing was read.
    Rests,
}

/// Effect of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LineProgress {
    /// The line has changed and is not complete.
    More,
    /// The line is complete; `None` at the end of the input.
    Line(Option<String>),
}

impl Person {
    /// Reads nothing until input is requested: standard input may be meant for another program.
    pub(crate) fn new() -> Person {
        let (wants, mut wanted) = mpsc::unbounded_channel();
        let (said, reads) = mpsc::unbounded_channel();
        // A separate thread, which ends with the program, so that Ctrl-C works while no input
        // arrives.
        let (rest, mut bell) = match UnixStream::pair() {
            Ok((rest, bell)) => (Some(rest), Some(bell)),
            // Without it, what is typed after a question has expired is taken for the next one.
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
            stop_bell: rest,
            is_reading: false,
            pending: Vec::new(),
            typing: Typing::default(),
            aside: None,
            ahead: Vec::new(),
            asked_ids: HashSet::new(),
        }
    }

    /// The user, if one can be asked.
    pub(crate) fn if_there() -> Option<Person> {
        (is_at_the_terminal() && print::notes_are_watched()).then(Person::new)
    }

    /// The next line of a terminal or a pipe; `None` at the end of the input. Cancel-safe: an
    /// abandoned line is returned by the next call.
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

    /// Bytes of the next keys, on a terminal in raw mode; `None` at the end of the input.
    /// Cancel-safe.
    pub(crate) async fn bytes(&mut self) -> Option<Vec<u8>> {
        if self.pending.is_empty() && !self.read().await {
            return None;
        }
        Some(std::mem::take(&mut self.pending))
    }

    /// Effect of the next keys, on a terminal without line editing of its own.
    pub(crate) async fn key(&mut self) -> LineProgress {
        if self.pending.is_empty() && !self.read().await {
            return LineProgress::Line(None);
        }
        let mut keys = std::mem::take(&mut self.pending).into_iter();
        for key in keys.by_ref() {
            if let Some(line) = self.typing.take(key) {
                self.pending = keys.collect();
                return LineProgress::Line(line);
            }
        }
        LineProgress::More
    }

    /// Text of the unfinished line.
    pub(crate) fn typed(&self) -> &str {
        &self.typing.text
    }

    /// Ends a prompt: the unfinished line that was typed before it is restored.
    pub(crate) fn restore_typed(&mut self) {
        self.forget_typed();
        self.typing.text = self.aside.take().unwrap_or_default();
    }

    /// Sets the text of the unfinished line.
    pub(crate) fn has_typed(&mut self, text: String) {
        self.typing = Typing {
            text,
            ..Typing::default()
        };
    }

    /// Queues a line that was typed while no request was prompted.
    pub(crate) fn types_ahead(&mut self, line: String) {
        if !line.trim().is_empty() {
            self.ahead.push(line);
        }
    }

    /// Stops reading; returns the lines that were typed while no request was prompted, and the
    /// unfinished next one.
    pub(crate) async fn typed_ahead(&mut self) -> (Vec<String>, String) {
        if self.aside.is_some() {
            self.restore_typed();
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

    /// Drops the unfinished line.
    pub(crate) fn forget_typed(&mut self) {
        self.typing = Typing::default();
    }

    /// Reads more; `false` at the end of the input.
    async fn read(&mut self) -> bool {
        loop {
            if !self.is_reading {
                // If the reader thread has ended, so has the input.
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
                // This stop was meant for an earlier read.
                Some(Came::Rests) => {}
                None => return false,
            }
        }
    }

    /// Stops reading, so that other code may read the input; returns what was read and not
    /// consumed.
    pub(crate) async fn rest(&mut self) -> String {
        self.stop().await;
        self.forget_typed();
        text(&std::mem::take(&mut self.pending))
    }

    /// Sets aside what was typed so far: it was typed before the user saw the next request, so it
    /// cannot answer it. Complete lines become typed-ahead lines; the rest is restored when the
    /// prompt ends.
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

    /// Stops the reader; what it has read is kept in front of later input.
    async fn stop(&mut self) {
        let bell = self.stop_bell.as_mut();
        if self.is_reading && bell.is_some_and(|bell| bell.write_all(&[0]).is_ok()) {
            if let Some(Came::Bytes(bytes)) = self.reads.recv().await {
                self.pending.extend(bytes);
            }
            self.is_reading = false;
        }
    }

    /// The first of these requests that the user was not asked yet; it now counts as asked.
    pub(crate) fn next_of(&mut self, asked: &[OpenRequest]) -> Option<OpenRequest> {
        let next = asked
            .iter()
            .find(|one| !self.asked_ids.contains(&one.id()))?;
        self.asked_ids.insert(next.id());
        Some(next.clone())
    }

    /// The reply to this request did not arrive, so it will be asked again.
    pub(crate) fn unmark_asked(&mut self, asked: Uuid) {
        self.asked_ids.remove(&asked);
    }
}

/// Waits for input, or for the bell, which stops the wait.
fn wait(bell: Option<&mut UnixStream>) -> Came {
    if let Some(bell) = bell {
        let input = stdin();
        let mut both = [
            PollFd::new(&*bell, PollFlags::IN),
            PollFd::new(&input, PollFlags::IN),
        ];
        while matches!(poll(&mut both, None), Err(rustix::io::Errno::INTR)) {}
        if !both[0].revents().is_empty() {
            // The other end stays open as long as input can be requested.
            let _ = bell.read(&mut [0]);
            return Came::Rests;
        }
    }
    // Bypasses the standard library's buffer, which the poll above does not know of.
    let mut bytes = [0; 4096];
    loop {
        match rustix::io::read(stdin(), &mut bytes) {
            Err(rustix::io::Errno::INTR) => {}
            read => return Came::Bytes(bytes[..read.unwrap_or(0)].to_vec()),
        }
    }
}

/// Reads the terminal's pending input without waiting.
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
    // Discards the start of a line that the terminal would deliver as a whole.
    let _ = tcflush(&input, QueueSelector::IFlush);
    typed
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\r')
        .to_owned()
}

/// True if this program may read and configure standard input. A background job of a shell would be
/// stopped by doing so.
pub(crate) fn is_at_the_terminal() -> bool {
    // If the terminal is not this session's, no job is stopped.
    let in_front = || tcgetpgrp(stdin()).map_or(true, |group| group == getpgrp());
    stdin().is_terminal() && in_front()
}

/// A line that is being typed.
#[derive(Default)]
struct Typing {
    text: String,
    /// Bytes of an incomplete UTF-8 character.
    part: Vec<u8>,
    escape: Escape,
}

/// State within an escape sequence, which a key without a character sends.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    Begun,
    Inside,
}

impl Typing {
    /// Takes a key; returns the line once it is complete, `Some(None)` at the end of the input.
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
        // Arrow keys and the like produce no characters.
        assert_eq!(typed("a\u{1b}[1;5C\u{1b}OA\u{1b}b\u{7}c\n"), line("ac"));
        assert_eq!(typed("\u{4}"), (String::new(), Some(None)));
        assert_eq!(typed("ab\u{4}"), ("ab".to_owned(), None));
    }
}
