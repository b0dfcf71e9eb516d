//! Turns requests into one store command each: resolves the agent, its pins and the time limit. The
//! command itself checks what depends on rows.

pub(crate) mod folder;

use super::{Principal, Registry};
use crate::command::{
    Accepted, Asks, Begins, Key, NewRun, NewSession, RunTurn, SessionAfter, Spawn, first_answer,
};
use crate::contract::catalog::{Overrides, Resolved};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AgentId, MessageId, RunId, SessionId, SessionKey};
use crate::kernel::run::trace;
use crate::kernel::session::{Cleanup, Owner, SessionMode};
use crate::kernel::text::{preview, storable};
use crate::registry::api::answer::SessionView;
use crate::store::tables::read;
use crate::store::tx::Tx;
use crate::wire::method::Method;
use crate::wire::runs::Turn;
use crate::wire::sessions::{self, Context, Create, IfExists};

/// Maximum number of characters of a run's title.
pub(super) const TITLE: usize = 80;

impl Registry {
    /// Spawns a run in a session of its own. Once this returns, the run is stored and survives any
    /// kill; before, it is absent or complete.
    pub async fn spawn(
        &self,
        who: &Principal,
        mut request: sessions::Spawn,
    ) -> Result<Accepted, Fault> {
        let target = request.parent.as_ref().map_or("", |key| key.as_str());
        let key = self.key(who, target, request.idempotency_key.as_deref(), &request)?;
        if let Some(first) = self.known(key.as_ref())? {
            return Ok(first);
        }
        request.cwd = folder::taken(request.cwd).await?;
        let env = request.env.map(|env| env.0).unwrap_or_default();
        let above = match (&request.cwd, &request.parent) {
            (None, Some(parent)) => self.folder_of(who, parent)?,
            _ => None,
        };
        let given: Vec<String> = env.keys().cloned().collect();
        let overrides = Overrides {
            model: request.model.as_deref(),
            thinking: request.thinking,
            given: &given,
            served: &[],
        };
        let folder = request.cwd.as_deref().or(above.as_deref());
        let named = request.agent.as_deref();
        let agent = self
            .inner
            .resolve(&who.org, folder, named, overrides)
            .await?;
        let agent = self.with_request(who, agent, env).await?;
        let mut run = self.new_run(
            who,
            request.run_id,
            agent,
            request.label,
            &request.task,
            request.run_timeout.map(|limit| limit.0),
            request.meta,
            key,
        )?;
        run.budget = request.budget.map(Into::into);
        let command = Spawn {
            org: who.org.clone(),
            run,
            session: SessionId(self.inner.clock.new_id()),
            message: MessageId(self.inner.clock.new_id()),
            task: request.task,
            parent: request.parent,
            announce: request.announce,
            cwd: request.cwd,
            by: None,
            thinking: request.thinking,
            mode: request.mode.unwrap_or(SessionMode::Run),
            cleanup: request.cleanup.unwrap_or(Cleanup::Keep),
            begins: match request.context {
                None | Some(Context::Isolated) => Begins::Isolated,
                Some(Context::Fork) => Begins::Fork,
            },
            bundle: None,
        };
        self.inner.store.submit(command).await
    }

    /// Queues a turn in a session, which is created if it does not exist. Once this returns, the
    /// turn is stored and survives any kill.
    pub async fn run_turn(&self, who: &Principal, request: Turn) -> Result<Accepted, Fault> {
        let (target, key) = (&request.session_key, request.idempotency_key.as_deref());
        let key = self.key(who, target.as_str(), key, &request)?;
        if let Some(first) = self.known(key.as_ref())? {
            return Ok(first);
        }
        let session = self.inner.store.read_now(|tx| {
            crate::store::tables::sessions::by_key(tx, &who.org, &request.session_key)
        })?;
        let named = match (&request.agent, &session) {
            (Some(agent), _) => Some(agent.as_str()),
            (None, Some(session)) => Some(session.agent.as_str()),
            (None, None) => None,
        };
        let model = request.model.as_deref().or_else(|| {
            session
                .as_ref()
                .and_then(|session| session.model.as_deref())
        });
        let env = request.env.map(|env| env.0).unwrap_or_default();
        let given: Vec<String> = env.keys().cloned().collect();
        let overrides = Overrides {
            model,
            thinking: request
                .thinking
                .or_else(|| session.as_ref().and_then(|session| session.thinking)),
            given: &given,
            served: &[],
        };
        let folder = session.as_ref().and_then(|session| session.cwd.as_deref());
        let (org, inner) = (who.org.as_str(), &self.inner);
        let agent = match &session {
            Some(session) => {
                let resolving = inner.resolve_in(session.id, org, folder, named, overrides);
                resolving.await?
            }
            None => inner.resolve(org, folder, named, overrides).await?,
        };
        if session.is_none() && !agent.mode.is_primary() {
            return Err(Fault::new(
                Kind::Forbidden,
                format!("agent {} is a subagent and cannot own a session", agent.id),
            )
            .hint("spawn it (sessions.spawn), or name a primary agent"));
        }
        let agent = self.with_request(who, agent, env).await?;
        let mut run = self.new_run(
            who,
            request.run_id,
            agent,
            None,
            &request.message,
            request.run_timeout.map(|limit| limit.0),
            request.meta,
            key,
        )?;
        run.budget = request.budget.map(Into::into);
        let command = RunTurn {
            org: who.org.clone(),
            run,
            session: request.session_key,
            new_session: SessionId(self.inner.clock.new_id()),
            asks: Asks::Message(request.message),
            model_named: request.model.is_some(),
            thinking_named: request.thinking.is_some(),
        };
        self.inner.store.submit(command).await
    }

    /// Once this returns, the root session exists; the flag says whether this call created it.
    pub async fn create_session(
        &self,
        who: &Principal,
        mut request: Create,
    ) -> Result<(SessionView, bool), Fault> {
        request.cwd = folder::taken(request.cwd).await?;
        let owner = request.owner.unwrap_or(Owner::Agent);
        let agent = self.session_agent(who, &request, owner).await?;
        let command = NewSession {
            id: SessionId(self.inner.clock.new_id()),
            org: who.org.clone(),
            key: request.key,
            owner,
            agent,
            label: request.label,
            title: request.title,
            thinking: request.thinking,
            cwd: request.cwd,
            get_existing: request.if_exists != Some(IfExists::Conflict),
        };
        let SessionAfter { session, is_new } = self.inner.store.submit(command).await?;
        let shown = self
            .inner
            .store
            .read_now(|tx| read::session_beside(tx, session))?;
        Ok((SessionView::from(shown), is_new))
    }

    async fn session_agent(
        &self,
        who: &Principal,
        request: &Create,
        owner: Owner,
    ) -> Result<AgentId, Fault> {
        let overrides = Overrides {
            model: None,
            thinking: request.thinking,
            given: &[],
            served: &[],
        };
        let folder = request.cwd.as_deref();
        let named = request.agent.as_deref();
        let resolved = self
            .inner
            .resolve(&who.org, folder, named, overrides)
            .await?;
        if owner == Owner::Agent && !resolved.mode.is_primary() {
            return Err(Fault::new(
                Kind::Forbidden,
                format!(
                    "agent {} is a subagent and cannot own a session",
                    resolved.id
                ),
            )
            .hint("spawn it (sessions.spawn), or name a primary agent"));
        }
        Ok(resolved.id)
    }

    /// The folder of the requesting session; a missing session is refused by the command.
    fn folder_of(&self, who: &Principal, key: &SessionKey) -> Result<Option<String>, Fault> {
        let read = |tx: &mut dyn Tx| crate::store::tables::sessions::by_key(tx, &who.org, key);
        let session = self.inner.store.read_now(read)?;
        Ok(session.and_then(|session| session.cwd))
    }

    /// The first answer to this request. A repeat gets it regardless of later changes, even if its
    /// agent or model is gone. The command checks again.
    pub(super) fn known(&self, key: Option<&Key>) -> Result<Option<Accepted>, Fault> {
        match key {
            Some(key) => self.inner.store.read_now(|tx| Ok(first_answer(tx, key)))?,
            None => Ok(None),
        }
    }

    /// The idempotency key of a request, with a digest of its other parameters. `meta` is excluded
    /// because it may differ between repeats.
    pub(super) fn key<M: Method>(
        &self,
        who: &Principal,
        target: &str,
        key: Option<&str>,
        request: &M,
    ) -> Result<Option<Key>, Fault> {
        let Some(key) = key else { return Ok(None) };
        let mut request = serde_json::to_value(request).map_err(Fault::internal)?;
        if let Some(fields) = request.as_object_mut() {
            fields.remove("meta");
            fields.remove("idempotencyKey");
        }
        request.sort_all_objects();
        let method = M::ROW.name;
        Ok(Some(Key {
            scope: match &who.hook {
                // The id of a delivery is one, whichever session its content leads to. Other
                // services choose it, so it must not meet the keys of clients.
                Some(hook) => format!("{}/hook:{hook}", who.org),
                // Without a target, the key is scoped to the user.
                None if target.is_empty() => format!("{}/{method}/user:{}", who.org, who.user),
                None => format!("{}/{method}/{target}", who.org),
            },
            digest: self.inner.store.digest(&request.to_string()),
            key: key.to_owned(),
        }))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of one struct, named at both ends"
    )]
    pub(super) fn new_run(
        &self,
        who: &Principal,
        id: Option<RunId>,
        agent: Resolved,
        label: Option<String>,
        about: &str,
        run_timeout_ms: Option<u64>,
        meta: Option<serde_json::Value>,
        key: Option<Key>,
    ) -> Result<NewRun, Fault> {
        let inner = &self.inner;
        let id = id.unwrap_or_else(|| RunId(inner.clock.new_id()));
        let environment = inner.sealed(id, &agent.overlay)?;
        let title = preview(&storable(about), TITLE);
        Ok(NewRun {
            user: who.user.clone(),
            label,
            limit_ms: run_timeout_ms
                .or(agent.run_timeout_ms)
                .or(inner.options().run_timeout_ms),
            trace_id: match trace::TraceParent::of(meta.as_ref()) {
                Some(caller) => caller.trace,
                None => inner.clock.new_id().simple().to_string(),
            },
            meta,
            key,
            max_open: who.max_open_runs(),
            ..NewRun::of(id, agent, environment, title)
        })
    }
}
