//! Shortens what the model sees of a session, because somebody asks for it: a run of its own,
//! queued behind the turns that wait there.

use super::{Idempotency, Principal, Registry};
use crate::contract::catalog::Overrides;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{SessionId, SessionKey, StepId};
use crate::store::command::{Accepted, Asks, RunTurn};
use crate::store::{Command, sessions};

/// What such a run is about.
const TITLE: &str = "Shorten what the model sees of this session";

impl Registry {
    /// The run is queued that shortens the session. Nothing is removed: the transcript stays
    /// as it is, and its model is shown a summary of the older part.
    pub async fn compact_session(
        &self,
        who: &Principal,
        key: &SessionKey,
        idempotency: Option<Idempotency>,
    ) -> Result<Accepted, Fault> {
        let known = self.key(who, "sessions.compact", key.as_str(), idempotency);
        if let Some(first) = self.known(known.as_ref())? {
            return Ok(first);
        }
        let session = self
            .inner
            .store
            .read_now(|tx| sessions::by_key(tx, &who.org, key))?
            .ok_or_else(|| Fault::not_found("session", key))?;
        let overrides = Overrides {
            model: session.model.as_deref(),
            thinking: session.thinking,
            given: &[],
        };
        let (folder, named) = (session.cwd.as_deref(), session.agent.as_str());
        let agent = self
            .inner
            .resolve(&who.org, folder, Some(named), overrides)
            .await?;
        let run = self.new_run(who, None, agent, None, TITLE, None, None, known)?;
        let command = Command::RunTurn(Box::new(RunTurn {
            org: who.org.clone(),
            run,
            session: session.key,
            new_session: SessionId(self.inner.clock.new_id()),
            asks: Asks::Compaction(StepId(self.inner.clock.new_id())),
            model_named: false,
            thinking_named: false,
        }));
        self.accepted(command).await
    }
}
