//! Child runs that a run starts: a spawn whose end is announced, or a tool call that another agent
//! carries out while the run waits. Each is one store command, idempotent by the step's id.

use serde_json::Value;

use crate::command::{AGENT_NAME, Accepted, Awaits, BREAKER, Begins, Spawn, SpawnedBy};
use crate::contract::catalog::Overrides;
use crate::contract::delegate::{DelegateArgs, Site, SpawnArgs, ToolReply};
use crate::contract::reach::Reach;
use crate::kernel::delegation::pack::Pack;
use crate::kernel::delegation::{self, DelegationMode, named};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AgentId, MessageId, SessionId, SessionKey};
use crate::kernel::policy::gate::Bundle;
use crate::kernel::run::stop::{CANCELLED_BY_PERSON, REASON};
use crate::kernel::session::{Cleanup, SessionMode};
use crate::kernel::text::preview;
use crate::registry::Registry;
use crate::registry::delegate::{Caller, step_ref};
use crate::registry::send::{accepted_json, step_key};
use crate::registry::spawn::TITLE;
use crate::store::tables::{messages, runs, steps};

impl Registry {
    pub(crate) async fn spawn_by(&self, site: Site, ask: SpawnArgs) -> Result<ToolReply, Fault> {
        let accepted = self.spawn_child(site, ask, None, None).await?;
        let mut told = accepted_json(&accepted);
        told["agent"] = accepted.agent.as_str().into();
        told["note"] = "You will get a message in this session when it finishes. Do not poll. \
                        Call sessions_wait to wait for it."
            .into();
        if !accepted.warnings.is_empty() {
            told["warnings"] = accepted.warnings.into();
        }
        Ok(ToolReply::Now(told))
    }

    pub(crate) async fn delegate_by(
        &self,
        site: Site,
        ask: DelegateArgs,
    ) -> Result<ToolReply, Fault> {
        let goes_on = ask
            .resume_session
            .as_deref()
            .map(SessionKey::parse)
            .transpose();
        let awaits = Awaits {
            mode: ask.mode,
            stream: ask.stream,
            goes_on: goes_on.map_err(|why| Fault::params("session_id", why.to_string()))?,
        };
        // The title comes from the request, without the context that is added to it.
        let title = Some(ask.title.unwrap_or_else(|| ask.task.clone()));
        let task = match ask.mode {
            DelegationMode::Task | DelegationMode::Called => ask.task,
            DelegationMode::Sealed | DelegationMode::Planned => {
                self.packed(site)?.unwrap_or(ask.task)
            }
        };
        let (mode, agent) = (ask.mode, ask.agent.clone());
        let spawn = SpawnArgs {
            task,
            agent: Some(ask.agent),
            label: None,
            run_timeout_ms: ask.timeout_ms,
            model: None,
            thinking: None,
            cleanup: Cleanup::Keep,
            mode: SessionMode::Run,
            fork: false,
            bundle: ask.bundle,
        };
        match self.spawn_child(site, spawn, title, Some(awaits)).await {
            Ok(_) => Ok(ToolReply::Pending),
            Err(fault) => {
                let is_open = fault.data.contains_key(BREAKER);
                // Faults of the daemon are not reported as a result of the delegate.
                let is_ours = matches!(
                    fault.kind,
                    Kind::Internal | Kind::Busy | Kind::Unavailable | Kind::Conflict
                );
                let is_cancelled = fault.data.get(REASON) == Some(&CANCELLED_BY_PERSON.into());
                let kind = match mode {
                    _ if is_open => BREAKER,
                    DelegationMode::Sealed | DelegationMode::Planned if is_cancelled => {
                        CANCELLED_BY_PERSON
                    }
                    // In these modes the supervisor continues with any result, also when no agent
                    // was started.
                    DelegationMode::Sealed | DelegationMode::Planned if !is_ours => {
                        fault.kind.as_str()
                    }
                    _ => return Err(fault),
                };
                let supervisor = self.caller(site)?.run.agent;
                let agent = AgentId::parse(&agent).map_err(Fault::internal)?;
                let name = fault.data.get(AGENT_NAME).and_then(Value::as_str);
                let agent = (&agent, name.unwrap_or(agent.as_str()));
                let why = match &fault.hint {
                    // The circuit breaker's message already names the agent.
                    _ if is_open => fault.message.clone(),
                    Some(hint) => format!("{}: {}; {hint}", named(agent.0, agent.1), fault.message),
                    None => format!("{}: {}", named(agent.0, agent.1), fault.message),
                };
                let told = delegation::unavailable_result(mode, agent, &supervisor, kind, &why);
                Ok(ToolReply::Now(told))
            }
        }
    }

    /// The first message of an isolated child, rendered from the context pack of its tool call.
    fn packed(&self, site: Site) -> Result<Option<String>, Fault> {
        let found = self.inner.store.read_now(|tx| {
            let (Some(run), Some(step)) = (
                runs::get(tx, site.run)?,
                steps::get(tx, site.run, site.step)?,
            ) else {
                return Ok(None);
            };
            let call = step.tool_call.unwrap_or_default();
            messages::pack(tx, run.session, run.generation, &call)
        })?;
        let pack = found.map(serde_json::from_value::<Pack>).transpose();
        Ok(pack.map_err(Fault::internal)?.map(|pack| pack.frame()))
    }

    /// Once this returns, a child run of the caller's session is stored; with `awaits` the caller's
    /// step waits for it.
    async fn spawn_child(
        &self,
        site: Site,
        ask: SpawnArgs,
        title: Option<String>,
        awaits: Option<Awaits>,
    ) -> Result<Accepted, Fault> {
        let caller = self.caller(site)?;
        let own = caller.run.agent.as_str();
        let key = step_key(site.id);
        if let Some(accepted) = self.known(Some(&key))? {
            return Ok(accepted);
        }
        let named = Some(ask.agent.as_deref().unwrap_or(own));
        let folder = caller.run.cwd.as_deref();
        let overrides = Overrides {
            model: ask.model.as_deref(),
            thinking: ask.thinking,
            given: &[],
            served: &[],
        };
        let agent = self
            .inner
            .resolve(&caller.who.org, folder, named, overrides)
            .await?;
        let name = agent.name().to_owned();
        let reach = self.reach(&caller)?;
        let allowed = reach.by(awaits.as_ref().map(|awaits| awaits.mode)).to_vec();
        let timeout = ask.run_timeout_ms.or(match awaits {
            Some(_) => agent
                .run_timeout_ms
                .or(Some(self.inner.options().delegation_timeout_ms)),
            None => None,
        });
        let mut run = self.new_run(
            &caller.who,
            None,
            agent,
            ask.label,
            &ask.task,
            timeout,
            None,
            Some(key),
        )?;
        if let Some(title) = title {
            run.title = preview(&title, TITLE);
        }
        let clock = &self.inner.clock;
        let accepted = self.inner.store.submit(Spawn {
            org: caller.who.org,
            run,
            session: SessionId(clock.new_id()),
            message: MessageId(clock.new_id()),
            task: ask.task,
            parent: None,
            announce: None,
            cwd: caller.run.cwd.clone(),
            by: Some(SpawnedBy {
                step: step_ref(site),
                allowed,
                max_depth: reach.max_depth,
                awaits,
            }),
            thinking: ask.thinking,
            mode: ask.mode,
            cleanup: ask.cleanup,
            begins: match ask.fork {
                true => Begins::Fork,
                false => Begins::Isolated,
            },
            bundle: bound(&ask.bundle)?,
        });
        // A refusal names the agent that was requested.
        accepted.await.map_err(|fault| fault.with(AGENT_NAME, name))
    }

    /// The agents that the caller's run may delegate to, and the depth limit. Refusals and listings
    /// use the same value, which is pinned for the run's duration.
    pub(crate) fn reach(&self, caller: &Caller) -> Result<Reach, Fault> {
        let (pins, known) = (&caller.run.pins, &self.inner.pins);
        let (definition, tools) = self
            .inner
            .store
            .read_now(|tx| Ok((known.get(tx, &pins.agent)?, known.get(tx, &pins.tools)?)))?;
        Reach::of(definition.json(), tools.json()).map_err(Fault::internal)
    }
}

/// The permission bundle in its stored form; `None` for one without restrictions.
fn bound(bundle: &Bundle) -> Result<Option<String>, Fault> {
    if *bundle == Bundle::default() {
        return Ok(None);
    }
    serde_json::to_string(bundle)
        .map(Some)
        .map_err(Fault::internal)
}
