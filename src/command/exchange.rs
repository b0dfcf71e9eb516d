//! The follow-up of an answer to another session: the next turn of the exchange, or its end, which
//! is announced once to the session that began it.

use super::context::Context;
use super::moves::load;
use super::new_run::{accept, new_run};
use super::{NewRun, cancel, session};
use crate::contract::commit::CommitEffect;
use crate::kernel::event::AnnounceQueued;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{AnnounceId, RunId};
use crate::kernel::run::limits::check_queued_turns;
use crate::kernel::run::{AnnouncePolicy, Lane, Outcome, Run, RunOrigin, RunState};
use crate::kernel::session::{Owner, Session, send};
use crate::store::tables::sends::{Send, State};
use crate::store::tables::{outbox, runs, sends, sessions};

/// Handles the end of a turn in an exchange. With `told`, a step got the reply as its outcome and
/// nothing follows; otherwise the follow-up is due, in a command of its own.
pub fn run_ended(context: &mut Context<'_>, run: &Run, told: bool) -> Result<(), Fault> {
    if run.origin != RunOrigin::Send {
        return Ok(());
    }
    let Some(send) = sends::get(context.tx, run.id)? else {
        return Ok(());
    };
    // A reply before the deadline is the answer of the call that waits for it.
    if told || send.asker.is_none() || send.window_until.is_some() {
        return sends::set_state(context.tx, run.id, State::Done).map_err(Fault::from);
    }
    sends::set_state(context.tx, run.id, State::Due)?;
    context.effect(CommitEffect::Exchange(run.id));
    Ok(())
}

/// Once this returns, the follow-up of the turn is stored: the next turn of the exchange, or the
/// outbox row that announces its end. `next` is the run of the next turn; without one the exchange
/// ends.
pub fn exchange(
    context: &mut Context<'_>,
    id: RunId,
    next: Option<Box<NewRun>>,
) -> Result<(), Fault> {
    let due = sends::get(context.tx, id)?.filter(|send| send.state == State::Due);
    let Some(send) = due else {
        return Ok(());
    };
    let run = load(context, id)?;
    match (goes_on_in(context, &send, &run)?, next) {
        (Some(session), Some(next)) if next.agent.id == session.agent => {
            reply(context, &send, &run, &session, *next)?;
        }
        _ => end(context, &send)?,
    }
    sends::set_state(context.tx, id, State::Done)?;
    Ok(())
}

/// The session of the next turn; `None` if the exchange is over.
fn goes_on_in(context: &mut Context<'_>, send: &Send, run: &Run) -> Result<Option<Session>, Fault> {
    if send.turn >= context.settings.max_ping_pong || send::reply(run).is_none() {
        return Ok(None);
    }
    let Some((asker, generation)) = send.asker else {
        return Ok(None);
    };
    let Some(asker) = sessions::by_id(context.tx, asker)? else {
        return Ok(None);
    };
    if asker.owner == Owner::Client
        || asker.generation != generation
        || asking_run_was_cancelled(context, send.first)?
    {
        return Ok(None);
    }
    let asker_id = asker.id;
    let session = if send.turn.is_multiple_of(2) {
        asker
    } else {
        let first = load(context, send.first)?;
        match sessions::by_id(context.tx, first.session)? {
            Some(session) if session.generation == first.generation => session,
            _ => return Ok(None),
        }
    };
    // An agent must not restart cancelled work, on either side.
    if session::is_clearing(context, session.id)?
        || cancel::is_held(context, session.id)?
        || cancel::is_held(context, asker_id)?
    {
        return Ok(None);
    }
    let queued = runs::count_waiting_turns(context.tx, session.id)?;
    let room = check_queued_turns(&context.settings.limits, queued).is_ok();
    Ok(room.then_some(session))
}

fn asking_run_was_cancelled(context: &mut Context<'_>, first: RunId) -> Result<bool, Fault> {
    let Some(asking) = load(context, first)?.parent_run else {
        return Ok(false);
    };
    let asking = runs::get(context.tx, asking)?;
    Ok(asking.is_some_and(|run| run.state == RunState::Ended(Outcome::Cancelled)))
}

/// Queues the run's answer as a message in the other session, as the next turn of the exchange.
fn reply(
    context: &mut Context<'_>,
    send: &Send,
    run: &Run,
    session: &Session,
    next: NewRun,
) -> Result<(), Fault> {
    let text = run.result.clone().unwrap_or_default();
    let mut row = new_run(context, &run.org, next, session, RunOrigin::Send);
    row.run.lane = Lane::Nested;
    row.run.parent_run = Some(run.id);
    row.run.root_run = run.root_run;
    row.run.trace_id.clone_from(&run.trace_id);
    row.run.user.clone_from(&run.user);
    let next = Send {
        run: row.run.id,
        first: send.first,
        turn: send.turn + 1,
        from: Some((run.session, run.session_key.clone())),
        asker: send.asker,
        chain: send.chain.clone(),
        window_until: None,
        state: State::Open,
    };
    accept(context, row, Some(&text), false)?;
    sends::insert(context.tx, &next).map_err(Fault::from)
}

/// Announces the exchange to the session that began it, with the last non-empty answer.
fn end(context: &mut Context<'_>, send: &Send) -> Result<(), Fault> {
    let Some(asker) = send.asker else {
        return Ok(());
    };
    let mut told = load(context, send.first)?;
    for answer in sends::answers(context.tx, send.first)? {
        let run = load(context, answer)?;
        if send::reply(&run).is_some() {
            told = run;
            break;
        }
    }
    let owner = sessions::by_id(context.tx, asker.0)?.map(|session| session.owner);
    let quiet = owner == Some(Owner::Client) || asking_run_was_cancelled(context, send.first)?;
    let policy = if quiet {
        AnnouncePolicy::Inbox
    } else {
        AnnouncePolicy::Wake
    };
    let policy = cancel::announce_policy(context, asker.0, policy)?;
    let seq = context.take_seq()?;
    let now = context.now.wall;
    outbox::insert_for(context.tx, seq, &told, asker, policy, now)?;
    context.emit_announce(
        &told.org,
        told.id,
        asker.0,
        AnnounceQueued {
            announce_id: AnnounceId::of(told.id),
            policy: policy.as_str().into(),
        },
    );
    context.effect(CommitEffect::Deliverable(asker.0));
    Ok(())
}
