//! Updates, retries and deletes existing sessions, runs and announces. Called by the RPC layer.

use super::answer::SessionView;
use super::cancel::CANCEL_WAIT;
use crate::command::{
    Accepted, Asks, Begins, Clearance, DeleteSession, DismissAnnounce, PatchSession, ResetSession,
    RetryAnnounce, RunTurn, Spawn,
};
use crate::contract::catalog::Overrides;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AgentId, MessageId, RunId, SessionId, SessionKey};
use crate::kernel::run::step::StepKind;
use crate::kernel::run::{Run, RunOrigin};
use crate::kernel::session::{Cleanup, Owner, Session, SessionMode};
use crate::registry::announce::wake_run;
use crate::registry::spawn::folder;
use crate::registry::{Principal, Registry};
use crate::store::tables::{bundles, clearings, messages, outbox, read, runs, sessions, steps};
use crate::wire::lifecycle as wire;

impl Registry {
    /// Once this returns, the session has the patched label, title, agent, model, thinking level or
    /// folder.
    pub async fn patch_session(
        &self,
        who: &Principal,
        mut patch: wire::PatchSession,
    ) -> Result<SessionView, Fault> {
        if let Some(cwd) = patch.cwd.take() {
            patch.cwd = Some(folder::taken(cwd).await?);
        }
        let agent = self.patched_agent(who, &patch).await?;
        let command = PatchSession {
            org: who.org.clone(),
            key: patch.session_key,
            label: patch.label,
            title: patch.title,
            agent,
            model: patch.model,
            thinking: patch.thinking,
            cwd: patch.cwd,
            if_revision: patch.if_revision,
        };
        let session = self.inner.store.submit(command).await?;
        self.shown(session)
    }

    /// The agent that a patch names. An agent or model that cannot be used is refused now instead
    /// of at the next turn.
    async fn patched_agent(
        &self,
        who: &Principal,
        patch: &wire::PatchSession,
    ) -> Result<Option<AgentId>, Fault> {
        let has_model = matches!(patch.model, Some(Some(_)));
        if patch.agent.is_none() && !has_model {
            return Ok(None);
        }
        let session = self.session(who, &patch.session_key).await?.session;
        let overrides = Overrides {
            model: patch.model.as_ref().unwrap_or(&session.model).as_deref(),
            thinking: None,
            given: &[],
            served: &[],
        };
        let folder = patch.cwd.as_ref().unwrap_or(&session.cwd).as_deref();
        let named = patch.agent.as_deref().unwrap_or(session.agent.as_str());
        let agent = self
            .inner
            .resolve(&who.org, folder, Some(named), overrides)
            .await?;
        if patch.agent.is_none() {
            return Ok(None);
        }
        if !agent.mode.is_primary() {
            return Err(Fault::new(
                Kind::Forbidden,
                format!("agent {} is a subagent and cannot own a session", agent.id),
            )
            .hint("name a primary agent"));
        }
        Ok(Some(agent.id))
    }

    /// Starts a new generation of a session; older messages are kept but no model sees them. If
    /// runs must be stopped first, the reset is stored before that, so a restart does not lose it.
    pub async fn reset_session(
        &self,
        who: &Principal,
        key: &SessionKey,
        force: bool,
        if_generation: Option<i64>,
    ) -> Result<SessionView, Fault> {
        let command = ResetSession {
            org: who.org.clone(),
            key: key.clone(),
            force,
            if_generation,
            by: who.by(),
            by_person: who.run.is_none(),
        };
        match self.inner.store.submit(command).await? {
            Clearance::Done(session) => self.shown(session),
            Clearance::Stopping(runs) => {
                self.until_cleared(who, key, runs, "reset").await?;
                self.session(who, key).await
            }
        }
    }

    /// Deletes a session and its descendants. Once this returns its key is free; transcripts and
    /// journals are purged in the background.
    pub async fn delete_session(
        &self,
        who: &Principal,
        key: &SessionKey,
        force: bool,
    ) -> Result<(), Fault> {
        let command = DeleteSession {
            org: who.org.clone(),
            key: key.clone(),
            force,
            by: who.by(),
            by_person: who.run.is_none(),
        };
        match self.inner.store.submit(command).await? {
            Clearance::Done(()) => Ok(()),
            Clearance::Stopping(runs) => self.until_cleared(who, key, runs, "deleted").await,
        }
    }

    /// Waits up to [`PATIENCE`] for the marked runs to end; the end of the last one carries out the
    /// reset or deletion.
    async fn until_cleared(
        &self,
        who: &Principal,
        key: &SessionKey,
        runs: Vec<RunId>,
        what: &str,
    ) -> Result<(), Fault> {
        let stopping = runs.len();
        self.wait(who, runs, true, CANCEL_WAIT).await?;
        let is_left =
            self.inner
                .store
                .read_now(|tx| match sessions::by_key(tx, &who.org, key)? {
                    Some(session) => clearings::of(tx, session.id),
                    None => Ok(None),
                })?;
        if is_left.is_none() {
            return Ok(());
        }
        Err(Fault::new(
            Kind::Busy,
            format!(
                "runs cancelled: {stopping}, and not all have ended yet; session {key} will be \
                 {what} when the last of them ends"
            ),
        )
        .hint("do not repeat the request; new runs in the session are refused until then")
        .with("retryAfterMs", 1000))
    }

    fn shown(&self, session: Session) -> Result<SessionView, Fault> {
        let shown = self
            .inner
            .store
            .read_now(|tx| read::session_beside(tx, session))?;
        Ok(shown.into())
    }

    /// Runs an ended run's task again: a spawned run in a new session, a turn in the same session.
    pub async fn retry(&self, who: &Principal, request: wire::RetryRun) -> Result<Accepted, Fault> {
        let id = request.run_id;
        let key = request.idempotency_key.as_deref();
        let key = self.key(who, &id.to_string(), key, &request)?;
        if let Some(first) = self.known(key.as_ref())? {
            return Ok(first);
        }
        let old = self.run(who, id).await?.run;
        if !old.state.is_terminal() {
            return Err(Fault::new(
                Kind::Conflict,
                format!("run {id} is {}: it has not ended", old.state.as_str()),
            )
            .hint("wait for it (agent.wait), or cancel it first (runs.cancel)"));
        }
        let Repeated {
            task,
            session,
            bundle,
        } = self.repeated(&old)?;
        let overrides = Overrides {
            model: Some(&old.model),
            thinking: old.thinking,
            given: &[],
            served: &[],
        };
        let (folder, named) = (old.cwd.as_deref(), old.agent.as_str());
        let (org, inner) = (who.org.as_str(), &self.inner);
        // A spawned run is repeated in a session of its own.
        let agent = match old.origin {
            RunOrigin::Spawn => inner.resolve(org, folder, Some(named), overrides).await?,
            _ => {
                let resolving = inner.resolve_in(old.session, org, folder, Some(named), overrides);
                resolving.await?
            }
        };
        let mut run = self.new_run(
            who,
            None,
            agent,
            old.label.clone(),
            &task,
            old.limit_ms,
            old.meta.clone(),
            key,
        )?;
        self.inner.given_before(&old, &mut run.environment)?;
        run.retry_of = Some(id);
        run.budget = old.budget;
        if old.origin == RunOrigin::Spawn {
            let spawn = self.spawn_again(old, task, run, session, bundle);
            return self.inner.store.submit(spawn).await;
        }
        let turn = RunTurn {
            org: who.org.clone(),
            run,
            session: old.session_key,
            new_session: SessionId(self.inner.clock.new_id()),
            asks: Asks::Message(task),
            model_named: true,
            thinking_named: old.thinking.is_some(),
        };
        self.inner.store.submit(turn).await
    }

    /// What a new run repeats of `old`; refused if there is nothing to repeat.
    fn repeated(&self, old: &Run) -> Result<Repeated, Fault> {
        let id = old.id;
        let refused = |why: String, hint: &str| Fault::new(Kind::Conflict, why).hint(hint);
        if old.origin != RunOrigin::Spawn && old.origin != RunOrigin::Turn {
            return Err(refused(
                format!(
                    "run {id} was not started by sessions.spawn or agent.run and cannot be retried"
                ),
                "to repeat an announce, use runs.retry_announce; to repeat a message, sessions.send",
            ));
        }
        self.inner.store.read_now(|tx| {
            let task = match runs::input(tx, id)? {
                Some(text) => Some(text),
                None => messages::input_message(tx, old.session, id)?.map(|message| message.text()),
            };
            let Some(task) = task else {
                let first = steps::get(tx, id, 1)?;
                return Ok(Err(
                    match first.is_some_and(|step| step.kind == StepKind::Compaction) {
                        true => refused(
                            format!("run {id} compacted its session and has no task to retry"),
                            "compact again with sessions.compact",
                        ),
                        false => refused(
                            format!("the task of run {id} was deleted with its session"),
                            "send the task again: sessions.spawn, agent.run",
                        ),
                    },
                ));
            };
            // A run that worked in its caller's session has its own permission bundle; the
            // session's bundle does not apply to it.
            let bundle = match old.is_called() {
                true => runs::bundle(tx, id)?,
                false => bundles::get(tx, old.session)?,
            };
            Ok(Ok(Repeated {
                task,
                session: sessions::by_id(tx, old.session)?,
                bundle,
            }))
        })?
    }

    fn spawn_again(
        &self,
        old: Run,
        task: String,
        run: crate::command::NewRun,
        session: Option<Session>,
        bundle: Option<String>,
    ) -> Spawn {
        let session = session.filter(|_| !old.is_called());
        let fork = session.as_ref().and_then(|session| session.fork);
        Spawn {
            org: old.org,
            run,
            session: SessionId(self.inner.clock.new_id()),
            message: MessageId(self.inner.clock.new_id()),
            task,
            announce: old.requester.is_some().then_some(old.announce),
            parent: old.requester.map(|requester| requester.key),
            cwd: old.cwd,
            by: None,
            thinking: session.as_ref().and_then(|session| session.thinking),
            mode: session
                .as_ref()
                .map_or(SessionMode::Run, |session| session.mode),
            cleanup: session
                .as_ref()
                .map_or(Cleanup::Keep, |session| session.cleanup),
            begins: fork.map_or(Begins::Isolated, Begins::At),
            bundle,
        }
    }

    /// Delivers an announce again to its agent, or retries a held one. Returns the wake run if one
    /// was needed.
    pub async fn retry_announce(&self, who: &Principal, id: RunId) -> Result<Option<RunId>, Fault> {
        let target = self.inner.store.read_now(|tx| {
            let Some(entry) = outbox::of_run(tx, id)? else {
                return Ok(None);
            };
            sessions::by_id(tx, entry.target)
        })?;
        // The command refuses a run of another org, so nothing is prepared for it.
        let target = target.filter(|target| target.org == who.org);
        let wake = match target {
            Some(target) if target.owner == Owner::Agent => {
                Some(Box::new(wake_run(&self.inner, &target).await?))
            }
            _ => None,
        };
        let command = RetryAnnounce {
            org: who.org.clone(),
            run: id,
            wake,
        };
        self.inner.store.submit(command).await
    }

    /// Once this returns, the announce will not be delivered; its result stays on the run.
    pub async fn dismiss_announce(&self, who: &Principal, id: RunId) -> Result<(), Fault> {
        let command = DismissAnnounce {
            org: who.org.clone(),
            run: id,
        };
        self.inner.store.submit(command).await
    }
}

/// What a retried run takes from the old one beside its row.
struct Repeated {
    task: String,
    session: Option<Session>,
    bundle: Option<String>,
}
