//! Decisions of an operator or client about an announce: retry or dismiss it.

use serde_json::json;

use super::context::Context;
use super::deliver::wake_up;
use super::moves::{load, look_at_settling};
use super::{NewRun, cleanup, stop};
use crate::contract::commit::Effect;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::RunId;
use crate::kernel::run::Run;
use crate::kernel::run::action::EventKind;
use crate::kernel::run::stop::Initiator;
use crate::kernel::session::Owner;
use crate::store::tables::outbox::Entry;
use crate::store::tables::{outbox, runs, sessions};

/// Once this returns, a delivered announce will be shown to its session's agent again, in a wake
/// run and without a second message; a held one is pending again.
pub fn retry(
    context: &mut Context<'_>,
    org: &str,
    id: RunId,
    wake: Option<Box<NewRun>>,
) -> Result<Option<RunId>, Fault> {
    let (_, entry) = find(context, org, id)?;
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
            stop::begin(context, &target, Initiator::Person)?;
            let live = runs::live_in(context.tx, target.id)?;
            let made = wake_up(context, &target, &live, Some(&entry), wake)?;
            Ok(made)
        }
        (_, Some(target)) => {
            outbox::make_pending(context.tx, entry.seq)?;
            context.effect(Effect::Deliverable(target.id));
            Ok(None)
        }
    }
}

/// Once this returns, the announce will not be delivered; the result stays on the run.
pub fn dismiss(context: &mut Context<'_>, org: &str, id: RunId) -> Result<(), Fault> {
    let (run, entry) = find(context, org, id)?;
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
                EventKind::AnnounceDismissed,
                &run.org,
                run.id,
                entry.target,
                json!({ "announceId": entry.announce }),
            );
            // A settling run no longer waits for it.
            look_at_settling(context, entry.target)?;
            cleanup::after_run(context, &run)?;
            Ok(())
        }
    }
}

fn find(context: &mut Context<'_>, org: &str, id: RunId) -> Result<(Run, Entry), Fault> {
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
