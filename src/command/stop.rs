//! Cancels that stay in force in a session, and how new work lifts them. Called by the commands
//! that cancel, announce and create runs.

use super::context::Context;
use super::subtree::Subtree;
use crate::kernel::fault::Fault;
use crate::kernel::ids::SessionId;
use crate::kernel::run::stop::Initiator;
use crate::kernel::run::{AnnouncePolicy, stop};
use crate::kernel::session::Session;
use crate::store::tables::{messages, outbox, runs, sessions, stops};

/// Once this returns `true`, the cancel is in force in the session: announces that no turn has
/// seen, and later ones, go to the inbox. `false` if other work is open there.
pub fn stop(context: &mut Context<'_>, session: SessionId, by_person: bool) -> Result<bool, Fault> {
    // No agent runs in a client's session, and the session may have been deleted with its runs.
    let answers = sessions::has_agent(context.tx, session)?;
    if !answers {
        return Ok(true);
    }
    if runs::has_uncancelled_in(context.tx, session)? {
        return Ok(false);
    }
    stops::insert(context.tx, session, by_person, context.now.wall)?;
    let seen = messages::seen_at_end(context.tx, session)?;
    outbox::set_unseen_inbox(context.tx, session, seen)?;
    Ok(true)
}

/// Once this returns, unseen announces of runs in `below` are `inbox` announces in this session,
/// regardless of other work there.
pub fn quiet(
    context: &mut Context<'_>,
    session: SessionId,
    below: &mut Subtree,
) -> Result<(), Fault> {
    let seen = messages::seen_at_end(context.tx, session)?;
    for (seq, ended) in outbox::unseen(context.tx, session, seen)? {
        if below.holds(context.tx, ended)? {
            outbox::set_inbox(context.tx, seq)?;
        }
    }
    Ok(())
}

/// Once this returns, no cancel is in force in the session and work may begin; refused if this
/// beginner may not lift it.
pub fn begin(context: &mut Context<'_>, session: &Session, who: Initiator) -> Result<(), Fault> {
    let stop = stops::of(context.tx, session.id)?;
    stop::may_begin(stop, who, session.key.as_str())?;
    match stop {
        Some(_) => stops::remove(context.tx, session.id).map_err(Fault::from),
        None => Ok(()),
    }
}

/// True if a cancel is in force in the session.
pub fn is_in_force(context: &mut Context<'_>, session: SessionId) -> Result<bool, Fault> {
    let stop = stops::of(context.tx, session)?;
    Ok(stop.is_some())
}

/// The effective announce policy for this session.
pub fn announced(
    context: &mut Context<'_>,
    session: SessionId,
    policy: AnnouncePolicy,
) -> Result<AnnouncePolicy, Fault> {
    let stop = stops::of(context.tx, session)?;
    Ok(stop::announced(stop, policy))
}
