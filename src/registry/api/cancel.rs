//! Cancels runs, and steers runs in the middle of their turn. Called by the RPC layer.

use std::time::Duration;

use super::request::CancelTarget;
use crate::command::{self, Cancel, Steer};
use crate::kernel::fault::Fault;
use crate::kernel::ids::{MessageId, RunId};
use crate::kernel::run::{Outcome, RunState};
use crate::registry::{Principal, Registry};
use crate::store::tables::runs;
use crate::wire::lifecycle::Cancelled;

/// Maximum time that a cancel's answer waits for executors to stop.
pub(crate) const CANCEL_WAIT: Duration = Duration::from_secs(5);

impl Registry {
    /// Ends a run, or all work in a session, with every open descendant. Once this returns the mark
    /// is stored and no restart continues these runs; the answer lists those that ended and those
    /// that still have an executor.
    pub async fn cancel(
        &self,
        who: &Principal,
        target: CancelTarget,
        reason: Option<String>,
    ) -> Result<Cancelled, Fault> {
        let command = Cancel {
            org: who.org.clone(),
            target,
            by: who.by(),
            by_person: who.run.is_none(),
            reason,
        };
        let done = self.inner.store.submit(command).await?;
        self.until_stopped(who, done).await
    }

    /// Waits up to [`PATIENCE`] for the executors of cancelled runs to stop.
    async fn until_stopped(
        &self,
        who: &Principal,
        done: command::Cancelled,
    ) -> Result<Cancelled, Fault> {
        let command::Cancelled {
            mut cancelled,
            mut already_ended,
            stopping,
        } = done;
        let mut not_ended = Vec::new();
        if !stopping.is_empty() {
            self.wait(who, stopping.clone(), true, CANCEL_WAIT).await?;
        }
        for id in stopping {
            let row = self.inner.store.read_now(|tx| runs::get(tx, id))?;
            match row.map(|run| run.state) {
                Some(RunState::Ended(Outcome::Cancelled)) => cancelled.push(id),
                // It ended for another reason first.
                Some(RunState::Ended(_)) | None => already_ended.push(id),
                Some(_) => not_ended.push(id),
            }
        }
        Ok(Cancelled {
            cancelled,
            already_ended,
            not_ended,
        })
    }

    /// Once this returns, the text is stored and the run's next model call sees it. Repeating a
    /// `message` id adds nothing; without one, a new id is generated and returned.
    pub async fn steer(
        &self,
        who: &Principal,
        run: RunId,
        message: Option<MessageId>,
        text: String,
    ) -> Result<MessageId, Fault> {
        let message = message.unwrap_or_else(|| MessageId(self.inner.clock.new_id()));
        let command = Steer {
            org: who.org.clone(),
            run,
            message,
            text,
        };
        self.inner.store.submit(command).await?;
        Ok(message)
    }
}
