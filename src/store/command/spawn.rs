//! Spawns: idempotency key, limits, child session, first message and queued run, in one.

use serde_json::json;

use super::context::Context;
use super::create_session;
use super::waiting::acting;
use super::{Accepted, Begins, Key, NewRun, Reply, Spawn, change_session, clear};
use crate::contract::allow::check_allowed;
use crate::contract::catalog::Pinned;
use crate::kernel::action::EventKind;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::limits::{SpawnCounts, check_depth, check_spawn};
use crate::kernel::message::NewMessage;
use crate::kernel::run::{AnnouncePolicy, Lane, Pins, Requester, Run, RunOrigin, RunState, Usage};
use crate::kernel::session::{Fork, Owner, Session};
use crate::store::columns::to_json;
use crate::store::tx::{DbErrorKind, Tx};
use crate::store::{blobs, db_fault, idempotency, messages, outbox, runs, sessions};

/// The child session, its first message and the queued run are there, or nothing is.
pub fn spawn(context: &mut Context<'_>, spawn: Spawn) -> Result<Reply, Fault> {
    // A known key answers before any limit is looked at.
    if let Some(accepted) = repeated(context, spawn.run.key.as_ref())? {
        return Ok(Reply::Accepted(accepted));
    }
    refuse_taken_id(context, spawn.run.id)?;
    let caller = match &spawn.by {
        Some(by) => Some(acting(context, by.step)?.0),
        None => None,
    };
    let named = spawn.parent.as_ref();
    let parent = match named.or(caller.as_ref().map(|caller| &caller.session_key)) {
        None => None,
        Some(key) => Some(
            sessions::by_key(context.tx, &spawn.org, key)
                .map_err(db_fault)?
                .ok_or_else(|| {
                    Fault::not_found("session", key).hint(
                        "a parent must exist before it can be told; sessions.create makes one",
                    )
                })?,
        ),
    };
    // Without a parent the session is a root of its own.
    let depth = parent.as_ref().map_or(0, |parent| parent.depth + 1);
    let mut warnings = Vec::new();
    if let Some(parent) = &parent {
        clear::refuse(context, parent.id)?;
        let mut limits = context.settings.limits;
        if let Some(by) = &spawn.by {
            limits.max_depth = by.max_depth.unwrap_or(limits.max_depth);
            check_depth(&limits, depth)?;
            check_allowed(&parent.agent, &spawn.run.agent.id, &by.allowed)?;
        }
        let tx = &mut *context.tx;
        let total = match &caller {
            Some(caller) => Some(runs::count_below(tx, caller.root_run).map_err(db_fault)?),
            None => None,
        };
        let children = runs::count_live_children(tx, parent.id).map_err(db_fault)?;
        // A client takes note of its inbox; an agent sees what waits with its next turn.
        let backlog = match parent.owner {
            Owner::Client => outbox::count_unacked(tx, parent.id),
            Owner::Agent => outbox::count_pending_for(tx, parent.id),
        }
        .map_err(db_fault)?;
        let counts = SpawnCounts {
            depth,
            children: u32::try_from(children).unwrap_or(u32::MAX),
            total: total.map(|total| u32::try_from(total).unwrap_or(u32::MAX)),
            backlog: u32::try_from(backlog).unwrap_or(u32::MAX),
            client_owned: parent.owner == Owner::Client,
        };
        warnings.extend(check_spawn(&limits, &counts)?);
    }
    let (announce, warning) = announce_policy(&spawn, parent.as_ref())?;
    warnings.extend(warning);

    let fork = fork(&spawn, parent.as_ref())?;
    let session = child_session(context, &spawn, parent.as_ref(), depth, fork);
    create_session::insert(context, &session)?;
    let mut row = new_run(context, &spawn.org, spawn.run, &session, RunOrigin::Spawn);
    row.run.announce = announce;
    row.run.requester = parent.map(|parent| Requester {
        session: parent.id,
        key: parent.key,
        generation: parent.generation,
    });
    row.run.warnings.extend(warnings);
    if let Some(caller) = caller {
        row.run.parent_run = Some(caller.id);
        row.run.root_run = caller.root_run;
        row.run.trace_id = caller.trace_id;
        row.run.user = caller.user;
    }

    let mut task = NewMessage::user(spawn.message, &spawn.task);
    task.run = Some(row.run.id);
    let accepted = accept(context, row, None, true)?;
    let now = context.now.wall;
    let first = session.messages;
    messages::insert(
        context.tx,
        session.id,
        session.generation,
        first,
        &task,
        now,
    )
    .map_err(db_fault)?;
    context.added(
        &spawn.org,
        session.id,
        task.run,
        task.id,
        first,
        task.kind.as_str(),
    );
    Ok(Reply::Accepted(accepted))
}

/// The session of a spawned run. Its first message is counted already.
fn child_session(
    context: &Context<'_>,
    spawn: &Spawn,
    parent: Option<&Session>,
    depth: u32,
    fork: Option<Fork>,
) -> Session {
    let agent = spawn.run.agent.id.clone();
    Session {
        id: spawn.session,
        org: spawn.org.clone(),
        key: SessionKey::child(&agent, spawn.session),
        generation: 1,
        owner: Owner::Agent,
        agent,
        parent: parent.map(|parent| parent.id),
        parent_key: parent.map(|parent| parent.key.clone()),
        root: parent.map_or(spawn.session, |parent| parent.root),
        depth,
        label: spawn.run.label.clone(),
        title: Some(spawn.run.title.clone()),
        model: None,
        thinking: spawn.thinking,
        cwd: spawn
            .cwd
            .clone()
            .or_else(|| parent.and_then(|parent| parent.cwd.clone())),
        // The task, behind what the session begins with.
        messages: fork.map_or(0, |fork| fork.seq) + 1,
        fork,
        mode: spawn.mode,
        cleanup: spawn.cleanup,
        archived_at: None,
        usage: Usage::default(),
        created_at: context.now.wall,
        updated_at: context.now.wall,
        ver: 1,
    }
}

/// What the child's transcript begins with: a reference to its parent's, so that a fork of any
/// length costs nothing. The parent stays as long as its children do.
fn fork(spawn: &Spawn, parent: Option<&Session>) -> Result<Option<Fork>, Fault> {
    match (spawn.begins, parent) {
        (Begins::Isolated, _) => Ok(None),
        (_, None) => Err(Fault::params(
            "context",
            "fork needs a parent session whose transcript it begins with",
        )),
        (Begins::Fork, Some(parent)) => Ok(Some(Fork {
            of: parent.id,
            generation: parent.generation,
            seq: parent.messages,
        })),
        (Begins::At(fork), Some(_)) => Ok(Some(fork)),
    }
}

/// How the requester is told, and what the caller should know about it.
fn announce_policy(
    spawn: &Spawn,
    parent: Option<&Session>,
) -> Result<(AnnouncePolicy, Option<String>), Fault> {
    let Some(parent) = parent else {
        return match spawn.announce {
            None | Some(AnnouncePolicy::None) => Ok((AnnouncePolicy::None, None)),
            Some(policy) => Err(Fault::params(
                "announce",
                format!("{policy} needs a parent session to tell"),
            )
            .hint("name a parent, or leave announce away")),
        };
    };
    Ok(match (parent.owner, spawn.announce) {
        (Owner::Client, Some(policy)) if policy.wakes() => (
            AnnouncePolicy::Inbox,
            Some(format!(
                "announce {policy} became inbox: session {} belongs to a client, nothing runs in it",
                parent.key
            )),
        ),
        (_, Some(policy)) => (policy, None),
        (Owner::Client, None) => (AnnouncePolicy::Inbox, None),
        (Owner::Agent, None) => (AnnouncePolicy::Wake, None),
    })
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

/// A run that is about to be stored.
pub struct NewRow {
    /// The run.
    pub run: Run,
    key: Option<Key>,
    pinned: [Pinned; 2],
}

/// The run is queued, what it pins can be read, and a repeat of its key finds this answer.
pub fn accept(
    context: &mut Context<'_>,
    row: NewRow,
    input: Option<&str>,
    created: bool,
) -> Result<Accepted, Fault> {
    let NewRow { run, key, pinned } = row;
    if run.origin != RunOrigin::Spawn {
        clear::refuse(context, run.session)?;
    }
    let now = context.now.wall;
    for body in &pinned {
        blobs::insert(context.tx, body, now).map_err(db_fault)?;
    }
    if run.origin != RunOrigin::Spawn {
        use_again(context, &run)?;
    }
    let seq = context.take_seq()?;
    runs::insert(context.tx, seq, &run, input).map_err(db_fault)?;
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
        },
        warnings: new.agent.warnings,
        trace_id: new.trace_id,
        created_at: context.now.wall,
        started_at: None,
        ended_at: None,
        last_activity_at: context.now.wall,
        ver: 1,
    };
    NewRow { run, key, pinned }
}
