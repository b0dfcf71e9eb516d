//! Resets and deletions that were asked for while runs were open: the wish is a row, and the
//! transaction in which the last of these runs ends carries it out. No kill in between leaves
//! runs cancelled and the session as it was, and none does it twice.

use super::change_session::begin_anew;
use super::context::Context;
use super::remove::remove_tree;
use super::subtree::open_from_session;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::SessionId;
use crate::kernel::run::Run;
use crate::kernel::session::Session;
use crate::store::clearings::{self, Clearing};
use crate::store::{db_fault, sessions};

/// Once the runs that are open now have ended, this becomes of the session; until then nothing
/// begins in it.
pub fn ask(context: &mut Context<'_>, session: &Session, what: Clearing) -> Result<(), Fault> {
    clearings::insert(context.tx, session.id, what, context.now.wall).map_err(db_fault)
}

/// Whatever waited for the end of runs and has nothing to wait for any more is carried out.
/// Looked at whenever a run has ended, and at a start: a run may have been lost with its row.
pub fn carry_out(context: &mut Context<'_>) -> Result<(), Fault> {
    for (id, what) in clearings::some(context.tx).map_err(db_fault)? {
        let Some(session) = sessions::by_id(context.tx, id).map_err(db_fault)? else {
            // Its own end has taken it along (`cleanup: delete`), or something above has.
            clearings::remove(context.tx, id).map_err(db_fault)?;
            continue;
        };
        let is_in_the_way = |run: &Run| match what {
            // What clients have asked for on the session's behalf goes on.
            Clearing::Reset => run.session == id || run.cancel.is_some(),
            Clearing::Delete => true,
        };
        if open_from_session(context, &session)?
            .iter()
            .any(is_in_the_way)
        {
            continue;
        }
        clearings::remove(context.tx, id).map_err(db_fault)?;
        match what {
            Clearing::Reset => drop(begin_anew(context, session)?),
            Clearing::Delete => remove_tree(context, &session)?,
        }
    }
    Ok(())
}

/// Is the session to begin anew, or to go, itself or with one above it?
pub fn is_to_come(context: &mut Context<'_>, session: SessionId) -> Result<bool, Fault> {
    Ok(pending(context, session)?.is_some())
}

/// Refuses what would begin in or below a session that is to begin anew or to go.
pub fn refuse(context: &mut Context<'_>, session: SessionId) -> Result<(), Fault> {
    let Some(what) = pending(context, session)? else {
        return Ok(());
    };
    let what = match what {
        Clearing::Reset => "is being reset",
        Clearing::Delete => "is being deleted",
    };
    Err(Fault::new(
        Kind::Busy,
        format!("the session {what}: its open runs are being stopped. Nothing was created"),
    )
    .hint("try again in a moment")
    .with("retryAfterMs", 1000))
}

fn pending(context: &mut Context<'_>, session: SessionId) -> Result<Option<Clearing>, Fault> {
    if clearings::some(context.tx).map_err(db_fault)?.is_empty() {
        return Ok(None);
    }
    let mut at = Some(session);
    while let Some(id) = at {
        match clearings::of(context.tx, id).map_err(db_fault)? {
            // A reset is a matter of the session itself.
            Some(Clearing::Reset) if id != session => {}
            Some(what) => return Ok(Some(what)),
            None => {}
        }
        at = sessions::parent_of(context.tx, id).map_err(db_fault)?;
    }
    Ok(None)
}
