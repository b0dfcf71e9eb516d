//! The person at the terminal: the lines that they type, and what they were asked already. Used
//! where a conversation goes on, and where runs that are followed ask something.

use std::collections::HashSet;
use std::io::{BufRead, IsTerminal, stdin};

use rustix::process::getpgrp;
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::asked::Asked;
use super::print;

/// Whoever types, or a pipe that stands in for them.
pub(crate) struct Person {
    /// Somebody types and sees what is asked for.
    pub(crate) is_there: bool,
    wants: mpsc::UnboundedSender<()>,
    lines: mpsc::UnboundedReceiver<String>,
    /// A line is being read.
    reads: bool,
    /// What was put to them, answered or not.
    put: HashSet<Uuid>,
}

impl Person {
    /// Reads nothing until a line is wanted: what stands in standard input may be another
    /// program's.
    pub(crate) fn new() -> Person {
        let (wants, mut wanted) = mpsc::unbounded_channel();
        let (said, lines) = mpsc::unbounded_channel();
        // A thread of its own, which ends with the program, so that Ctrl-C is heard while
        // nobody types.
        std::thread::spawn(move || {
            let mut typed = stdin().lock().lines();
            while let Some(()) = wanted.blocking_recv() {
                let Some(Ok(line)) = typed.next() else {
                    return;
                };
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        Person {
            is_there: is_at_the_terminal() && print::notes_are_watched(),
            wants,
            lines,
            reads: false,
            put: HashSet::new(),
        }
    }

    /// The person, if one can be asked.
    pub(crate) fn if_there() -> Option<Person> {
        (is_at_the_terminal() && print::notes_are_watched()).then(Person::new)
    }

    /// The next line; `None` at the end of the input. A line that is not waited for any more is
    /// the next one.
    pub(crate) async fn line(&mut self) -> Option<String> {
        if !self.reads {
            // Where nobody reads any more, the lines have ended.
            let _ = self.wants.send(());
            self.reads = true;
        }
        let line = self.lines.recv().await;
        self.reads = false;
        line
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

/// May standard input be read and set up by this program? A shell's job in the background would
/// be stopped by it.
pub(crate) fn is_at_the_terminal() -> bool {
    // Where the terminal is not this session's, nobody is stopped.
    let in_front = || tcgetpgrp(stdin()).map_or(true, |group| group == getpgrp());
    stdin().is_terminal() && in_front()
}

/// Drops what was typed of a line that is not wanted any more.
pub(crate) fn forget_typed() {
    let _ = tcflush(stdin(), QueueSelector::IFlush);
}
