//! Deletes sessions. The row and its key are freed immediately; transcript and journals are purged in
//! bounded parts.

use std::collections::HashSet;

use super::announces::{GONE, hold};
use super::context::Context;
use super::{Clearance, cancel, session};
use crate::contract::commit::CommitEffect;
use crate::kernel::event::SessionDeleted;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, SessionId, SessionKey};
use crate::kernel::run::{CancelRequest, Run};
use crate::kernel::session::{Cleanup, Owner, Session, SessionMode};
use crate::store::tables::clearings::Clearing;
use crate::store::tables::{
    approvals, bundles, clearings, messages, outbox, outputs, purges, questions, remembered, runs,
    session_servers, sessions, steers, steps, stops,
};

/// Maximum number of sessions deleted in one command; the rest of a larger tree follows.
const TREE_AT_ONCE: usize = 200;
/// Approximate number of rows deleted in one command.
const ROWS_AT_ONCE: u32 = 500;
/// Number of journals processed in one command.
const RUNS_AT_ONCE: u32 = 50;
/// Number of announces held per query.
const HOLD_AT_ONCE: u32 = 100;
/// Maximum number of open runs named in a refusal.
const NAMED: usize = 20;

/// A request to delete a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteSession {
    /// The tenant.
    pub org: String,
    /// Key of the session.
    pub key: SessionKey,
    /// True to cancel the open runs of the session and its descendants first; otherwise they are a
    /// `conflict`.
    pub force: bool,
    /// The actor, recorded on cancelled runs.
    pub by: String,
    /// True if a user, or a client acting for one, deletes; false if an agent does.
    pub by_person: bool,
}

/// Once this returns, the session and its descendants are deleted. Open runs are a `conflict`; with
/// `force` they are marked to end and returned, and the end of the last one deletes the session.
pub fn delete_session(
    context: &mut Context<'_>,
    delete: DeleteSession,
) -> Result<Clearance<()>, Fault> {
    let session = sessions::by_key(context.tx, &delete.org, &delete.key)?
        .ok_or_else(|| Fault::not_found("session", &delete.key))?;
    let open = super::cancel::open_from_session(context, &session)?;
    if !delete.force && !open.is_empty() {
        return Err(still_open("deleted", &session, &open));
    }
    let request = CancelRequest {
        by: delete.by,
        at: context.now.wall,
        reason: Some("the session is deleted".to_owned()),
        inherited: false,
        by_person: delete.by_person,
    };
    let stopping = cancel::cancel_open_runs(context, &session, &request)?.stopping;
    if !stopping.is_empty() {
        session::schedule_clearing(context, &session, Clearing::Delete)?;
        return Ok(Clearance::Stopping(stopping));
    }
    // The end of its runs may have deleted it (`cleanup: delete`).
    if sessions::by_id(context.tx, session.id)?.is_some() {
        remove_tree(context, &session)?;
    }
    Ok(Clearance::Done(()))
}

/// The refusal for a session with open runs.
pub fn still_open(what: &str, session: &Session, open: &[Run]) -> Fault {
    let ids: Vec<String> = open
        .iter()
        .take(NAMED)
        .map(|run| run.id.to_string())
        .collect();
    Fault::new(
        Kind::Conflict,
        format!(
            "session {} and its descendants have {} open runs; it was not {what}",
            session.key,
            open.len()
        ),
    )
    .hint("wait for them, or cancel them as well (force)")
    .with("openRuns", open.len())
    .with("runIds", ids)
}

/// Once this returns, the session and its descendants are deleted. The caller ensures that none of
/// them has open work.
pub fn remove_tree(context: &mut Context<'_>, top: &Session) -> Result<(), Fault> {
    let tree = tree_of(context, top, TREE_AT_ONCE)?;
    // Children first, so that no row names a missing parent. The rest of a larger tree follows when
    // its parents are purged.
    for session in tree.iter().rev() {
        remove_session(context, session)?;
    }
    Ok(())
}

/// The session and its descendants, parents first, up to `most`.
pub fn tree_of(
    context: &mut Context<'_>,
    top: &Session,
    most: usize,
) -> Result<Vec<Session>, Fault> {
    let mut tree = vec![top.clone()];
    let mut next = 0;
    while tree.len() < most
        && let Some(session) = tree.get(next)
    {
        let left = most - tree.len();
        let children = sessions::children(context.tx, session.id, left as u32)?;
        tree.extend(children);
        next += 1;
    }
    Ok(tree)
}

/// Once this returns, the session is deleted, its key is free, and its undelivered announces are
/// held.
fn remove_session(context: &mut Context<'_>, session: &Session) -> Result<(), Fault> {
    loop {
        let mut entries = outbox::pending_for(context.tx, session.id, HOLD_AT_ONCE)?;
        if session.owner == Owner::Client {
            // Unacknowledged announces would be lost with the inbox.
            let unacked = outbox::unacked(context.tx, session.id, HOLD_AT_ONCE);
            entries.extend(unacked?);
        }
        if entries.is_empty() {
            break;
        }
        for entry in &entries {
            hold(context, entry, GONE)?;
        }
    }
    context.emit_session(
        session,
        SessionDeleted {
            key: session.key.clone(),
            agent: session.agent.clone(),
            parent: session.parent_key.clone(),
        },
    );
    sessions::remove(context.tx, session.id)?;
    bundles::remove(context.tx, session.id)?;
    remembered::remove(context.tx, session.id)?;
    session_servers::remove(context.tx, session.id)?;
    let now = context.now.wall;
    purges::insert(context.tx, session.id, now)?;
    clearings::remove(context.tx, session.id)?;
    stops::remove(context.tx, session.id)?;
    context.effect(CommitEffect::Purge(session.id));
    Ok(())
}

/// Once this returns, a bounded part of a deleted session is purged; an effect follows if there is
/// more.
pub fn purge(context: &mut Context<'_>, id: SessionId) -> Result<(), Fault> {
    let Some(mut run_seq) = purges::run_seq(context.tx, id)? else {
        return Ok(());
    };
    let children = sessions::children(context.tx, id, RUNS_AT_ONCE)?;
    if !children.is_empty() {
        return purge_children(context, id, &children);
    }
    let gone = messages::remove_some(context.tx, id, ROWS_AT_ONCE)?;
    if gone == u64::from(ROWS_AT_ONCE) {
        context.effect(CommitEffect::Purge(id));
        return Ok(());
    }
    let mut left = u64::from(ROWS_AT_ONCE);
    let batch = runs::ids_in(context.tx, id, run_seq, RUNS_AT_ONCE)?;
    let is_last = batch.len() < RUNS_AT_ONCE as usize;
    for (seq, run) in batch {
        let gone = outputs::remove_some(context.tx, run, ROWS_AT_ONCE)?
            + steps::remove_some(context.tx, run, ROWS_AT_ONCE)?;
        if gone >= u64::from(ROWS_AT_ONCE) {
            left = 0;
            break;
        }
        steers::remove(context.tx, run)?;
        questions::remove(context.tx, run)?;
        approvals::remove(context.tx, run)?;
        run_seq = seq;
        left = left.saturating_sub(gone);
        if left == 0 {
            break;
        }
    }
    if is_last && left > 0 {
        purges::remove(context.tx, id)?;
    } else {
        purges::advance(context.tx, id, run_seq)?;
        context.effect(CommitEffect::Purge(id));
    }
    Ok(())
}

/// Deletes the rest of a tree that was too large for one command, and cancels work that began in it
/// meanwhile.
fn purge_children(
    context: &mut Context<'_>,
    id: SessionId,
    children: &[Session],
) -> Result<(), Fault> {
    let mut removed = false;
    for child in children {
        let request = CancelRequest {
            by: "session_deleted".to_owned(),
            at: context.now.wall,
            reason: None,
            inherited: true,
            by_person: false,
        };
        if cancel::cancel_open_runs(context, child, &request)?
            .stopping
            .is_empty()
        {
            remove_session(context, child)?;
            removed = true;
        }
    }
    // If only executors have to stop, the next sweep tries again.
    if removed {
        context.effect(CommitEffect::Purge(id));
    }
    Ok(())
}

/// Maximum number of sessions in a tree that is checked; a larger one is only deleted explicitly.
const MOST: usize = 1000;

/// Cleans up after the announce of this run was delivered, acknowledged or dismissed.
pub fn clean_up_after(context: &mut Context<'_>, run: RunId) -> Result<(), Fault> {
    match runs::line(context.tx, run)? {
        Some(line) => clean_up_session(context, line.session),
        None => Ok(()),
    }
}

/// Cleans up after the end of a run without an announce.
pub fn clean_up_after_run(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    clean_up_session(context, run.session)
}

/// Deletes the topmost session, from this one upwards, that is due for deletion and has no open
/// work.
fn clean_up_session(context: &mut Context<'_>, session: SessionId) -> Result<(), Fault> {
    let mut topmost = None;
    let mut at = Some(session);
    while let Some(id) = at {
        let Some(session) = sessions::by_id(context.tx, id)? else {
            break;
        };
        at = session.parent;
        let is_to_go = session.cleanup == Cleanup::Delete && session.mode == SessionMode::Run;
        if is_to_go && is_over(context, &session)? {
            topmost = Some(session);
        }
    }
    match topmost {
        Some(session) => remove_tree(context, &session),
        None => Ok(()),
    }
}

/// True if every run in the tree of `top` has ended and every announce of theirs is delivered.
fn is_over(context: &mut Context<'_>, top: &Session) -> Result<bool, Fault> {
    let tx = &mut *context.tx;
    let mut tree = vec![top.id];
    let mut next = 0;
    while let Some(id) = tree.get(next).copied() {
        next += 1;
        if tree.len() > MOST || runs::has_live_in(tx, id)? {
            return Ok(false);
        }
        let children = sessions::children(tx, id, MOST as u32)?;
        tree.extend(children.iter().map(|child| child.id));
    }
    let inside: HashSet<SessionId> = tree.iter().copied().collect();
    for id in tree {
        for entry in outbox::outstanding_of(tx, id)? {
            if entry.state != "delivered" {
                return Ok(false);
            }
            // Only a client acknowledges an inbox, and one inside the tree is deleted along with
            // it.
            if !inside.contains(&entry.target)
                && let Some(target) = sessions::by_id(tx, entry.target)?
                && target.owner == Owner::Client
            {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
