//! Ends runs before their time, and speaks to runs in the middle of their turn.

use std::time::Duration;

use super::answer::CancelAnswer;
use super::request::CancelTarget;
use super::spawn::unexpected;
use super::{Principal, Registry};
use crate::kernel::fault::Fault;
use crate::kernel::ids::{MessageId, RunId};
use crate::kernel::run::{Outcome, RunState};
use crate::store::command::{Cancel, Cancelled};
use crate::store::{Command, Reply, runs};

/// How long the answer of a cancel waits until the executors are gone.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

impl Registry {
    /// Ends a run or what goes on in a session, with everything open below. Once this returns
    /// the mark is in the store and no restart carries the runs on; the answer says which have
    /// ended and which still have an executor.
    pub async fn cancel(
        &self,
        who: &Principal,
        target: CancelTarget,
        reason: Option<String>,
    ) -> Result<CancelAnswer, Fault> {
        let command = Command::Cancel(Box::new(Cancel {
            org: who.org.clone(),
            target,
            by: who.by(),
            by_person: who.run.is_none(),
            reason,
        }));
        match self.inner.store.submit(command).await? {
            Reply::Cancelled(done) => self.until_stopped(who, done).await,
            other => Err(unexpected(&other)),
        }
    }

    /// Waits, within bounds, until the executors of what was cancelled are gone.
    async fn until_stopped(&self, who: &Principal, done: Cancelled) -> Result<CancelAnswer, Fault> {
        let Cancelled {
            mut cancelled,
            mut already_ended,
            stopping,
        } = done;
        let mut not_ended = Vec::new();
        if !stopping.is_empty() {
            self.wait(who, stopping.clone(), true, PATIENCE).await?;
        }
        for id in stopping {
            let row = self.inner.store.read_now(|tx| runs::get(tx, id))?;
            match row.map(|run| run.state) {
                Some(RunState::Ended(Outcome::Cancelled)) => cancelled.push(id),
                // Something else ended it first.
                Some(RunState::Ended(_)) | None => already_ended.push(id),
                Some(_) => not_ended.push(id),
            }
        }
        Ok(CancelAnswer {
            cancelled,
            already_ended,
            not_ended,
        })
    }

    /// Says something to a run in the middle of its turn: its next model call sees it. Once
    /// this returns the text is in the store. The same `message` id again says nothing twice;
    /// without one there is a fresh id, which is the answer.
    pub async fn steer(
        &self,
        who: &Principal,
        run: RunId,
        message: Option<MessageId>,
        text: String,
    ) -> Result<MessageId, Fault> {
        let message = message.unwrap_or_else(|| MessageId(self.inner.clock.new_id()));
        let command = Command::Steer {
            org: who.org.clone(),
            run,
            message,
            text,
        };
        match self.inner.store.submit(command).await? {
            Reply::Done => Ok(message),
            other => Err(unexpected(&other)),
        }
    }
}
