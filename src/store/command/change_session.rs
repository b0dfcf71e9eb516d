//! Changes sessions that are there: names, model and folder, and the reset.

use serde_json::json;

use super::Reply;
use super::cancel::fell;
use super::clear;
use super::context::{Context, Effect};
use super::remove::still_open;
use crate::kernel::action::EventKind;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{SessionId, SessionKey};
use crate::kernel::run::CancelRequest;
use crate::kernel::session::Session;
use crate::kernel::thinking::Thinking;
use crate::store::clearings::Clearing;
use crate::store::{db_fault, outbox, runs, sessions};

/// New values for a session; `None` = as it is, `Some(None)` = none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchSession {
    /// The tenant.
    pub org: String,
    /// Which.
    pub key: SessionKey,
    /// A name for look-ups.
    pub label: Option<Option<String>>,
    /// A heading for people.
    pub title: Option<Option<String>>,
    /// The model of its turns.
    pub model: Option<Option<String>>,
    /// How much the model of its turns thinks.
    pub thinking: Option<Option<Thinking>>,
    /// The folder that its tools see.
    pub cwd: Option<Option<String>>,
    /// Only if its version is this one.
    pub if_revision: Option<i64>,
}

/// A session that is to begin anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetSession {
    /// The tenant.
    pub org: String,
    /// Which.
    pub key: SessionKey,
    /// Cancel its open runs first.
    pub force: bool,
    /// The generation that is to end; where another has begun already, nothing is done.
    pub if_generation: Option<i64>,
    /// Who asks.
    pub by: String,
    /// It is a person, or a client that acts for one, and no agent.
    pub by_person: bool,
}

/// The session has the new values; those that were not named stay. It is in use again.
pub fn patch(context: &mut Context<'_>, patch: PatchSession) -> Result<Reply, Fault> {
    let mut session = find(context, &patch.org, &patch.key)?;
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
        .hint("read it again, and change what is there now")
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
            changed.push(name);
        }
    }
    if let Some(thinking) = patch.thinking {
        session.thinking = thinking;
        changed.push("thinking");
    }
    session.archived_at = None;
    write(context, &mut session)?;
    touch(context, session.id)?;
    context.emit_session(
        EventKind::SessionUpdated,
        &session,
        json!({ "changed": changed, "revision": session.ver }),
    );
    Ok(Reply::Session(Box::new(session), false))
}

/// The session begins anew, in a new generation: what was said before is kept and shown, and
/// no model sees it. With open runs it is refused, or with `force` these are marked to end and
/// named, and the end of the last of them is the end of the generation.
pub fn reset(context: &mut Context<'_>, reset: ResetSession) -> Result<Reply, Fault> {
    let session = find(context, &reset.org, &reset.key)?;
    if let Some(generation) = reset.if_generation
        && generation != session.generation
    {
        return already_another(session, generation);
    }
    let open = runs::live_in(context.tx, session.id).map_err(db_fault)?;
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
        stopping.extend(fell(context, run, &request)?.stopping);
    }
    if !stopping.is_empty() {
        stopping.sort_unstable();
        stopping.dedup();
        clear::ask(context, &session, Clearing::Reset)?;
        return Ok(Reply::Stopping(stopping));
    }
    // What the end of those runs left may have taken the row along.
    let session = find(context, &reset.org, &reset.key)?;
    let session = begin_anew(context, session)?;
    Ok(Reply::Session(Box::new(session), false))
}

/// A repeat of a reset that was carried out, or one of somebody who has not seen it.
fn already_another(session: Session, expected: i64) -> Result<Reply, Fault> {
    if session.generation > expected {
        return Ok(Reply::Session(Box::new(session), false));
    }
    Err(Fault::new(
        Kind::Conflict,
        format!(
            "session {} has generation {}, not {expected}; nothing was changed",
            session.key, session.generation
        ),
    )
    .hint("sessions.get has the generation in force")
    .with("generation", session.generation))
}

/// The next generation of the session has begun. The caller knows that nothing in it is open.
pub fn begin_anew(context: &mut Context<'_>, mut session: Session) -> Result<Session, Fault> {
    session.generation += 1;
    write(context, &mut session)?;
    context.emit_session(
        EventKind::SessionUpdated,
        &session,
        json!({
            "changed": ["generation"],
            "generation": session.generation,
            "revision": session.ver,
        }),
    );
    // What waited for the end of its turns can be told now.
    if outbox::has_pending(context.tx, session.id).map_err(db_fault)? {
        context.effect(Effect::Deliverable(session.id));
    }
    Ok(session)
}

fn find(context: &mut Context<'_>, org: &str, key: &SessionKey) -> Result<Session, Fault> {
    sessions::by_key(context.tx, org, key)
        .map_err(db_fault)?
        .ok_or_else(|| Fault::not_found("session", key))
}

fn write(context: &mut Context<'_>, session: &mut Session) -> Result<(), Fault> {
    session.updated_at = context.now.wall;
    session.ver += 1;
    sessions::update(context.tx, session, context.now.wall).map_err(db_fault)
}

/// Somebody uses the session: what is held for it is offered again.
pub fn touch(context: &mut Context<'_>, session: SessionId) -> Result<(), Fault> {
    if outbox::offer_all(context.tx, session).map_err(db_fault)? {
        context.effect(Effect::Deliverable(session));
    }
    Ok(())
}
