//! Changes existing sessions: label, title, model, thinking level, folder, and the reset.

use super::Clearance;
use serde_json::json;

use super::cancel::cascade;
use super::clear;
use super::context::Context;
use super::remove::still_open;
use crate::contract::commit::Effect;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{SessionId, SessionKey};
use crate::kernel::run::CancelRequest;
use crate::kernel::run::action::EventKind;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::session::Session;
use crate::store::tables::clearings::Clearing;
use crate::store::tables::{outbox, runs, sessions};

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
pub fn patch(context: &mut Context<'_>, patch: PatchSession) -> Result<Session, Fault> {
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
    Ok(session)
}

/// Once this returns, a new generation has begun: older messages are kept and shown, but no model
/// sees them. Open runs are a `conflict`; with `force` they are marked to end and returned, and the
/// end of the last one starts the new generation.
pub fn reset(context: &mut Context<'_>, reset: ResetSession) -> Result<Clearance<Session>, Fault> {
    let session = find(context, &reset.org, &reset.key)?;
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
        clear::ask(context, &session, Clearing::Reset)?;
        return Ok(Clearance::Stopping(stopping));
    }
    // The end of these runs may have changed or removed the row.
    let session = find(context, &reset.org, &reset.key)?;
    let session = begin_anew(context, session)?;
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
    // Announces that waited for the end of its turns can be delivered now.
    if outbox::has_pending(context.tx, session.id)? {
        context.effect(Effect::Deliverable(session.id));
    }
    Ok(session)
}

fn find(context: &mut Context<'_>, org: &str, key: &SessionKey) -> Result<Session, Fault> {
    sessions::by_key(context.tx, org, key)?.ok_or_else(|| Fault::not_found("session", key))
}

fn write(context: &mut Context<'_>, session: &mut Session) -> Result<(), Fault> {
    session.updated_at = context.now.wall;
    session.ver += 1;
    sessions::update(context.tx, session, context.now.wall).map_err(Fault::from)
}

/// Offers held announces again, because the session is in use.
pub fn touch(context: &mut Context<'_>, session: SessionId) -> Result<(), Fault> {
    if outbox::make_all_pending(context.tx, session)? {
        context.effect(Effect::Deliverable(session));
    }
    Ok(())
}
