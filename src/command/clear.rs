//! Resets and deletions requested while runs were open: the request is a row, and the transaction
//! in which the last of these runs ends carries it out. So no kill leaves the runs cancelled and
//! the session unchanged, or carries it out twice.

use super::change_session::begin_anew;
use super::context::Context;
use super::remove::remove_tree;
use super::subtree::open_from_session;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::SessionId;
use crate::kernel::run::Run;
use crate::kernel::session::Session;
use crate::store::tables::clearings::Clearing;
use crate::store::tables::{clearings, sessions};

/// Schedules a reset or deletion for when the last open run ends. New runs are refused until then.
pub fn ask(context: &mut Context<'_>, session: &Session, what: Clearing) -> Result<(), Fault> {
    clearings::insert(context.tx, session.id, what, context.now.wall).map_err(Fault::from)
}

/// Carries out every scheduled reset and deletion that has no open runs left. Called whenever a run
/// ends, and at a start, because a run's row may have been lost.
pub fn carry_out(context: &mut Context<'_>) -> Result<(), Fault> {
    for (id, what) in clearings::some(context.tx)? {
        let Some(session) = sessions::by_id(context.tx, id)? else {
            // The end of a run has deleted it (`cleanup: delete`), or an ancestor was deleted.
            clearings::remove(context.tx, id)?;
            continue;
        };
        let is_in_the_way = |run: &Run| match what {
            // Runs in other sessions continue unless they were cancelled with it.
            Clearing::Reset => run.session == id || run.cancel.is_some(),
            Clearing::Delete => true,
        };
        if open_from_session(context, &session)?
            .iter()
            .any(is_in_the_way)
        {
            continue;
        }
        clearings::remove(context.tx, id)?;
        match what {
            Clearing::Reset => drop(begin_anew(context, session)?),
            Clearing::Delete => remove_tree(context, &session)?,
        }
    }
    Ok(())
}

/// True if a reset of the session, or a deletion of it or an ancestor, is scheduled.
pub fn is_to_come(context: &mut Context<'_>, session: SessionId) -> Result<bool, Fault> {
    Ok(pending(context, session)?.is_some())
}

/// Refuses new work in a session with a scheduled reset, or in the tree of a scheduled deletion.
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
    if clearings::some(context.tx)?.is_empty() {
        return Ok(None);
    }
    let mut at = Some(session);
    while let Some(id) = at {
        match clearings::of(context.tx, id)? {
            // A reset affects only the session itself.
            Some(Clearing::Reset) if id != session => {}
            Some(what) => return Ok(Some(what)),
            None => {}
        }
        at = sessions::parent_of(context.tx, id)?;
    }
    Ok(None)
}
