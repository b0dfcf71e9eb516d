//! Signals that end an interactive command: `abide top`, and those that follow runs. The terminal's
//! mode is restored, and the exit code is the one that shells give for the signal.

use std::io::{IsTerminal, Write, stdin, stdout};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::failure::Failure;
use crate::cli::asking::person::is_at_the_terminal;

/// Ends bracketed paste mode and shows the cursor.
const AS_USUAL: &str = "\u{1b}[?2004l\u{1b}[?25h";

/// Signals that ask the program to end, and changes of the window's size.
pub(crate) struct ExitSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
    window: Signal,
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::local("cannot handle signals", error))
}

/// Exit code of shells for a program that was ended by this signal: 128 + its number.
fn code(kind: SignalKind) -> u8 {
    u8::try_from(kind.as_raw_value()).map_or(u8::MAX, |number| 128 + number)
}

impl ExitSignals {
    /// Installs the handlers; from here on these signals do not end the process by themselves.
    pub(crate) fn new() -> Result<ExitSignals, Failure> {
        Ok(ExitSignals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            quit: listen(SignalKind::quit())?,
            window: listen(SignalKind::window_change())?,
        })
    }

    /// Waits for a signal: its exit code, or `None` if only the window's size has changed.
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

    /// Waits for the signals that a view of one run does not handle itself; returns the exit code.
    pub(crate) async fn terminated(&mut self) -> u8 {
        tokio::select! {
            _ = self.terminate.recv() => code(SignalKind::terminate()),
            _ = self.hang_up.recv() => code(SignalKind::hangup()),
        }
    }

    /// Drops a pending Ctrl-C that was meant for another view.
    pub(crate) fn forget_interrupt(&mut self) -> Result<(), Failure> {
        self.interrupt = listen(SignalKind::interrupt())?;
        self.quit = listen(SignalKind::quit())?;
        Ok(())
    }
}

/// Runs a command that may change the terminal's mode. If a signal ends the command, the mode is
/// restored first.
pub(crate) async fn in_order(
    work: impl Future<Output = Result<u8, Failure>>,
) -> Result<u8, Failure> {
    let before = match is_at_the_terminal() {
        true => tcgetattr(stdin()).ok(),
        false => None,
    };
    // Without a terminal there is nothing to restore, and the signal ends the process by itself.
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

/// Restores the terminal, even if a reader thread that still runs has changed its mode.
fn put_back(before: &Termios) {
    let mut out = stdout().lock();
    // A terminal that is gone cannot be restored, and need not be.
    if out.is_terminal() {
        let _ = out
            .write_all(AS_USUAL.as_bytes())
            .and_then(|()| out.flush());
    }
    if is_at_the_terminal() {
        let _ = tcsetattr(stdin(), OptionalActions::Now, before);
    }
}
