//! Announces of ended runs: delivered to their requesters, acknowledged, retried and dismissed; and the
//! wake runs that were created to show them.

use serde_json::json;

use super::context::Context;
use super::moves::{load, look_at_settling, move_run};
use super::new_run::{accept, new_run};
use super::{NewRun, cancel, removal, session};
use crate::contract::commit::CommitEffect;
use crate::kernel::delegation::announce::{ANNOUNCES_LIMIT, AnnounceNote};
use crate::kernel::event::{AnnounceAcked, AnnounceDelivered, AnnounceDismissed, AnnounceHeld};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AnnounceId, RunId, SessionId, SessionKey};
use crate::kernel::run::event::RunEvent;
use crate::kernel::run::step::{Step, StepState};
use crate::kernel::run::stop::Initiator;
use crate::kernel::run::{CancelRequest, Run, RunOrigin, RunState};
use crate::kernel::session::message::{Block, Message, MessageKind, NewMessage, Origin, Role};
use crate::kernel::session::{Owner, Session};
use crate::store::tables::outbox::{AT_ONCE, OutboxEntry};
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
        deliver_again(context, target, waiting.len());
        return Ok(());
    };
    let live = runs::live_in(context.tx, target)?;
    if session.owner == Owner::Agent
        && (is_in_turn(context, &live)? || session::is_clearing(context, target)?)
    {
        // The end of that turn, or of the scheduled reset or deletion, triggers another delivery.
        return Ok(());
    }
    // Announces requested before a reset are delivered but wake no agent.
    let wakes = |entry: &OutboxEntry| {
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
        deliver_again(context, target, waiting.len());
        return Ok(());
    }
    let mut budget = Budget::of(context, &session, waiting.len())?;
    for entry in &waiting {
        deliver_one(context, &session, entry, &mut budget)?;
    }
    deliver_again(context, target, waiting.len());
    if waiting.iter().any(wakes) {
        wake_up(context, &session, &live, waiting.first(), wake)?;
    }
    for entry in &waiting {
        removal::clean_up_after(context, entry.run)?;
    }
    Ok(())
}

/// Schedules another delivery if there may be more announces than one delivery takes.
fn deliver_again(context: &mut Context<'_>, target: SessionId, taken: usize) {
    if taken == AT_ONCE as usize {
        context.effect(crate::contract::commit::CommitEffect::Deliverable(target));
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
    entry: &OutboxEntry,
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
        &session.org,
        entry.run,
        session.id,
        AnnounceDelivered {
            announce_id: entry.announce,
            run_id: entry.run,
            seq,
            via: None,
        },
    );
    Ok(appended)
}

/// Once this returns, a turn of this session will see the announces; returns the wake run if one
/// was created.
pub fn wake_up(
    context: &mut Context<'_>,
    session: &Session,
    live: &[Run],
    oldest: Option<&OutboxEntry>,
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
pub fn hold(context: &mut Context<'_>, entry: &OutboxEntry, why: &str) -> Result<(), Fault> {
    outbox::mark_undelivered(context.tx, entry.seq, why)?;
    if let Some(run) = runs::get(context.tx, entry.run)? {
        if let Some(requester) = run.requester.filter(|by| by.session == entry.target) {
            context.knows_key(entry.target, &requester.key);
        }
        context.emit_announce(
            &run.org,
            run.id,
            entry.target,
            AnnounceHeld {
                announce_id: entry.announce,
                reason: why.to_owned().into(),
            },
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
                org,
                entry.run,
                session.id,
                AnnounceAcked {
                    announce_id: id,
                    run_id: entry.run,
                },
            );
        }
        removal::clean_up_after(context, entry.run)?;
        acked.push(id);
    }
    Ok(acked)
}

/// Once this returns, a delivered announce will be shown to its session's agent again, in a wake
/// run and without a second message; a held one is pending again.
pub fn retry_announce(
    context: &mut Context<'_>,
    org: &str,
    id: RunId,
    wake: Option<Box<NewRun>>,
) -> Result<Option<RunId>, Fault> {
    let (_, entry) = find_announce(context, org, id)?;
    let target = sessions::by_id(context.tx, entry.target)?;
    match (entry.state.as_str(), target) {
        ("dismissed", _) => Err(refused(
            id,
            "it was dismissed",
            "read its result with runs.get",
        )),
        (_, None) => Err(refused(
            id,
            "the session that requested it was deleted",
            "read its result with runs.get; remove it from the list with runs.dismiss_announce",
        )),
        ("delivered", Some(_)) if entry.via.is_some() => Err(refused(
            id,
            "its requester got it as the result of a tool call",
            "nothing is missing",
        )),
        ("delivered", Some(target)) if target.owner == Owner::Client => Err(refused(
            id,
            "it is in the inbox of a client, where no agent can be woken",
            "read it there: sessions.inbox",
        )),
        ("delivered", Some(target)) => {
            cancel::lift_hold(context, &target, Initiator::Person)?;
            let live = runs::live_in(context.tx, target.id)?;
            let made = wake_up(context, &target, &live, Some(&entry), wake)?;
            Ok(made)
        }
        (_, Some(target)) => {
            outbox::make_pending(context.tx, entry.seq)?;
            context.effect(CommitEffect::Deliverable(target.id));
            Ok(None)
        }
    }
}

/// Once this returns, the announce will not be delivered; the result stays on the run.
pub fn dismiss_announce(context: &mut Context<'_>, org: &str, id: RunId) -> Result<(), Fault> {
    let (run, entry) = find_announce(context, org, id)?;
    match entry.state.as_str() {
        "dismissed" => Ok(()),
        "delivered" => Err(refused(
            id,
            "it is already delivered",
            "an inbox is cleared with sessions.ack",
        )),
        _ => {
            outbox::dismiss(context.tx, entry.seq)?;
            if let Some(by) = &run.requester
                && by.session == entry.target
            {
                context.knows_key(entry.target, &by.key);
            }
            context.emit_announce(
                &run.org,
                run.id,
                entry.target,
                AnnounceDismissed {
                    announce_id: entry.announce,
                },
            );
            // A settling run no longer waits for it.
            look_at_settling(context, entry.target)?;
            removal::clean_up_after_run(context, &run)?;
            Ok(())
        }
    }
}

fn find_announce(
    context: &mut Context<'_>,
    org: &str,
    id: RunId,
) -> Result<(Run, OutboxEntry), Fault> {
    let run = load(context, id)?;
    if run.org != org {
        return Err(Fault::not_found("run", id));
    }
    match outbox::of_run(context.tx, id)? {
        Some(entry) => Ok((run, entry)),
        None if run.owes_announce() => {
            Err(refused(id, "it has not ended", "wait for it: agent.wait"))
        }
        None => Err(refused(
            id,
            "its end is not announced",
            "its result: runs.get",
        )),
    }
}

fn refused(id: RunId, why: &str, hint: &str) -> Fault {
    Fault::new(
        Kind::Conflict,
        format!("the announce of run {id} was not changed: {why}"),
    )
    .hint(hint)
}

/// The actor of the cancel of a wake run that another turn has made unnecessary.
const SUPERSEDED: &str = "superseded";

/// Once this returns, a queued wake run of the session has ended without a model call if `step`, a
/// successful answer of `run`, has seen every announce that must wake its agent.
pub fn supersede_wake_run(context: &mut Context<'_>, run: &Run, step: &Step) -> Result<(), Fault> {
    let Some(seen) = step.seen_up_to else {
        return Ok(());
    };
    // A called run does not see announces.
    if step.state != StepState::Done || run.is_called() {
        return Ok(());
    }
    let waiting = runs::waiting_wake(context.tx, run.session)?;
    let Some(wake) = waiting.filter(|wake| wake.cancel.is_none()) else {
        return Ok(());
    };
    if messages::count_announces_after(context.tx, run.session, seen)? > 0 {
        return Ok(());
    }
    let request = CancelRequest {
        by: SUPERSEDED.to_owned(),
        at: context.now.wall,
        reason: Some(format!("run {} has already seen the announces", run.id)),
        inherited: false,
        by_person: false,
    };
    move_run(context, &wake, RunEvent::CancelRequested(request)).map(drop)
}
