//! Sessions: created, changed and reset. Resets and deletions requested while runs are open are rows,
//! carried out by the transaction that ends the last run.

use super::cancel::{cascade, open_from_session};
use super::context::Context;
use super::removal::{remove_tree, still_open};
use super::{Clearance, SessionAfter};
use crate::contract::commit::CommitEffect;
use crate::kernel::event::{SessionCreated, SessionUpdated};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AgentId, SessionId, SessionKey};
use crate::kernel::run::thinking::Thinking;
use crate::kernel::run::{CancelRequest, Run, Usage};
use crate::kernel::session::{Cleanup, Owner, Session, SessionMode};
use crate::store::tables::clearings::Clearing;
use crate::store::tables::{clearings, outbox, runs, sessions};

/// A new session. Its id is generated before the command, so that a repeat creates the same
/// session.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSession {
    /// Its id.
    pub id: SessionId,
    /// The tenant.
    pub org: String,
    /// Its key; derived from agent and id if unset.
    pub key: Option<SessionKey>,
    /// Whether an agent or a client answers in it.
    pub owner: Owner,
    /// The agent of its turns.
    pub agent: AgentId,
    /// Label for look-ups.
    pub label: Option<String>,
    /// Title for display.
    pub title: Option<String>,
    /// Thinking level of its turns; the agent's default if unset.
    pub thinking: Option<Thinking>,
    /// Working folder of its tools.
    pub cwd: Option<String>,
    /// True to return an existing session (same agent and owner) instead of refusing.
    pub get_existing: bool,
}

/// Once this returns, the session exists, new or unchanged.
pub fn create_session(context: &mut Context<'_>, new: NewSession) -> Result<SessionAfter, Fault> {
    let key = new.key.clone().unwrap_or_else(|| match new.owner {
        Owner::Agent => SessionKey::root(&new.agent, new.id),
        Owner::Client => SessionKey::client(new.id),
    });
    if let Some(found) = sessions::by_key(context.tx, &new.org, &key)? {
        let same = found.agent == new.agent && found.owner == new.owner;
        if new.get_existing && same {
            return Ok(SessionAfter {
                session: found,
                is_new: false,
            });
        }
        return Err(key_taken(&found, same));
    }
    let session = root_session(context, &new, key);
    insert_session(context, &session)?;
    Ok(SessionAfter {
        session,
        is_new: true,
    })
}

fn key_taken(found: &Session, same: bool) -> Fault {
    let fault = Fault::new(
        Kind::Conflict,
        format!(
            "session {} already exists (agent {}, owner {})",
            found.key, found.agent, found.owner
        ),
    )
    .with("sessionKey", found.key.as_str());
    if same {
        fault.hint("use the existing session (ifExists: get), or choose another key")
    } else {
        fault.hint("choose another key: agent and owner of a session cannot change")
    }
}

fn root_session(context: &Context<'_>, new: &NewSession, key: SessionKey) -> Session {
    Session {
        id: new.id,
        org: new.org.clone(),
        key,
        generation: 1,
        owner: new.owner,
        agent: new.agent.clone(),
        parent: None,
        parent_key: None,
        root: new.id,
        depth: 0,
        label: new.label.clone(),
        title: new.title.clone(),
        model: None,
        thinking: new.thinking,
        cwd: new.cwd.clone(),
        messages: 0,
        fork: None,
        mode: SessionMode::Session,
        cleanup: Cleanup::Keep,
        archived_at: None,
        usage: Usage::default(),
        created_at: context.now.wall,
        updated_at: context.now.wall,
        ver: 1,
    }
}

/// Once this returns, a new root session exists for a turn that found none.
pub fn session_for_turn(
    context: &mut Context<'_>,
    org: &str,
    id: SessionId,
    key: &SessionKey,
    agent: &AgentId,
) -> Result<Session, Fault> {
    let new = NewSession {
        id,
        org: org.to_owned(),
        key: Some(key.clone()),
        owner: Owner::Agent,
        agent: agent.clone(),
        label: None,
        title: None,
        thinking: None,
        cwd: None,
        get_existing: true,
    };
    let session = root_session(context, &new, key.clone());
    insert_session(context, &session)?;
    Ok(session)
}

/// Once this returns, the session is stored, with an event.
pub fn insert_session(context: &mut Context<'_>, session: &Session) -> Result<(), Fault> {
    let seq = context.take_seq()?;
    sessions::insert(context.tx, seq, session)?;
    context.emit_session(
        session,
        SessionCreated {
            key: session.key.clone(),
            agent: session.agent.clone(),
            owner: session.owner.as_str().into(),
            parent: session.parent_key.clone(),
        },
    );
    Ok(())
}

/// New values for a session; `None` leaves a field unchanged, `Some(None)` clears it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchSession {
    /// The tenant.
    pub org: String,
    /// Key of the session.
    pub key: SessionKey,
    /// Label for look-ups.
    pub label: Option<Option<String>>,
    /// Title for display.
    pub title: Option<Option<String>>,
    /// The agent of its turns from the next one on.
    pub agent: Option<AgentId>,
    /// The model of its turns.
    pub model: Option<Option<String>>,
    /// Thinking level of its turns.
    pub thinking: Option<Option<Thinking>>,
    /// Working folder of its tools.
    pub cwd: Option<Option<String>>,
    /// Expected revision; a different one is a `conflict`.
    pub if_revision: Option<i64>,
}

/// A request to start a new generation of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetSession {
    /// The tenant.
    pub org: String,
    /// Key of the session.
    pub key: SessionKey,
    /// True to cancel its open runs first; otherwise open runs are a `conflict`.
    pub force: bool,
    /// The generation to end; if a later one has begun, the reset changes nothing.
    pub if_generation: Option<i64>,
    /// The actor, recorded on cancelled runs.
    pub by: String,
    /// True if a user, or a client acting for one, resets; false if an agent does.
    pub by_person: bool,
}

/// Once this returns, the session has the new values, is not archived, and held announces are
/// offered again.
pub fn patch_session(context: &mut Context<'_>, patch: PatchSession) -> Result<Session, Fault> {
    let mut session = find_session(context, &patch.org, &patch.key)?;
    if let Some(revision) = patch.if_revision
        && revision != session.ver
    {
        return Err(Fault::new(
            Kind::Conflict,
            format!(
                "session {} has revision {}, not {revision}; nothing was changed",
                session.key, session.ver
            ),
        )
        .hint("read it again and repeat the change")
        .with("revision", session.ver));
    }
    let mut changed = Vec::new();
    for (name, field, value) in [
        ("label", &mut session.label, patch.label),
        ("title", &mut session.title, patch.title),
        ("model", &mut session.model, patch.model),
        ("cwd", &mut session.cwd, patch.cwd),
    ] {
        if let Some(value) = value {
            *field = value;
            changed.push(name.to_owned());
        }
    }
    if let Some(agent) = patch.agent {
        if session.parent.is_some() || session.owner == Owner::Client {
            return Err(Fault::new(
                Kind::Conflict,
                format!(
                    "session {} was spawned or is owned by a client; its agent stays",
                    session.key
                ),
            )
            .hint("create a session of that agent: sessions.create"));
        }
        session.agent = agent;
        changed.push("agent".to_owned());
    }
    if let Some(thinking) = patch.thinking {
        session.thinking = thinking;
        changed.push("thinking".to_owned());
    }
    session.archived_at = None;
    write_session(context, &mut session)?;
    touch_session(context, session.id)?;
    context.emit_session(
        &session,
        SessionUpdated {
            changed,
            revision: Some(session.ver),
            ..SessionUpdated::default()
        },
    );
    Ok(session)
}

/// Once this returns, a new generation has begun: older messages are kept and shown, but no model
/// sees them. Open runs are a `conflict`; with `force` they are marked to end and returned, and the
/// end of the last one starts the new generation.
pub fn reset_session(
    context: &mut Context<'_>,
    reset: ResetSession,
) -> Result<Clearance<Session>, Fault> {
    let session = find_session(context, &reset.org, &reset.key)?;
    if let Some(generation) = reset.if_generation
        && generation != session.generation
    {
        return already_another(session, generation).map(Clearance::Done);
    }
    let open = runs::live_in(context.tx, session.id)?;
    if !reset.force && !open.is_empty() {
        return Err(still_open("reset", &session, &open));
    }
    let request = CancelRequest {
        by: reset.by,
        at: context.now.wall,
        reason: Some("the session is reset".to_owned()),
        inherited: false,
        by_person: reset.by_person,
    };
    let mut stopping = Vec::new();
    for run in &open {
        stopping.extend(cascade(context, run, &request)?.stopping);
    }
    if !stopping.is_empty() {
        stopping.sort_unstable();
        stopping.dedup();
        schedule_clearing(context, &session, Clearing::Reset)?;
        return Ok(Clearance::Stopping(stopping));
    }
    // The end of these runs may have changed or removed the row.
    let session = find_session(context, &reset.org, &reset.key)?;
    let session = begin_generation(context, session)?;
    Ok(Clearance::Done(session))
}

/// A repeat of a completed reset gets the session; a generation in the future is a `conflict`.
fn already_another(session: Session, expected: i64) -> Result<Session, Fault> {
    if session.generation > expected {
        return Ok(session);
    }
    Err(Fault::new(
        Kind::Conflict,
        format!(
            "session {} has generation {}, not {expected}; nothing was changed",
            session.key, session.generation
        ),
    )
    .hint("sessions.get returns the present generation")
    .with("generation", session.generation))
}

/// Once this returns, the session's next generation has begun. The caller ensures that no run is
/// open in it.
pub fn begin_generation(context: &mut Context<'_>, mut session: Session) -> Result<Session, Fault> {
    session.generation += 1;
    write_session(context, &mut session)?;
    context.emit_session(
        &session,
        SessionUpdated {
            changed: vec!["generation".to_owned()],
            revision: Some(session.ver),
            generation: Some(session.generation),
            archived: None,
        },
    );
    // Announces that waited for the end of its turns can be delivered now.
    if outbox::has_pending(context.tx, session.id)? {
        context.effect(CommitEffect::Deliverable(session.id));
    }
    Ok(session)
}

fn find_session(context: &mut Context<'_>, org: &str, key: &SessionKey) -> Result<Session, Fault> {
    sessions::by_key(context.tx, org, key)?.ok_or_else(|| Fault::not_found("session", key))
}

fn write_session(context: &mut Context<'_>, session: &mut Session) -> Result<(), Fault> {
    session.updated_at = context.now.wall;
    session.ver += 1;
    sessions::update(context.tx, session, context.now.wall).map_err(Fault::from)
}

/// Offers held announces again, because the session is in use.
pub fn touch_session(context: &mut Context<'_>, session: SessionId) -> Result<(), Fault> {
    if outbox::make_all_pending(context.tx, session)? {
        context.effect(CommitEffect::Deliverable(session));
    }
    Ok(())
}

/// Schedules a reset or deletion for when the last open run ends. New runs are refused until then.
pub fn schedule_clearing(
    context: &mut Context<'_>,
    session: &Session,
    what: Clearing,
) -> Result<(), Fault> {
    clearings::insert(context.tx, session.id, what, context.now.wall).map_err(Fault::from)
}

/// Carries out every scheduled reset and deletion that has no open runs left. Called whenever a run
/// ends, and at a start, because a run's row may have been lost.
pub fn carry_out_clearings(context: &mut Context<'_>) -> Result<(), Fault> {
    for (id, what) in clearings::some(context.tx)? {
        let Some(session) = sessions::by_id(context.tx, id)? else {
            // The end of a run has deleted it (`cleanup: delete`), or an ancestor was deleted.
            clearings::remove(context.tx, id)?;
            continue;
        };
        let is_in_the_way = |run: &Run| match what {
            // Runs in other sessions continue unless they were cancelled with it.
            Clearing::Reset => run.session == id || run.cancel.is_some(),
            Clearing::Delete => true,
        };
        if open_from_session(context, &session)?
            .iter()
            .any(is_in_the_way)
        {
            continue;
        }
        clearings::remove(context.tx, id)?;
        match what {
            Clearing::Reset => drop(begin_generation(context, session)?),
            Clearing::Delete => remove_tree(context, &session)?,
        }
    }
    Ok(())
}

/// True if a reset of the session, or a deletion of it or an ancestor, is scheduled.
pub fn is_clearing(context: &mut Context<'_>, session: SessionId) -> Result<bool, Fault> {
    Ok(pending_clearing(context, session)?.is_some())
}

/// Refuses new work in a session with a scheduled reset, or in the tree of a scheduled deletion.
pub fn refuse_while_clearing(context: &mut Context<'_>, session: SessionId) -> Result<(), Fault> {
    let Some(what) = pending_clearing(context, session)? else {
        return Ok(());
    };
    let what = match what {
        Clearing::Reset => "is being reset",
        Clearing::Delete => "is being deleted",
    };
    Err(Fault::new(
        Kind::Busy,
        format!("the session {what}: its open runs are being stopped. Nothing was created"),
    )
    .hint("try again in a moment")
    .with("retryAfterMs", 1000))
}

fn pending_clearing(
    context: &mut Context<'_>,
    session: SessionId,
) -> Result<Option<Clearing>, Fault> {
    if clearings::some(context.tx)?.is_empty() {
        return Ok(None);
    }
    let mut at = Some(session);
    while let Some(id) = at {
        match clearings::of(context.tx, id)? {
            // A reset affects only the session itself.
            Some(Clearing::Reset) if id != session => {}
            Some(what) => return Ok(Some(what)),
            None => {}
        }
        at = sessions::parent_of(context.tx, id)?;
    }
    Ok(None)
}
