//! What a cancel leaves in force in sessions, and what begins work there again. Called by the
//! commands that cancel, announce and make runs.

use super::context::Context;
use super::subtree::Below;
use crate::kernel::fault::Fault;
use crate::kernel::ids::SessionId;
use crate::kernel::run::AnnouncePolicy;
use crate::kernel::session::Session;
use crate::kernel::stop::{self, Beginner};
use crate::store::{db_fault, messages, outbox, runs, sessions, stops};

/// The cancel is in force in the session, unless other work is open there: what no turn has seen
/// of ends is in the inbox, and so is what arrives later. Whether it is.
pub fn stop(context: &mut Context<'_>, session: SessionId, by_person: bool) -> Result<bool, Fault> {
    // Nothing runs in a client's session, and the end of its runs may have taken one away.
    let answers = sessions::has_agent(context.tx, session).map_err(db_fault)?;
    if !answers {
        return Ok(true);
    }
    if runs::has_uncancelled_in(context.tx, session).map_err(db_fault)? {
        return Ok(false);
    }
    stops::insert(context.tx, session, by_person, context.now.wall).map_err(db_fault)?;
    let seen = messages::seen_at_end(context.tx, session).map_err(db_fault)?;
    outbox::set_unseen_inbox(context.tx, session, seen).map_err(db_fault)?;
    Ok(true)
}

/// Ends of what `below` holds that no turn of the session has seen are in the inbox, whatever
/// else goes on there.
pub fn quiet(
    context: &mut Context<'_>,
    session: SessionId,
    below: &mut Below,
) -> Result<(), Fault> {
    let seen = messages::seen_at_end(context.tx, session).map_err(db_fault)?;
    for (seq, ended) in outbox::unseen(context.tx, session, seen).map_err(db_fault)? {
        if below.holds(context.tx, ended).map_err(db_fault)? {
            outbox::set_inbox(context.tx, seq).map_err(db_fault)?;
        }
    }
    Ok(())
}

/// Work begins in the session, and no cancel is in force there any more; or it is refused.
pub fn begin(context: &mut Context<'_>, session: &Session, who: Beginner) -> Result<(), Fault> {
    let stop = stops::of(context.tx, session.id).map_err(db_fault)?;
    stop::may_begin(stop, who, session.key.as_str())?;
    match stop {
        Some(_) => stops::remove(context.tx, session.id).map_err(db_fault),
        None => Ok(()),
    }
}

/// Is a cancel in force in the session?
pub fn is_in_force(context: &mut Context<'_>, session: SessionId) -> Result<bool, Fault> {
    let stop = stops::of(context.tx, session).map_err(db_fault)?;
    Ok(stop.is_some())
}

/// How an end is announced to this session.
pub fn announced(
    context: &mut Context<'_>,
    session: SessionId,
    policy: AnnouncePolicy,
) -> Result<AnnouncePolicy, Fault> {
    let stop = stops::of(context.tx, session).map_err(db_fault)?;
    Ok(stop::announced(stop, policy))
}
