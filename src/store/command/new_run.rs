//! What every new run is made from, and how it comes into the store. Called by the commands
//! that make runs.

use serde_json::json;

use super::change_session;
use super::clear;
use super::context::Context;
use crate::contract::catalog::{Pinned, Resolved};
use crate::contract::skills::SkillPin;
use crate::kernel::action::EventKind;
use crate::kernel::budget::{Budget, Spent};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AgentId, MessageId, RunId, SessionKey};
use crate::kernel::run::{AnnouncePolicy, Lane, Pins, Run, RunOrigin, RunState, Usage};
use crate::kernel::session::Session;
use crate::store::columns::to_json;
use crate::store::environment::{self, NewEnvironment, StoredValue};
use crate::store::tx::{DbErrorKind, Tx};
use crate::store::{blobs, db_fault, idempotency, runs, sessions};

/// What every new run is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// The user it belongs to.
    pub user: String,
    /// A name for people.
    pub label: Option<String>,
    /// What it is about, on one line.
    pub title: String,
    /// How long it may run, milliseconds; `None` = no limit.
    pub limit_ms: Option<u64>,
    /// What it may use; `None` = no limit.
    pub budget: Option<Budget>,
    /// Comes back unchanged.
    pub meta: Option<serde_json::Value>,
    /// The agent, its model and what is pinned of it.
    pub agent: Resolved,
    /// One trace through parent, child and restarts.
    pub trace_id: String,
    /// A safe repeat.
    pub key: Option<Key>,
    /// The run that it does again.
    pub retry_of: Option<RunId>,
    /// What it has in its environment beside what every program gets.
    pub environment: NewEnvironment,
}

/// What a repeat of a call is recognised by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Org, method, and parent or target.
    pub scope: String,
    /// The client's key.
    pub key: String,
    /// Keyed hash of the canonical parameters.
    pub digest: Vec<u8>,
}

/// A run that is in the store.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Accepted {
    /// The run.
    pub run: RunId,
    /// The session that it works in.
    pub session: SessionKey,
    /// Who does it.
    pub agent: AgentId,
    /// With which model.
    pub model: String,
    /// Levels below a root session.
    pub depth: u32,
    /// The session was made by this call.
    pub created: bool,
    /// What the caller should know.
    pub warnings: Vec<String>,
    /// There is no run: a client owns the session, and this message stands in its transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageId>,
}

/// A run that is about to be stored.
pub struct NewRow {
    /// The run.
    pub run: Run,
    key: Option<Key>,
    pinned: [Pinned; 2],
    skills: Option<SkillPin>,
    values: Vec<StoredValue>,
}

/// A queued run in `session`, with what the caller gave.
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
    let run = Run {
        id: new.id,
        org: org.to_owned(),
        user: new.user,
        session: session.id,
        session_key: session.key.clone(),
        generation: session.generation,
        requester: None,
        parent_run: None,
        root_run: new.id,
        root_session: session.root,
        retry_of: new.retry_of,
        delegated: None,
        on_uncertain: new.agent.on_uncertain,
        origin,
        agent: new.agent.id,
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
        state: RunState::Queued,
        cancel: None,
        error: None,
        result: None,
        limit_ms: new.limit_ms,
        budget: new.budget,
        spent: Spent::default(),
        used_ms: 0,
        counting_since: None,
        recoveries: 0,
        not_before: None,
        announce: AnnouncePolicy::None,
        loops: 0,
        tool_calls: 0,
        steps: 0,
        usage: Usage::default(),
        meta: new.meta,
        pins: Pins {
            agent: pinned[0].hash.clone(),
            tools: pinned[1].hash.clone(),
            // Known in the transaction.
            skills: None,
        },
        env: new.environment.names,
        warnings: new.agent.warnings,
        trace_id: new.trace_id,
        created_at: context.now.wall,
        started_at: None,
        ended_at: None,
        last_activity_at: context.now.wall,
        ver: 1,
    };
    NewRow {
        run,
        key,
        pinned,
        skills,
        values: new.environment.values,
    }
}

/// The run is queued, what it pins can be read, and a repeat of its key finds this answer.
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
    } = row;
    if run.origin != RunOrigin::Spawn {
        clear::refuse(context, run.session)?;
    }
    run.budget = budget(context, &run)?;
    let now = context.now.wall;
    for body in &pinned {
        blobs::insert(context.tx, body, now).map_err(db_fault)?;
    }
    if let Some(skills) = &skills {
        run.pins.skills = Some(super::skills::pin(context, &run.org, skills)?);
    }
    if run.origin != RunOrigin::Spawn {
        use_again(context, &run)?;
    }
    let seq = context.take_seq()?;
    runs::insert(context.tx, seq, &run, input).map_err(db_fault)?;
    for value in &values {
        environment::put(context.tx, run.id, value).map_err(db_fault)?;
    }
    context.emit(
        EventKind::RunQueued,
        &run,
        json!({
            "agent": run.agent,
            "label": run.label,
            "title": run.title,
            "sessionKey": run.session_key,
            "parent": run.requester.as_ref().map(|by| &by.key),
            "meta": run.meta,
        }),
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
        idempotency::insert(context.tx, &key.scope, &key.key, &used, now).map_err(db_fault)?;
    }
    Ok(accepted)
}

/// What the run may use: what was asked for, and no more than is left of what binds it, the
/// budget of the run that pays for it or the one that every tree has.
fn budget(context: &mut Context<'_>, run: &Run) -> Result<Option<Budget>, Fault> {
    let above = match run.payer() {
        Some(payer) => runs::left(context.tx, payer).map_err(db_fault)?,
        None => Some(context.settings.tree_budget),
    };
    let narrowed = run
        .budget
        .unwrap_or_default()
        .narrowed(above.unwrap_or_default());
    Ok(Some(narrowed).filter(Budget::limits))
}

/// The session of a new run is in use: it is brought back from the archive, and what is held
/// for it is offered again.
fn use_again(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    if sessions::bring_back(context.tx, run.session).map_err(db_fault)?
        && let Some(session) = sessions::by_id(context.tx, run.session).map_err(db_fault)?
    {
        context.emit_session(
            EventKind::SessionUpdated,
            &session,
            json!({ "changed": ["archived"], "archived": false }),
        );
    }
    change_session::touch(context, run.session)
}

/// The first answer to this request, if the key is known.
pub fn repeated(context: &mut Context<'_>, key: Option<&Key>) -> Result<Option<Accepted>, Fault> {
    match key {
        Some(key) => first_answer(context.tx, key),
        None => Ok(None),
    }
}

/// What the key's first request was answered, if there was one; `conflict` if that was
/// another request.
pub fn first_answer(tx: &mut dyn Tx, key: &Key) -> Result<Option<Accepted>, Fault> {
    let used = idempotency::get(tx, &key.scope, &key.key).map_err(|fault| match fault.kind {
        // Taken for a new request it would do its work twice.
        DbErrorKind::Unreadable(_) => Fault::new(
            Kind::Conflict,
            format!(
                "idempotency key {:?} was used before, and what it made cannot be read any \
                 more; nothing was created",
                key.key
            ),
        )
        .hint("look for it with runs.list; for a fresh request use a fresh key"),
        _ => db_fault(fault),
    })?;
    let Some(used) = used else {
        return Ok(None);
    };
    if used.digest != key.digest {
        return Err(Fault::new(
            Kind::Conflict,
            format!(
                "idempotency key {:?} was used for another request, which made run {}; nothing \
                 was created",
                key.key, used.run
            ),
        )
        .hint("use a fresh key for a fresh request")
        .with("runId", used.run.to_string()));
    }
    serde_json::from_str(&used.answer)
        .map(Some)
        .map_err(|fault| Fault::internal(format!("a stored answer does not fit: {fault}")))
}

/// Refuses a client-chosen id that some run has.
pub fn refuse_taken_id(context: &mut Context<'_>, id: RunId) -> Result<(), Fault> {
    if runs::get(context.tx, id).map_err(db_fault)?.is_some() {
        return Err(Fault::new(
            Kind::Conflict,
            format!("run {id} is there already; nothing was created"),
        )
        .hint("choose a fresh UUID v7, or repeat the call with its idempotency key"));
    }
    Ok(())
}
