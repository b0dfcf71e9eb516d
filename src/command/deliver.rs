//! Delivers announces of ended runs to their requesters, and records acknowledgements.

use serde_json::json;

use super::context::Context;
use super::moves::move_run;
use super::new_run::{accept, new_run};
use super::{NewRun, cleanup, clear};
use crate::kernel::delegation::announce::{ANNOUNCES_LIMIT, AnnounceNote};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AnnounceId, RunId, SessionId, SessionKey};
use crate::kernel::run::action::EventKind;
use crate::kernel::run::event::RunEvent;
use crate::kernel::run::{Run, RunOrigin, RunState};
use crate::kernel::session::message::{Block, Message, MessageKind, NewMessage, Origin, Role};
use crate::kernel::session::{Owner, Session};
use crate::store::tables::outbox::{AT_ONCE, Entry};
use crate::store::tables::{messages, outbox, runs, sessions, steps};

/// The hold reason of an announce whose session was deleted.
pub const GONE: &str = "gone";

/// Once this returns, the session's pending announces are in its transcript, unless a turn is under
/// way there, and a run that must see them is queued. `unable` is the reason why no wake run could
/// be created; announces that need one are then held, and offered again when the session is next
/// used.
pub fn deliver(
    context: &mut Context<'_>,
    target: SessionId,
    wake: Option<Box<NewRun>>,
    unable: Option<&str>,
) -> Result<(), Fault> {
    let waiting = outbox::pending_for(context.tx, target, AT_ONCE)?;
    if waiting.is_empty() {
        return Ok(());
    }
    let session = sessions::by_id(context.tx, target)?;
    let Some(session) = session else {
        for entry in &waiting {
            hold(context, entry, GONE)?;
        }
        again(context, target, waiting.len());
        return Ok(());
    };
    let live = runs::live_in(context.tx, target)?;
    if session.owner == Owner::Agent
        && (is_in_turn(context, &live)? || clear::is_to_come(context, target)?)
    {
        // The end of that turn, or of the scheduled reset or deletion, triggers another delivery.
        return Ok(());
    }
    // Announces requested before a reset are delivered but wake no agent.
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
        return Ok(());
    }
    let mut budget = Budget::of(context, &session, waiting.len())?;
    for entry in &waiting {
        deliver_one(context, &session, entry, &mut budget)?;
    }
    again(context, target, waiting.len());
    if waiting.iter().any(wakes) {
        wake_up(context, &session, &live, waiting.first(), wake)?;
    }
    for entry in &waiting {
        cleanup::after(context, entry.run)?;
    }
    Ok(())
}

/// Schedules another delivery if there may be more announces than one delivery takes.
fn again(context: &mut Context<'_>, target: SessionId, taken: usize) {
    if taken == AT_ONCE as usize {
        context.effect(crate::contract::commit::Effect::Deliverable(target));
    }
}

/// True if a turn is under way, including one that waits for a slot to continue.
fn is_in_turn(context: &mut Context<'_>, live: &[Run]) -> Result<bool, Fault> {
    for run in live {
        let goes_on = match run.state {
            RunState::Running | RunState::Paused(_) => true,
            RunState::Queued => steps::is_in_turn(context.tx, run)?,
            RunState::Settling | RunState::Ended(_) => false,
        };
        if goes_on {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True if a model call of this run will see the new announces without further action.
fn comes_to_see(run: &Run) -> bool {
    match run.state {
        RunState::Settling => true,
        RunState::Queued => run.origin == RunOrigin::Wake || run.started_at.is_some(),
        _ => false,
    }
}

/// Byte budget for the announces of one turn. An announce that does not fit is delivered without
/// its text, which `runs.get` returns.
pub struct Budget {
    left: usize,
    /// Number of announces that still follow.
    behind: usize,
}

/// Byte limit that covers the head of nearly every announce.
const HEAD: usize = 1024;

impl Budget {
    /// The budget for `count` announces, less those in the transcript that no turn has seen.
    pub fn of(context: &mut Context<'_>, session: &Session, count: usize) -> Result<Self, Fault> {
        let unseen = messages::announce_bytes_at_end(context.tx, session.id)?;
        Ok(Budget {
            left: ANNOUNCES_LIMIT.saturating_sub(usize::try_from(unseen).unwrap_or(usize::MAX)),
            behind: count,
        })
    }

    /// The text of the next announce.
    fn take(&mut self, note: &AnnounceNote) -> String {
        self.behind = self.behind.saturating_sub(1);
        let text = note.frame_within(self.left.saturating_sub(HEAD * self.behind));
        self.left = self.left.saturating_sub(text.len());
        text
    }
}

/// Once this returns, the announce is in the transcript; returns its entry.
pub fn deliver_one(
    context: &mut Context<'_>,
    session: &Session,
    entry: &Entry,
    budget: &mut Budget,
) -> Result<Vec<Message>, Fault> {
    let run = runs::get(context.tx, entry.run)?;
    let Some(note) = run.as_ref().and_then(AnnounceNote::of) else {
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
    // An announce requested before a reset must not wake the agent.
    let quietly = entry.target_generation != session.generation;
    outbox::mark_delivered(context.tx, entry.seq, seq, quietly, now)?;
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

/// Once this returns, a turn of this session will see the announces; returns the wake run if one
/// was created.
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
    // Delivery without a wake run would be a lost wake-up, so the whole command is rolled back.
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
    // Wake runs inherit the root run of the oldest announce, so that loops reach its limits.
    if let Some(oldest) = oldest
        && let Some(ended) = runs::get(context.tx, oldest.run)?
    {
        row.run.root_run = ended.root_run;
        row.run.trace_id = ended.trace_id;
        row.run.user = ended.user;
    }
    let accepted = accept(context, row, None, false)?;
    Ok(Some(accepted.run))
}

/// Once this returns, the announce is held; the result stays on its run.
pub fn hold(context: &mut Context<'_>, entry: &Entry, why: &str) -> Result<(), Fault> {
    outbox::mark_undelivered(context.tx, entry.seq, why)?;
    if let Some(run) = runs::get(context.tx, entry.run)? {
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

/// Once this returns, these announces of the session's inbox are acknowledged; an unknown id
/// refuses all of them.
pub fn ack(
    context: &mut Context<'_>,
    org: &str,
    key: &SessionKey,
    ids: Vec<AnnounceId>,
) -> Result<Vec<AnnounceId>, Fault> {
    let session =
        sessions::by_key(context.tx, org, key)?.ok_or_else(|| Fault::not_found("session", key))?;
    let mut acked = Vec::with_capacity(ids.len());
    for id in ids {
        let now = context.now.wall;
        let Some((entry, changed)) = outbox::ack(context.tx, session.id, id, now)? else {
            return Err(Fault::not_found("announce", id)
                .hint("nothing was acknowledged; sessions.inbox lists the announces"));
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
    Ok(acked)
}
