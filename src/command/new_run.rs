//! The input of every new run, and how it is stored. Called by the commands that create runs.

use super::context::Context;
use super::session;
use crate::contract::catalog::{Pinned, Resolved};
use crate::contract::skills::SkillPin;
use crate::kernel::event::{RunQueued, SessionUpdated};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AgentId, MessageId, RunId, SessionKey};
use crate::kernel::run::budget::Budget;
use crate::kernel::run::{Lane, Pins, Run, RunOrigin};
use crate::kernel::session::Session;
use crate::store::tables::columns::to_json;
use crate::store::tables::environment::{NewEnvironment, StoredValue};
use crate::store::tables::{blobs, environment, idempotency, runs, sessions};
use crate::store::tx::{DbErrorKind, Tx};

/// The input of a new run.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// The user that it belongs to.
    pub user: String,
    /// Label for display and look-up.
    pub label: Option<String>,
    /// One-line title.
    pub title: String,
    /// Time limit in milliseconds; `None` means no limit.
    pub limit_ms: Option<u64>,
    /// Its budget; `None` means no limit of its own.
    pub budget: Option<Budget>,
    /// Client metadata, returned unchanged.
    pub meta: Option<serde_json::Value>,
    /// The agent with its model and pinned bodies.
    pub agent: Resolved,
    /// Trace id, shared by parent and child and kept over restarts.
    pub trace_id: String,
    /// Idempotency key.
    pub key: Option<Key>,
    /// The run that this one retries.
    pub retry_of: Option<RunId>,
    /// Its environment in addition to the base environment.
    pub environment: NewEnvironment,
    /// Refused if this many runs of its user are open; `None` means no such limit.
    pub max_open: Option<u32>,
}

impl NewRun {
    /// A run of `agent` without limits of its own, a label, a trace or a user.
    pub fn of(id: RunId, agent: Resolved, environment: NewEnvironment, title: String) -> Self {
        NewRun {
            id,
            user: String::new(),
            label: None,
            title,
            limit_ms: None,
            budget: None,
            meta: None,
            agent,
            trace_id: String::new(),
            key: None,
            retry_of: None,
            environment,
            max_open: None,
        }
    }
}

/// An idempotency key in its scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Tenant, method, and parent or target.
    pub scope: String,
    /// The client's key.
    pub key: String,
    /// Keyed hash of the canonical parameters.
    pub digest: Vec<u8>,
}

/// A stored run, or a message delivered to a client's session.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Accepted {
    /// The run.
    pub run: RunId,
    /// The session that it works in.
    pub session: SessionKey,
    /// The agent that carries it out.
    pub agent: AgentId,
    /// The model.
    pub model: String,
    /// Levels below a root session.
    pub depth: u32,
    /// True if this call created the session.
    pub created: bool,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
    /// Set if there is no run: a client owns the session, and this message is in its transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageId>,
}

/// A run that is about to be stored, with its pinned bodies and environment.
pub struct NewRow {
    /// The run.
    pub run: Run,
    key: Option<Key>,
    pinned: [Pinned; 2],
    skills: Option<SkillPin>,
    values: Vec<StoredValue>,
    max_open: Option<u32>,
}

/// Prepares a queued run in `session`.
pub fn new_run(
    context: &Context<'_>,
    org: &str,
    new: NewRun,
    session: &Session,
    origin: RunOrigin,
) -> NewRow {
    let key = new.key;
    let pinned = [new.agent.definition, new.agent.tools];
    let skills = new.agent.skills;
    let place = (session.id, session.key.clone());
    let run = Run {
        user: new.user,
        generation: session.generation,
        root_session: session.root,
        retry_of: new.retry_of,
        on_uncertain: new.agent.on_uncertain,
        label: new.label,
        title: new.title,
        model: new.agent.model,
        thinking: new.agent.thinking,
        lane: if session.depth > 0 {
            Lane::Subagent
        } else {
            Lane::Main
        },
        depth: session.depth,
        cwd: session.cwd.clone(),
        limit_ms: new.limit_ms,
        budget: new.budget,
        meta: new.meta,
        pins: Pins {
            agent: pinned[0].hash.clone(),
            tools: pinned[1].hash.clone(),
            // Set in the transaction of [`accept`].
            skills: None,
        },
        env: new.environment.names,
        warnings: new.agent.warnings,
        trace_id: new.trace_id,
        ..Run::queued(new.id, org, place, new.agent.id, origin, context.now.wall)
    };
    NewRow {
        run,
        key,
        pinned,
        skills,
        values: new.environment.values,
        max_open: new.max_open,
    }
}

/// Once this returns, the run is queued, its pinned bodies are stored, and a repeat of its key
/// finds this answer.
pub fn accept(
    context: &mut Context<'_>,
    row: NewRow,
    input: Option<&str>,
    created: bool,
) -> Result<Accepted, Fault> {
    let NewRow {
        mut run,
        key,
        pinned,
        skills,
        values,
        max_open,
    } = row;
    refuse_over_open_runs(context, &run, max_open)?;
    if run.origin != RunOrigin::Spawn {
        session::refuse_while_clearing(context, run.session)?;
    }
    run.budget = budget(context, &run)?;
    let now = context.now.wall;
    for body in &pinned {
        blobs::insert(context.tx, body, now)?;
    }
    if let Some(skills) = &skills {
        run.pins.skills = Some(super::agents::pin_skills(context, &run.org, skills)?);
    }
    if run.origin != RunOrigin::Spawn {
        use_again(context, &run)?;
    }
    let seq = context.take_seq()?;
    runs::insert(context.tx, seq, &run, input)?;
    for value in &values {
        environment::put(context.tx, run.id, value)?;
    }
    context.emit(
        &run,
        RunQueued {
            agent: run.agent.clone(),
            label: run.label.clone(),
            title: run.title.clone(),
            session_key: run.session_key.clone(),
            parent: run.requester.as_ref().map(|by| by.key.clone()),
            meta: run.meta.clone(),
        },
    );
    context.enqueue(&run)?;
    let accepted = Accepted {
        run: run.id,
        session: run.session_key,
        agent: run.agent,
        model: run.model,
        depth: run.depth,
        created,
        warnings: run.warnings,
        message: None,
    };
    if let Some(key) = key {
        let used = idempotency::Used {
            digest: key.digest,
            run: run.id,
            answer: to_json(&accepted),
        };
        idempotency::insert(context.tx, &key.scope, &key.key, &used, now)?;
    }
    Ok(accepted)
}

/// The run's effective budget: the requested one, limited to what is left of the payer's budget, or
/// to the default budget of a tree.
fn budget(context: &mut Context<'_>, run: &Run) -> Result<Option<Budget>, Fault> {
    let above = match run.payer() {
        Some(payer) => runs::remaining(context.tx, payer)?,
        None => Some(context.settings.tree_budget),
    };
    let narrowed = run
        .budget
        .unwrap_or_default()
        .narrowed(above.unwrap_or_default());
    Ok(Some(narrowed).filter(Budget::limits))
}

/// Marks the session of a new run as in use: it is unarchived, and held announces are offered
/// again.
fn use_again(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    if sessions::unarchive(context.tx, run.session)?
        && let Some(session) = sessions::by_id(context.tx, run.session)?
    {
        context.emit_session(&session, SessionUpdated::archived(false));
    }
    session::touch_session(context, run.session)
}

/// The first answer to this request, if the key is known.
pub fn repeated(context: &mut Context<'_>, key: Option<&Key>) -> Result<Option<Accepted>, Fault> {
    match key {
        Some(key) => first_answer(context.tx, key),
        None => Ok(None),
    }
}

/// The answer to the key's first request, if there was one; `conflict` if the parameters differ.
pub fn first_answer(tx: &mut dyn Tx, key: &Key) -> Result<Option<Accepted>, Fault> {
    let used = idempotency::get(tx, &key.scope, &key.key).map_err(|fault| match fault.kind {
        // Treating it as a new request would do the work twice.
        DbErrorKind::Unreadable(_) => Fault::new(
            Kind::Conflict,
            format!(
                "idempotency key {:?} was used before, and its result cannot be read any \
                 more; nothing was created",
                key.key
            ),
        )
        .hint("find its run with runs.list; use a new key for a new request"),
        _ => Fault::from(fault),
    })?;
    let Some(used) = used else {
        return Ok(None);
    };
    if used.digest != key.digest {
        return Err(Fault::new(
            Kind::Conflict,
            format!(
                "idempotency key {:?} was used for another request, which created run {}; nothing \
                 was created",
                key.key, used.run
            ),
        )
        .hint("use a new key for a new request")
        .with("runId", used.run.to_string()));
    }
    serde_json::from_str(&used.answer)
        .map(Some)
        .map_err(|fault| Fault::internal(format!("a stored answer cannot be decoded: {fault}")))
}

/// Refuses a run beyond the open runs that the caller's token allows its user.
fn refuse_over_open_runs(
    context: &mut Context<'_>,
    run: &Run,
    max_open: Option<u32>,
) -> Result<(), Fault> {
    let Some(most) = max_open else { return Ok(()) };
    if runs::count_open_of_user(context.tx, &run.org, &run.user)? < i64::from(most) {
        return Ok(());
    }
    let counts = "open runs of the token's user";
    Err(Fault::new(
        Kind::Limit,
        format!("limit open_runs = {most} reached; it counts {counts}. Nothing was created"),
    )
    .hint("wait for one of them (agent.wait) or cancel one, or use a token with a higher limit")
    .with("limit", "open_runs")
    .with("value", most)
    .with("counts", counts)
    .with("free", "agent.wait, runs.cancel"))
}

/// Refuses a client-chosen run id that is taken.
pub fn refuse_taken_id(context: &mut Context<'_>, id: RunId) -> Result<(), Fault> {
    if runs::get(context.tx, id)?.is_some() {
        return Err(Fault::new(
            Kind::Conflict,
            format!("run {id} already exists; nothing was created"),
        )
        .hint("use a new UUID v7, or repeat the call with its idempotency key"));
    }
    Ok(())
}
