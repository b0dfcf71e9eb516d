//! The signals that end a command at a terminal in order: `abide top`, and those that follow runs. What
//! the terminal was set to is put back, and the exit code is the one that shells give for the signal.

use std::io::{IsTerminal, Write, stdin, stdout};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::failure::Failure;
use super::person::is_at_the_terminal;

/// Text that is pasted is marked no more, and the cursor is seen.
const AS_USUAL: &str = "\u{1b}[?2004l\u{1b}[?25h";

/// Signals that ask the program to end.
pub(crate) struct Ends {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
    window: Signal,
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::local("signals cannot be watched for", error))
}

/// The exit code of shells for a program that a signal has ended.
fn code(kind: SignalKind) -> u8 {
    u8::try_from(kind.as_raw_value()).map_or(u8::MAX, |number| 128 + number)
}

impl Ends {
    /// From here on these signals do not end the process by themselves.
    pub(crate) fn new() -> Result<Ends, Failure> {
        Ok(Ends {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            quit: listen(SignalKind::quit())?,
            window: listen(SignalKind::window_change())?,
        })
    }

    /// Returns at any of them: the exit code, or `None` where only the window has another size.
    pub(crate) async fn next(&mut self) -> Option<u8> {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hang_up.recv() => SignalKind::hangup(),
            _ = self.quit.recv() => SignalKind::quit(),
            _ = self.window.recv() => return None,
        };
        Some(code(kind))
    }

    /// Returns at those that a view of one run leaves to others: the exit code.
    pub(crate) async fn terminated(&mut self) -> u8 {
        tokio::select! {
            _ = self.terminate.recv() => code(SignalKind::terminate()),
            _ = self.hang_up.recv() => code(SignalKind::hangup()),
        }
    }

    /// A Ctrl-C that was meant for another view does not count.
    pub(crate) fn forget_interrupt(&mut self) -> Result<(), Failure> {
        self.interrupt = listen(SignalKind::interrupt())?;
        self.quit = listen(SignalKind::quit())?;
        Ok(())
    }
}

/// Carries out a command that may set the terminal up for itself. Where a signal ends it, the terminal
/// is put back before.
pub(crate) async fn in_order(
    work: impl Future<Output = Result<u8, Failure>>,
) -> Result<u8, Failure> {
    let before = match is_at_the_terminal() {
        true => tcgetattr(stdin()).ok(),
        false => None,
    };
    // Elsewhere there is nothing to put back, and the signal ends the process by itself.
    let Some(before) = before else {
        return work.await;
    };
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    let mut quit = listen(SignalKind::quit())?;
    let mut work = Box::pin(work);
    let kind = tokio::select! {
        done = &mut work => return done,
        _ = terminate.recv() => SignalKind::terminate(),
        _ = hang_up.recv() => SignalKind::hangup(),
        _ = quit.recv() => SignalKind::quit(),
    };
    drop(work);
    put_back(&before);
    Ok(code(kind))
}

/// Also where a thread that goes on reading has set it up.
fn put_back(before: &Termios) {
    let mut out = stdout().lock();
    // A terminal that is gone cannot be put back, and needs not be.
    if out.is_terminal() {
        let _ = out
            .write_all(AS_USUAL.as_bytes())
            .and_then(|()| out.flush());
    }
    if is_at_the_terminal() {
        let _ = tcsetattr(stdin(), OptionalActions::Now, before);
    }
}
