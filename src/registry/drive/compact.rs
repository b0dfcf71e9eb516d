//! Compacts a session's context on request, as a run of its own that is queued behind the session's
//! waiting turns.

use crate::command::{Accepted, Asks, RunTurn};
use crate::contract::catalog::Overrides;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{SessionId, StepId};
use crate::registry::{Principal, Registry};
use crate::store::tables::sessions;
use crate::wire::lifecycle::CompactSession;

/// Title of a compaction run.
const TITLE: &str = "Compact the context of this session";

impl Registry {
    /// Once this returns, the compaction run is queued. It removes nothing: the transcript stays
    /// complete, and the model sees a summary of the older part.
    pub async fn compact_session(
        &self,
        who: &Principal,
        request: CompactSession,
    ) -> Result<Accepted, Fault> {
        let key = &request.session_key;
        let known = request.idempotency_key.as_deref();
        let known = self.key(who, key.as_str(), known, &request)?;
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
            served: &[],
        };
        let (folder, named) = (session.cwd.as_deref(), session.agent.as_str());
        let agent = self
            .inner
            .resolve_in(session.id, &who.org, folder, Some(named), overrides)
            .await?;
        let run = self.new_run(who, None, agent, None, TITLE, None, None, known)?;
        let command = RunTurn {
            org: who.org.clone(),
            run,
            session: session.key,
            new_session: SessionId(self.inner.clock.new_id()),
            asks: Asks::Compaction(StepId(self.inner.clock.new_id())),
            model_named: false,
            thinking_named: false,
        };
        self.inner.store.submit(command).await
    }
}
