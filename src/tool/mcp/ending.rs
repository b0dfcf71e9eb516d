//! How the program of a server has ended, in words. Called by `server`.

use std::time::Duration;

use crate::process::{Captured, Ending, Service, ServiceEnd, signal_name};

/// So much of what it wrote last is part of an error, bytes.
const SAID_LAST: usize = 500;
/// A program whose output has ended ends soon, or it lives on without one.
const SOON: Duration = Duration::from_millis(500);

/// Why a connection failed: that its program has ended, where that is so, says more.
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

/// The end of its program; a server without one has no such end.
pub(super) async fn ended(program: &mut Option<Service>) -> Ending {
    match program {
        Some(program) => program.ended().await,
        None => std::future::pending().await,
    }
}

/// How it ended.
pub(super) fn words(ending: Ending) -> String {
    match ending {
        Ending::Exited(status) => format!("exit status {status}"),
        Ending::Signal(signal) => format!("by signal {}", signal_name(signal)),
        // Nobody sets such a limit for a service.
        Ending::TimeOver | Ending::TooMuch(_) => "at a limit".to_owned(),
    }
}

/// What went wrong when a server was told to end, if anything did: something is left of it, or it
/// had to be killed.
pub(super) fn badly_closed(ended: &ServiceEnd, was_asked: bool) -> Option<String> {
    if !ended.left.is_empty() {
        let pids: Vec<String> = ended.left.iter().map(u32::to_string).collect();
        return Some(format!(
            "it could not be ended: of its processes {} are left",
            pids.join(", ")
        ));
    }
    ended
        .ending
        .is_some_and(|ending| was_asked && ending.is_killed())
        .then(|| "it did not end when it was asked to (process.grace), and was killed".to_owned())
}

/// Why it ended, with what it wrote last beside its messages.
pub(super) fn with_said(why: String, said: Option<&Captured>) -> String {
    let said = said.map(|said| crate::kernel::text::storable(said.last(SAID_LAST).trim()));
    match said.filter(|said| !said.is_empty()) {
        Some(said) => format!("{why}; it wrote: {said}"),
        None => why,
    }
}
