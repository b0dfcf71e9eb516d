//! Tells requesters how their runs ended, and takes their acknowledgement.

use serde_json::json;

use super::context::Context;
use super::moves::move_run;
use super::spawn::{accept, new_run};
use super::{NewRun, Reply};
use crate::kernel::action::EventKind;
use crate::kernel::announce::Note;
use crate::kernel::event::RunEvent;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AnnounceId, SessionId, SessionKey};
use crate::kernel::message::{Block, MessageKind, NewMessage, Origin, Role};
use crate::kernel::run::{AnnouncePolicy, Run, RunOrigin, RunState};
use crate::kernel::session::{Owner, Session};
use crate::store::outbox::Entry;
use crate::store::{db_fault, outbox, runs, sessions, steps};

/// So many announces are told in one command, and so many bytes: the rest follow in the next.
const AT_ONCE: u32 = 50;
const BYTES_AT_ONCE: usize = 100 * 1024;

/// What waits to be told to this session stands in its transcript, unless a turn is going on
/// there; a run that must see it is queued.
pub fn deliver(
    context: &mut Context<'_>,
    target: SessionId,
    wake: Option<Box<NewRun>>,
) -> Result<Reply, Fault> {
    let waiting = outbox::pending_for(context.tx, target, AT_ONCE).map_err(db_fault)?;
    if waiting.is_empty() {
        return Ok(Reply::Done);
    }
    let session = sessions::by_id(context.tx, target).map_err(db_fault)?;
    let Some(session) = session else {
        for entry in &waiting {
            hold(context, entry)?;
        }
        return Ok(Reply::Done);
    };
    let live = runs::live_in(context.tx, target).map_err(db_fault)?;
    if session.owner == Owner::Agent && is_in_turn(context, &live)? {
        // The end of that turn looks again.
        return Ok(Reply::Done);
    }
    let mut bytes = 0;
    let mut told = Vec::new();
    for entry in waiting {
        if bytes > BYTES_AT_ONCE {
            context.effect(super::Effect::Deliverable(target));
            break;
        }
        bytes += tell(context, &session, &entry)?;
        told.push(entry);
    }
    if told.len() == AT_ONCE as usize {
        context.effect(super::Effect::Deliverable(target));
    }
    // What was asked for before a reset is told, and wakes nobody.
    let wakes = |entry: &Entry| {
        entry.policy == AnnouncePolicy::Wake && entry.target_generation == session.generation
    };
    if session.owner == Owner::Agent && told.iter().any(wakes) {
        wake_up(context, &session, &live, &told, wake)?;
    }
    Ok(Reply::Done)
}

/// Is a turn going on, be it that its run waits for a slot to go on with it?
fn is_in_turn(context: &mut Context<'_>, live: &[Run]) -> Result<bool, Fault> {
    for run in live {
        let goes_on = match run.state {
            RunState::Running | RunState::Paused(_) => true,
            RunState::Queued => steps::is_in_turn(context.tx, run).map_err(db_fault)?,
            RunState::Settling | RunState::Ended(_) => false,
        };
        if goes_on {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One announce stands in the transcript; how many bytes it has.
fn tell(context: &mut Context<'_>, session: &Session, entry: &Entry) -> Result<usize, Fault> {
    let run = runs::get(context.tx, entry.run).map_err(db_fault)?;
    let Some(note) = run.as_ref().and_then(Note::of) else {
        return Err(Fault::internal(format!(
            "announce of open run {}",
            entry.run
        )));
    };
    let text = note.frame();
    let bytes = text.len();
    let mut message = NewMessage::new(
        context.message_id(),
        Role::User,
        MessageKind::Announce,
        Origin::Internal,
        Block::Text { text },
    );
    message.run = Some(entry.run);
    message.announce = Some(entry.announce);
    message.metadata = Some(json!({
        "outcome": note.outcome,
        "sessionKey": note.session_key,
        "label": note.label,
        "meta": run.as_ref().and_then(|run| run.meta.clone()),
    }));
    let appended = context.append(&session.org, session.id, session.generation, vec![message])?;
    let seq = appended.first().map_or(0, |message| message.seq);
    let now = context.now.wall;
    outbox::mark_delivered(context.tx, entry.seq, seq, now).map_err(db_fault)?;
    context.emit_session(
        EventKind::AnnounceDelivered,
        session,
        json!({ "announceId": entry.announce, "runId": entry.run, "seq": seq }),
    );
    Ok(bytes)
}

/// Sees to it that a turn of this session sees what was told.
fn wake_up(
    context: &mut Context<'_>,
    session: &Session,
    live: &[Run],
    told: &[Entry],
    wake: Option<Box<NewRun>>,
) -> Result<(), Fault> {
    if let Some(settling) = live.iter().find(|run| run.state == RunState::Settling) {
        move_run(context, settling, RunEvent::AnnouncesDelivered)?;
        return Ok(());
    }
    let waits = live.iter().any(|run| {
        run.state == RunState::Queued && (run.origin == RunOrigin::Wake || run.started_at.is_some())
    });
    if waits {
        return Ok(());
    }
    // Told and not woken would be a lost wake-up: all of this command is undone.
    let wake = wake.ok_or_else(|| {
        Fault::new(
            Kind::Conflict,
            format!(
                "session {} needs a wake run to see its announces",
                session.key
            ),
        )
    })?;
    let mut row = new_run(context, &session.org, *wake, session, RunOrigin::Wake);
    // The chain goes on under the root of the oldest news, so that loops meet its limits.
    if let Some(oldest) = told.first()
        && let Some(ended) = runs::get(context.tx, oldest.run).map_err(db_fault)?
    {
        row.run.root_run = ended.root_run;
        row.run.trace_id = ended.trace_id;
        row.run.user = ended.user;
    }
    accept(context, row, None, false)?;
    Ok(())
}

/// The announce has no target any more; the result stays on its run.
fn hold(context: &mut Context<'_>, entry: &Entry) -> Result<(), Fault> {
    outbox::mark_undelivered(context.tx, entry.seq).map_err(db_fault)?;
    if let Some(run) = runs::get(context.tx, entry.run).map_err(db_fault)? {
        context.emit(
            EventKind::AnnounceHeld,
            &run,
            json!({ "announceId": entry.announce, "reason": "gone" }),
        );
    }
    Ok(())
}

/// These announces are acknowledged, as far as they stand in this session's inbox.
pub fn ack(
    context: &mut Context<'_>,
    org: &str,
    key: &SessionKey,
    ids: Vec<AnnounceId>,
) -> Result<Reply, Fault> {
    let session = sessions::by_key(context.tx, org, key)
        .map_err(db_fault)?
        .ok_or_else(|| Fault::not_found("session", key))?;
    let mut acked = Vec::with_capacity(ids.len());
    for id in ids {
        let now = context.now.wall;
        let Some((entry, changed)) =
            outbox::ack(context.tx, session.id, id, now).map_err(db_fault)?
        else {
            return Err(Fault::not_found("announce", id)
                .hint("nothing was acknowledged; sessions.inbox lists what can be"));
        };
        if changed {
            context.emit_session(
                EventKind::AnnounceAcked,
                &session,
                json!({ "announceId": id, "runId": entry.run }),
            );
        }
        acked.push(id);
    }
    Ok(Reply::Acked(acked))
}
