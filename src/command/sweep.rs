//! Retention in bounded parts: each command processes a few rows from where the last one stopped,
//! so that its cost does not grow with the history.

use super::context::Context;
use super::removal::remove_tree;
use super::webhooks;
use crate::kernel::event::SessionUpdated;
use crate::kernel::fault::Fault;
use crate::kernel::ids::SessionId;
use crate::kernel::run::Pins;
use crate::kernel::session::{Owner, Session, SessionMode};
use crate::kernel::time::Timestamp;
use crate::store::tables::runs::Age;
use crate::store::tables::{
    approvals, blobs, dead_letters, environment, events, expired, idempotency, outbox, outputs,
    questions, runs, sends, sessions, skills, steers, steps, webhooks as hooks,
};
use crate::store::tx::{DbError, Tx};

/// Maximum number of sessions or runs processed in one command.
const ROWS: u32 = 100;
/// Maximum number of events, steps or ids deleted in one command.
const PARTS: u32 = 1000;
/// Maximum number of old runs checked for references to an unused body.
const OLD_RUNS: u32 = 2000;

/// A retention command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Archives one-task sessions.
    Archive {
        /// Sessions whose last run ended before this time.
        before: Timestamp,
        /// The tenant.
        org: String,
        /// Sessions after this position.
        after: i64,
    },
    /// Removes ended runs.
    Runs {
        /// Runs that ended before this time.
        before: Timestamp,
        /// Except runs whose idempotency key was first used after this time.
        keys_before: Timestamp,
        /// Runs after this position.
        after: i64,
    },
    /// Removes events.
    Events {
        /// Events before this time.
        before: Timestamp,
    },
    /// Removes old dead letters, and webhooks whose tables were removed from the settings.
    Webhooks {
        /// Dead letters from before this time.
        dead_before: Timestamp,
        /// Webhooks whose tables were removed before this time.
        removed_before: Timestamp,
    },
    /// Removes bodies that no run pins, and ids of removed runs.
    Leftovers {
        /// Bodies last used before this time.
        before: Timestamp,
        /// Ids of runs removed before this time.
        ids_before: Timestamp,
    },
}

/// Progress of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// The position to continue from; `None` if nothing more is old enough.
    pub next: Option<i64>,
}

impl Swept {
    fn more_if(more: bool) -> Self {
        Swept {
            next: more.then_some(0),
        }
    }
}

/// Once this returns, a bounded part of what is old enough is archived or removed.
pub fn sweep(context: &mut Context<'_>, sweep: &Sweep) -> Result<Swept, Fault> {
    let swept = match sweep {
        Sweep::Archive { before, org, after } => archive(context, *before, org, *after)?,
        Sweep::Runs {
            before,
            keys_before,
            after,
        } => retire(context, *before, *keys_before, *after)?,
        Sweep::Events { before } => {
            let Some(end) = events::end_of_old(context.tx, *before, PARTS)? else {
                return Ok(Swept::default());
            };
            webhooks::count_missed(context.tx, end)?;
            let gone = events::remove_to(context.tx, end)?;
            Swept::more_if(gone == u64::from(PARTS))
        }
        Sweep::Webhooks {
            dead_before,
            removed_before,
        } => {
            dead_letters::forget(context.tx, *dead_before)?;
            for name in hooks::removed_before(context.tx, *removed_before)? {
                hooks::delete(context.tx, &name)?;
            }
            Swept::default()
        }
        Sweep::Leftovers { before, ids_before } => leftovers(context, *before, *ids_before)?,
    };
    Ok(swept)
}

/// True if a sweep may find something. It reads only the oldest rows, so that an idle daemon writes
/// nothing.
pub fn is_due(tx: &mut dyn Tx, sweep: &Sweep) -> Result<bool, DbError> {
    Ok(match sweep {
        Sweep::Archive { before, org, after } => sessions::unarchived(tx, org, *after, 1)?
            .first()
            .is_some_and(|(_, session)| session.created_at <= *before),
        Sweep::Runs { before, after, .. } => runs::ages(tx, *after, 1)?
            .first()
            .is_some_and(|run| run.created_at <= *before),
        Sweep::Events { before } => events::oldest(tx)?.is_some_and(|at| at <= *before),
        Sweep::Webhooks {
            dead_before,
            removed_before,
        } => {
            dead_letters::exist_before(tx, *dead_before)?
                || !hooks::removed_before(tx, *removed_before)?.is_empty()
        }
        Sweep::Leftovers { before, ids_before } => {
            !blobs::unused_since(tx, *before, 1)?.is_empty()
                || expired::oldest(tx)?.is_some_and(|at| at <= *ids_before)
        }
    })
}

/// Archives one-task sessions whose last run ended before this time and whose announces are all
/// delivered.
fn archive(
    context: &mut Context<'_>,
    before: Timestamp,
    org: &str,
    after: i64,
) -> Result<Swept, Fault> {
    let page = sessions::unarchived(context.tx, org, after, ROWS)?;
    let is_full = page.len() == ROWS as usize;
    let last = page.last().map_or(after, |(seq, _)| *seq);
    for (_, session) in page {
        if session.created_at > before {
            // The following sessions are newer.
            return Ok(Swept::default());
        }
        if session.mode == SessionMode::Run && may_rest(context, &session, before)? {
            let now = context.now.wall;
            sessions::archive(context.tx, session.id, now)?;
            context.emit_session(&session, SessionUpdated::archived(true));
            remove_empty(context, session.id)?;
        }
    }
    Ok(Swept {
        next: is_full.then_some(last),
    })
}

fn may_rest(
    context: &mut Context<'_>,
    session: &Session,
    before: Timestamp,
) -> Result<bool, Fault> {
    let tx = &mut *context.tx;
    // If retention removed its runs before it was archived, its own last change counts.
    let ended = runs::last_end_in(tx, session.id)?;
    if ended.unwrap_or(session.updated_at) > before || runs::has_live_in(tx, session.id)? {
        return Ok(false);
    }
    let untold = outbox::outstanding_of(tx, session.id)?;
    Ok(untold.iter().all(|entry| entry.state == "delivered"))
}

/// Removes runs that ended before this time, with their journals, and archived sessions without
/// runs. Results that are not delivered or acknowledged are kept, and so are runs with a newer
/// idempotency key.
fn retire(
    context: &mut Context<'_>,
    before: Timestamp,
    keys_before: Timestamp,
    after: i64,
) -> Result<Swept, Fault> {
    let page = runs::ages(context.tx, after, ROWS)?;
    let is_full = page.len() == ROWS as usize;
    let last = page.last().map_or(after, |run| run.seq);
    let mut left = u64::from(PARTS);
    for run in page {
        if run.created_at > before {
            return Ok(Swept::default());
        }
        let is_old = run.ended_at.is_some_and(|ended| ended <= before);
        if !is_old || !may_go(context, &run, keys_before)? {
            continue;
        }
        let gone = outputs::remove_some(context.tx, run.id, PARTS)?
            + steps::remove_some(context.tx, run.id, PARTS)?;
        left = left.saturating_sub(gone);
        if left == 0 {
            // The run is processed again immediately, with fewer steps left.
            return Ok(Swept {
                next: Some(run.seq - 1),
            });
        }
        remove(context, &run)?;
    }
    Ok(Swept {
        next: is_full.then_some(last),
    })
}

fn may_go(context: &mut Context<'_>, run: &Age, keys_before: Timestamp) -> Result<bool, Fault> {
    let tx = &mut *context.tx;
    let used = idempotency::used_at(tx, run.id)?;
    if used.is_some_and(|used| used > keys_before) {
        return Ok(false);
    }
    let Some(entry) = outbox::of_run(tx, run.id)? else {
        return Ok(true);
    };
    Ok(match entry.state.as_str() {
        "dismissed" => true,
        "delivered" => {
            let waits_in_inbox = entry.acked_at.is_none() && entry.is_inbox();
            !waits_in_inbox
                || sessions::by_id(tx, entry.target)?
                    .is_none_or(|target| target.owner != Owner::Client)
        }
        _ => false,
    })
}

fn remove(context: &mut Context<'_>, run: &Age) -> Result<(), Fault> {
    let now = context.now.wall;
    let tx = &mut *context.tx;
    steers::remove(tx, run.id)?;
    questions::remove(tx, run.id)?;
    approvals::remove(tx, run.id)?;
    sends::remove(tx, run.id)?;
    outbox::remove(tx, run.id)?;
    idempotency::remove(tx, run.id)?;
    environment::remove(tx, run.id)?;
    runs::remove(tx, run.id)?;
    expired::insert(tx, run.id, &run.org, now)?;
    remove_empty(context, run.session)
}

/// Deletes an archived session without runs and children, and then its ancestors of which the same
/// is true.
fn remove_empty(context: &mut Context<'_>, session: SessionId) -> Result<(), Fault> {
    let mut at = Some(session);
    while let Some(id) = at {
        let tx = &mut *context.tx;
        let Some(session) = sessions::by_id(tx, id)? else {
            break;
        };
        let runs = runs::ids_in(tx, id, 0, 1)?;
        let children = sessions::children(tx, id, 1)?;
        if session.archived_at.is_none() || !runs.is_empty() || !children.is_empty() {
            break;
        }
        at = session.parent;
        remove_tree(context, &session)?;
    }
    Ok(())
}

/// Deletes ids of removed runs, and bodies that no run pins any more.
fn leftovers(
    context: &mut Context<'_>,
    before: Timestamp,
    ids_before: Timestamp,
) -> Result<Swept, Fault> {
    let gone = expired::forget_some(context.tx, ids_before, PARTS)?;
    let unused = blobs::unused_since(context.tx, before, ROWS)?;
    if !unused.is_empty() {
        // Runs older than the last use of these bodies; all but a few are removed by now.
        let oldest = runs::ages(context.tx, 0, OLD_RUNS)?;
        for (hash, used_at) in unused {
            let could_name = |run: &&Age| run.created_at <= used_at.plus_ms(blobs::USED_WITHIN_MS);
            let named = oldest
                .iter()
                .take_while(could_name)
                .any(|run| names(&run.pins, &hash));
            let all_seen =
                oldest.len() < OLD_RUNS as usize || oldest.iter().any(|run| !could_name(&run));
            if !named && all_seen {
                blobs::remove(context.tx, &hash)?;
                skills::forget(context.tx, &hash)?;
            } else {
                // It is looked at again after another retention period: otherwise bodies that old
                // runs keep would hide the unused ones behind them, and each sweep would find work.
                blobs::use_again(context.tx, &hash, context.now.wall)?;
            }
        }
    }
    Ok(Swept::more_if(gone == u64::from(PARTS)))
}

fn names(pins: &Pins, hash: &str) -> bool {
    let skills = pins.skills.as_ref();
    pins.agent == hash || pins.tools == hash || skills.is_some_and(|skills| skills.hash == hash)
}
