//! Describes how a server's program ended. Called by `life`.

use std::time::Duration;

use crate::process::{Captured, ExitReason, Service, ServiceEnd, signal_name};

/// The maximum number of bytes of its last stderr output in an error.
const STDERR_SHOWN: usize = 500;
/// How long to wait for the end of a program whose output has ended; it may also live on without
/// output.
const SOON: Duration = Duration::from_millis(500);

/// The reason of a failed connection, or the end of its program if that has ended, which is more
/// informative.
pub(super) async fn or_ended(
    program: &mut Option<Service>,
    ended_how: &str,
    why: String,
) -> String {
    match tokio::time::timeout(SOON, ended(program)).await {
        Ok(ending) => format!("{ended_how}, {}", words(ending)),
        Err(_) => why,
    }
}

/// Waits for the end of the program; pending forever for a server without one.
pub(super) async fn ended(program: &mut Option<Service>) -> ExitReason {
    match program {
        Some(program) => program.ended().await,
        None => std::future::pending().await,
    }
}

/// Describes how it ended.
pub(super) fn words(ending: ExitReason) -> String {
    match ending {
        ExitReason::Exited(status) => format!("exit status {status}"),
        ExitReason::Signal(signal) => format!("by signal {}", signal_name(signal)),
        // Services have neither limits nor a keeper.
        ExitReason::TimedOut
        | ExitReason::OutputLimit(_)
        | ExitReason::Stopped
        | ExitReason::Orphaned(_) => "at a limit".to_owned(),
    }
}

/// The problem after ending a server, if any: processes are left, or it had to be killed.
pub(super) fn badly_closed(ended: &ServiceEnd, was_asked: bool) -> Option<String> {
    if !ended.remaining.is_empty() {
        let pids: Vec<String> = ended.remaining.iter().map(u32::to_string).collect();
        return Some(format!(
            "it could not be ended: its processes {} are still running",
            pids.join(", ")
        ));
    }
    ended
        .ending
        .is_some_and(|ending| was_asked && ending.is_killed())
        .then(|| {
            "it did not end within process.grace after it was asked to, and was killed".to_owned()
        })
}

/// Adds the last stderr output to the reason of an end.
pub(super) fn with_stderr(why: String, said: Option<&Captured>) -> String {
    let said = said.map(|said| crate::kernel::text::storable(said.last(STDERR_SHOWN).trim()));
    match said.filter(|said| !said.is_empty()) {
        Some(said) => format!("{why}; it wrote: {said}"),
        None => why,
    }
}
