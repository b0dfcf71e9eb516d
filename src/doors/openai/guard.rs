//! Cancels the run of a client that has disconnected, if a setting asks for it.

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{OpenAi, OpenAiRun};
use crate::config::OnDisconnect;
use crate::doors::api::Api;
use crate::kernel::ids::RunId;

/// Cancels a run when it is dropped before the answer is complete.
pub(super) struct DisconnectGuard<A: Api> {
    api: A,
    /// The run; `None` if nothing is to be cancelled.
    run: Option<RunId>,
    stopping: CancellationToken,
}

impl<A: Api> OpenAi<A> {
    /// Guards the run of an answer that its client waits for.
    pub(super) fn guard(&self, run: &OpenAiRun) -> DisconnectGuard<A> {
        let cancels = self.options.on_disconnect == OnDisconnect::Cancel;
        DisconnectGuard {
            api: self.api.clone(),
            run: cancels.then_some(run.run_id),
            stopping: self.stopping.clone(),
        }
    }
}

impl<A: Api> DisconnectGuard<A> {
    /// The answer is complete.
    pub(super) fn disarm(&mut self) {
        self.run = None;
    }
}

impl<A: Api> Drop for DisconnectGuard<A> {
    fn drop(&mut self) {
        let Some(run) = self.run.take() else {
            return;
        };
        // A daemon that stops closes connections, too.
        if self.stopping.is_cancelled() {
            return;
        }
        let params = json!({ "runId": run, "reason": "the client has disconnected" });
        let cancel = self.api.call("runs.cancel", params);
        tokio::spawn(async move {
            if let Err(error) = cancel.await {
                tracing::warn!(%run, %error, "the run of a client that is gone is not cancelled");
            }
        });
    }
}
