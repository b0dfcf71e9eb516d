//! The signals that end `abide top` in order, and the one that says that the window has changed.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::failure::Failure;

/// Signals that ask the program to end.
pub(super) struct Ends {
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
    pub(super) fn new() -> Result<Ends, Failure> {
        Ok(Ends {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            quit: listen(SignalKind::quit())?,
            window: listen(SignalKind::window_change())?,
        })
    }

    /// Returns at any of them: the exit code, or `None` where only the window has another size.
    pub(super) async fn next(&mut self) -> Option<u8> {
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
    pub(super) async fn terminated(&mut self) -> u8 {
        tokio::select! {
            _ = self.terminate.recv() => code(SignalKind::terminate()),
            _ = self.hang_up.recv() => code(SignalKind::hangup()),
        }
    }

    /// A Ctrl-C that was meant for another view does not count.
    pub(super) fn forget_interrupt(&mut self) -> Result<(), Failure> {
        self.interrupt = listen(SignalKind::interrupt())?;
        self.quit = listen(SignalKind::quit())?;
        Ok(())
    }
}
