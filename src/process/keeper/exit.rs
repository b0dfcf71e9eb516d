//! From the record of a kept program's exit to the result that its step gets.

use std::time::Duration;

use super::folder::{ExitRecord, KeptEnd};
use crate::process::capture::Captured;
use crate::process::program::{ExitReason, Finished};
use crate::process::running::numbers;

/// The result of the program; the error says why it was not started.
pub(super) fn finished(
    record: ExitRecord,
    mut stdout: Captured,
    mut stderr: Captured,
) -> Result<Finished, String> {
    let ending = match record.ending {
        KeptEnd::Exited(status) => ExitReason::Exited(status),
        KeptEnd::Signal(signal) => ExitReason::Signal(signal),
        KeptEnd::TimedOut => ExitReason::TimedOut,
        KeptEnd::OutputLimit(most) => {
            stdout.cut();
            stderr.cut();
            ExitReason::OutputLimit(most)
        }
        KeptEnd::Stopped => ExitReason::Stopped,
        KeptEnd::Orphaned(ms) => ExitReason::Orphaned(Duration::from_millis(ms)),
        KeptEnd::NotStarted(why) => return Err(why),
    };
    Ok(Finished {
        ending,
        stdout,
        stderr,
        remaining: numbers(&record.remaining),
    })
}
