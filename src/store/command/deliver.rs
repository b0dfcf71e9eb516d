//! Tells requesters how their runs ended, and takes their acknowledgement.

use serde_json::json;

use super::context::Context;
use super::moves::move_run;
use super::new_run::{accept, new_run};
use super::{NewRun, Reply, cleanup, clear};
use crate::kernel::action::EventKind;
use crate::kernel::announce::{ANNOUNCES_LIMIT, Note};
use crate::kernel::event::RunEvent;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AnnounceId, RunId, SessionId, SessionKey};
use crate::kernel::message::{Block, Message, MessageKind, NewMessage, Origin, Role};
use crate::kernel::run::{Run, RunOrigin, RunState};
use crate::kernel::session::{Owner, Session};
use crate::store::outbox::{AT_ONCE, Entry};
use crate::store::{db_fault, messages, outbox, runs, sessions, steps};

/// Why an announce is held whose session was deleted.
pub const GONE: &str = "gone";

/// What waits to be told to this session stands in its transcript, unless a turn is going on
/// there; a run that must see it is queued. `unable` says why no wake run can be made: what
/// would need one is then held, and offered again when the session is next touched.
pub fn deliver(
    context: &mut Context<'_>,
    target: SessionId,
    wake: Option<Box<NewRun>>,
    unable: Option<&str>,
) -> Result<Reply, Fault> {
    let waiting = outbox::pending_for(context.tx, target, AT_ONCE).map_err(db_fault)?;
    if waiting.is_empty() {
        return Ok(Reply::Done);
    }
    let session = sessions::by_id(context.tx, target).map_err(db_fault)?;
    let Some(session) = session else {
        for entry in &waiting {
            hold(context, entry, GONE)?;
        }
        again(context, target, waiting.len());
        return Ok(Reply::Done);
    };
    let live = runs::live_in(context.tx, target).map_err(db_fault)?;
    if session.owner == Owner::Agent
        && (is_in_turn(context, &live)? || clear::is_to_come(context, target)?)
    {
        // The end of that turn looks again, and so does what is to become of the session.
        return Ok(Reply::Done);
    }
    // What was asked for before a reset is told, and wakes nobody.
    let wakes = |entry: &Entry| {
        session.owner == Owner::Agent
            && entry.policy.wakes()
            && entry.target_generation == session.generation
    };
    let someone_comes = live.iter().any(comes_to_see);
    if let (None, Some(why), false) = (&wake, unable, someone_comes)
        && waiting.iter().any(wakes)
    {
        for entry in &waiting {
            hold(context, entry, why)?;
        }
        again(context, target, waiting.len());
        return Ok(Reply::Done);
    }
    let mut budget = Budget::of(context, &session, waiting.len())?;
    for entry in &waiting {
        tell(context, &session, entry, &mut budget)?;
    }
    again(context, target, waiting.len());
    if waiting.iter().any(wakes) {
        wake_up(context, &session, &live, waiting.first(), wake)?;
    }
    for entry in &waiting {
        cleanup::after(context, entry.run)?;
    }
    Ok(Reply::Done)
}

/// Looks once more where there may be more than one delivery takes.
fn again(context: &mut Context<'_>, target: SessionId, taken: usize) {
    if taken == AT_ONCE as usize {
        context.effect(super::Effect::Deliverable(target));
    }
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

/// Will the next model call of this run see what is told now, without anybody asking for it?
fn comes_to_see(run: &Run) -> bool {
    match run.state {
        RunState::Settling => true,
        RunState::Queued => run.origin == RunOrigin::Wake || run.started_at.is_some(),
        _ => false,
    }
}

/// How many bytes the announces of one turn may still have. What does not fit is told without
/// its text, which `runs.get` has.
pub struct Budget {
    left: usize,
    /// Announces that are still to come.
    behind: usize,
}

/// The head of one announce has so many bytes at most, for nearly all of them.
const HEAD: usize = 1024;

impl Budget {
    /// For `count` announces, beside those that stand in the transcript and no turn has seen.
    pub fn of(context: &mut Context<'_>, session: &Session, count: usize) -> Result<Self, Fault> {
        let unseen = messages::announce_bytes_at_end(context.tx, session.id).map_err(db_fault)?;
        Ok(Budget {
            left: ANNOUNCES_LIMIT.saturating_sub(usize::try_from(unseen).unwrap_or(usize::MAX)),
            behind: count,
        })
    }

    /// The text of the next announce.
    fn take(&mut self, note: &Note) -> String {
        self.behind = self.behind.saturating_sub(1);
        let text = note.frame_within(self.left.saturating_sub(HEAD * self.behind));
        self.left = self.left.saturating_sub(text.len());
        text
    }
}

/// One announce stands in the transcript; its entry.
pub fn tell(
    context: &mut Context<'_>,
    session: &Session,
    entry: &Entry,
    budget: &mut Budget,
) -> Result<Vec<Message>, Fault> {
    let run = runs::get(context.tx, entry.run).map_err(db_fault)?;
    let Some(note) = run.as_ref().and_then(Note::of) else {
        return Err(Fault::internal(format!(
            "announce of open run {}",
            entry.run
        )));
    };
    let text = budget.take(&note);
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
    // What was asked for before a reset is an old matter.
    let quietly = entry.target_generation != session.generation;
    outbox::mark_delivered(context.tx, entry.seq, seq, quietly, now).map_err(db_fault)?;
    context.knows_key(session.id, &session.key);
    context.emit_announce(
        EventKind::AnnounceDelivered,
        &session.org,
        entry.run,
        session.id,
        json!({ "announceId": entry.announce, "runId": entry.run, "seq": seq }),
    );
    Ok(appended)
}

/// Sees to it that a turn of this session sees what was told; the run that does, if it had to
/// be made.
pub fn wake_up(
    context: &mut Context<'_>,
    session: &Session,
    live: &[Run],
    oldest: Option<&Entry>,
    wake: Option<Box<NewRun>>,
) -> Result<Option<RunId>, Fault> {
    if let Some(settling) = live.iter().find(|run| run.state == RunState::Settling) {
        move_run(context, settling, RunEvent::AnnouncesDelivered)?;
        return Ok(None);
    }
    if live.iter().any(comes_to_see) {
        return Ok(None);
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
    if let Some(oldest) = oldest
        && let Some(ended) = runs::get(context.tx, oldest.run).map_err(db_fault)?
    {
        row.run.root_run = ended.root_run;
        row.run.trace_id = ended.trace_id;
        row.run.user = ended.user;
    }
    let accepted = accept(context, row, None, false)?;
    Ok(Some(accepted.run))
}

/// The announce cannot be told; the result stays on its run.
pub fn hold(context: &mut Context<'_>, entry: &Entry, why: &str) -> Result<(), Fault> {
    outbox::hold(context.tx, entry.seq, why).map_err(db_fault)?;
    if let Some(run) = runs::get(context.tx, entry.run).map_err(db_fault)? {
        if let Some(requester) = run.requester.filter(|by| by.session == entry.target) {
            context.knows_key(entry.target, &requester.key);
        }
        context.emit_announce(
            EventKind::AnnounceHeld,
            &run.org,
            run.id,
            entry.target,
            json!({ "announceId": entry.announce, "reason": why }),
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
            context.emit_announce(
                EventKind::AnnounceAcked,
                org,
                entry.run,
                session.id,
                json!({ "announceId": id, "runId": entry.run }),
            );
        }
        cleanup::after(context, entry.run)?;
        acked.push(id);
    }
    Ok(Reply::Acked(acked))
}
