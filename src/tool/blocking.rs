//! Runs the file work of tools off the async threads, and stops it when nobody waits for it.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ToolOutput;
use crate::contract::BoxFuture;

/// Says whether the work is still wanted. A blocking thread cannot be stopped from outside,
/// so long work asks this once for each file.
#[derive(Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Fails once nobody waits any more.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.0.load(Ordering::Relaxed) {
            return Err("stopped".to_owned());
        }
        Ok(())
    }
}

struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work`, which is short, on a blocking thread; its panic goes on in whoever waits.
pub(super) fn off_thread<T, F>(work: F) -> BoxFuture<'static, T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    Box::pin(async move {
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => done,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // The runtime is shutting down: nobody waits for an answer any more.
            Err(_) => std::future::pending().await,
        }
    })
}

/// Runs `work` on a blocking thread; its error becomes a failed result, its panic goes on in
/// whoever waits.
pub(super) fn blocking<F>(work: F) -> BoxFuture<'static, ToolOutput>
where
    F: FnOnce(&Stop) -> Result<String, String> + Send + 'static,
{
    Box::pin(async move {
        let stop = Stop::default();
        let _stop_when_dropped = StopOnDrop(stop.clone());
        match tokio::task::spawn_blocking(move || work(&stop)).await {
            Ok(Ok(text)) => ToolOutput::text(text),
            Ok(Err(text)) => ToolOutput::error(text),
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(_) => ToolOutput::error("the daemon stops; the call was not carried out"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn dropping_the_call_stops_the_work() {
        let (started, wait_started) = tokio::sync::oneshot::channel();
        let (ended, wait_ended) = mpsc::channel();
        let call = tokio::spawn(blocking(move |stop| {
            let _ = started.send(());
            while stop.check().is_ok() {
                std::thread::yield_now();
            }
            let _ = ended.send(());
            Ok(String::new())
        }));
        wait_started.await.unwrap();
        call.abort();
        let ended = tokio::task::spawn_blocking(move || wait_ended.recv())
            .await
            .unwrap();
        assert!(ended.is_ok());
    }

    #[tokio::test]
    async fn a_panic_is_not_swallowed() {
        let call = tokio::spawn(blocking(|_| panic!("deliberate")));
        assert!(call.await.unwrap_err().is_panic());
    }
}
