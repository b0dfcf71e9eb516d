//! SIGTERM and SIGINT: the first begins the drain, a second ends its patience.

use std::future::Future;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;
use super::phase::Process;
use crate::contract::control::Control;

/// Returns when a signal or a door has asked for a stop; the process drains from then on.
pub async fn until_told_to_stop(process: &Process) -> Result<(), Failure> {
    let (mut term, mut int) = both()?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        () = process.stop_asked() => {}
    }
    process.drain();
    Ok(())
}

/// Returns when a further signal arrives.
pub fn impatience() -> impl Future<Output = ()> {
    let signals = both();
    async move {
        match signals {
            Ok((mut term, mut int)) => {
                tokio::select! {
                    _ = term.recv() => {}
                    _ = int.recv() => {}
                }
                tracing::warn!("a second signal: what is in flight goes on at the next start");
            }
            // Without signals nobody can be impatient; the drain has a limit of its own.
            Err(_) => std::future::pending().await,
        }
    }
}

fn both() -> Result<(Signal, Signal), Failure> {
    let watch = |kind| {
        signal(kind)
            .map_err(|fault| Failure::System("signals cannot be received".to_owned(), fault))
    };
    Ok((
        watch(SignalKind::terminate())?,
        watch(SignalKind::interrupt())?,
    ))
}
