//! Delivers outbox rows to the transcripts of requesters. The service loop calls it.

pub(crate) mod exchange;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::RegistryInner;
use super::service::Signal;
use crate::command::{Deliver, NewRun};
use crate::contract::catalog::{AgentMode, Overrides, Pinned, Resolved};
use crate::contract::skills::SkillPin;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::policy::overlay::{AgentEnv, Overlay};
use crate::kernel::session::{Owner, Session};
use crate::store::tables::{blobs, runs, sessions};
use crate::store::tx::DbError;

/// Delay before a failed delivery is retried; its outbox rows stay pending until then.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Runs at most one delivery per session at a time.
pub(super) struct Announcer {
    inner: Arc<RegistryInner>,
    tasks: TaskTracker,
    /// Sessions with a delivery under way; `true` means deliver again when it finishes.
    under_way: HashMap<SessionId, bool>,
}

impl Announcer {
    pub fn new(inner: Arc<RegistryInner>, tasks: TaskTracker) -> Self {
        Announcer {
            inner,
            tasks,
            under_way: HashMap::new(),
        }
    }

    /// Starts a delivery of the session's pending announces, or a repeat after the current one.
    pub fn deliver(&mut self, session: SessionId) {
        if let Some(again) = self.under_way.get_mut(&session) {
            *again = true;
            return;
        }
        self.under_way.insert(session, false);
        let inner = Arc::clone(&self.inner);
        self.tasks.spawn(async move {
            let delivered = match deliver_to(&inner, session).await {
                Ok(()) => true,
                Err(fault) => {
                    tracing::error!(%session, %fault, "announces were not delivered; they are kept and will be retried");
                    false
                }
            };
            // The loop is gone while the daemon stops; the rows stay pending for the next start.
            let _ = inner.signals.send(Signal::Delivered(session, delivered));
        });
    }

    /// Handles the end of a delivery: repeats it if requested, or retries it after a failure.
    pub fn over(&mut self, session: SessionId, delivered: bool) {
        let again = self.under_way.remove(&session).unwrap_or(false);
        if !delivered {
            let inner = Arc::clone(&self.inner);
            // Not tracked: shutdown does not wait for the retry; the next start finds the row.
            tokio::spawn(async move {
                tokio::time::sleep(AGAIN_AFTER).await;
                let _ = inner.signals.send(Signal::DeliverAgain(session));
            });
        } else if again {
            self.deliver(session);
        }
    }
}

/// Submits one delivery, with a prepared wake run if an agent owns the session.
async fn deliver_to(inner: &Arc<RegistryInner>, session: SessionId) -> Result<(), Fault> {
    let target = inner.store.read_now(|tx| sessions::by_id(tx, session))?;
    let (wake, unable) = match target {
        Some(target) if target.owner == Owner::Agent => match wake_run(inner, &target).await {
            Ok(wake) => (Some(Box::new(wake)), None),
            Err(fault) => {
                tracing::warn!(session = %target.key, %fault, "cannot create a wake run");
                (None, Some(fault.message))
            }
        },
        _ => (None, None),
    };
    let command = Deliver {
        session,
        wake,
        unable,
    };
    inner.store.submit_waiting(command).await.map(|_| ())
}

/// Prepares a run that shows the session's agent the announces in its transcript.
pub(super) async fn wake_run(
    inner: &Arc<RegistryInner>,
    target: &Session,
) -> Result<NewRun, Fault> {
    let overrides = Overrides {
        model: target.model.as_deref(),
        thinking: target.thinking,
        given: &[],
        served: &[],
    };
    let (folder, named) = (target.cwd.as_deref(), target.agent.as_str());
    let agent = inner
        .resolve_in(target.id, &target.org, folder, Some(named), overrides)
        .await;
    let agent = match agent {
        // The agent was removed or is no longer allowed; the requester must still get the
        // announces.
        Err(fault) if matches!(fault.kind, Kind::NotFound | Kind::Forbidden) => {
            as_pinned_before(inner, target.id)?.ok_or(fault)?
        }
        agent => agent?,
    };
    let id = RunId(inner.clock.new_id());
    let environment = inner.sealed(id, &agent.overlay)?;
    let title = "read the results of its runs".to_owned();
    // Its user is that of the run that is announced.
    Ok(NewRun {
        limit_ms: agent.run_timeout_ms.or(inner.options().run_timeout_ms),
        trace_id: inner.clock.new_id().simple().to_string(),
        ..NewRun::of(id, agent, environment, title)
    })
}

/// The session's agent as its last run pinned it; `None` if it had no run or the pinned bodies are
/// missing.
fn as_pinned_before(inner: &RegistryInner, session: SessionId) -> Result<Option<Resolved>, Fault> {
    inner.store.read_now(|tx| {
        let Some(run) = runs::last_in(tx, session)? else {
            return Ok(None);
        };
        let mut pinned = |hash: &str| {
            let body = blobs::get(tx, hash)?;
            let pinned = body.map(|body| Pinned {
                hash: hash.to_owned(),
                body: body.into(),
            });
            Ok::<_, DbError>(pinned)
        };
        let (definition, tools) = (pinned(&run.pins.agent)?, pinned(&run.pins.tools)?);
        let (Some(definition), Some(tools)) = (definition, tools) else {
            return Ok(None);
        };
        let skills = match run.pins.skills {
            Some(before) => pinned(&before.hash)?.map(|body| SkillPin::Reused(before, body)),
            None => None,
        };
        Ok(Some(Resolved {
            warnings: vec![format!(
                "agent {} could not be resolved; this turn uses the configuration of the previous turn",
                run.agent
            )],
            id: run.agent,
            title: None,
            mode: AgentMode::All,
            model: run.model,
            thinking: run.thinking,
            run_timeout_ms: None,
            on_uncertain: run.on_uncertain,
            definition,
            tools,
            skill_names: None,
            skills,
            env: AgentEnv::default(),
            overlay: Overlay::default(),
        }))
    })
}
