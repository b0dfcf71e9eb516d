//! Deletes sessions with `cleanup: delete` as soon as every announce of theirs is delivered. Called
//! at the end of runs and announces.

use std::collections::HashSet;

use super::context::Context;
use super::remove::remove_tree;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::run::Run;
use crate::kernel::session::{Cleanup, Owner, Session, SessionMode};
use crate::store::tables::{outbox, runs, sessions};

/// Maximum number of sessions in a tree that is checked; a larger one is only deleted explicitly.
const MOST: usize = 1000;

/// Cleans up after the announce of this run was delivered, acknowledged or dismissed.
pub fn after(context: &mut Context<'_>, run: RunId) -> Result<(), Fault> {
    match runs::line(context.tx, run)? {
        Some(line) => after_in(context, line.session),
        None => Ok(()),
    }
}

/// Cleans up after the end of a run without an announce.
pub fn after_run(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    after_in(context, run.session)
}

/// Deletes the topmost session, from this one upwards, that is due for deletion and has no open
/// work.
fn after_in(context: &mut Context<'_>, session: SessionId) -> Result<(), Fault> {
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
