//! Finds the open descendants of a run or session along every path: a run requested it, its session
//! requested it, or it works in a session created there. Used by cancels and deletions.

use std::collections::HashMap;

use super::context::Context;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::run::{Run, RunOrigin};
use crate::kernel::session::Session;
use crate::store::tables::{runs, sessions};
use crate::store::tx::{DbError, Tx};

/// The open runs of `session` and its descendants, each after the run that requested it.
pub fn open_from_session(context: &mut Context<'_>, session: &Session) -> Result<Vec<Run>, Fault> {
    let mut below = Subtree::of_session(session);
    below.open(context.tx, session.root).map_err(Fault::from)
}

/// True if the session is `top` or one of its descendants.
pub fn is_within(tx: &mut dyn Tx, session: SessionId, top: SessionId) -> Result<bool, DbError> {
    let mut at = Some(session);
    while let Some(id) = at {
        if id == top {
            return Ok(true);
        }
        at = sessions::parent_of(tx, id)?;
    }
    Ok(false)
}

/// A subtree, with a cache of memberships. Every ancestor is older than its descendants, so each
/// look-up terminates.
#[derive(Default)]
pub struct Subtree {
    run: Option<RunId>,
    session: Option<SessionId>,
    runs: HashMap<RunId, bool>,
    sessions: HashMap<SessionId, bool>,
}

impl Subtree {
    /// The subtree of this run, including the run.
    pub fn of_run(run: &Run) -> Self {
        Subtree {
            run: Some(run.id),
            // Only a spawned run owns its session. The session of a turn, or of a called run,
            // continues without the run.
            session: (run.origin == RunOrigin::Spawn && !run.is_called()).then_some(run.session),
            ..Subtree::default()
        }
    }

    /// The runs of this session and its descendants.
    pub fn of_session(session: &Session) -> Self {
        Subtree {
            session: Some(session.id),
            ..Subtree::default()
        }
    }

    /// True if the run is in the subtree.
    pub fn holds(&mut self, tx: &mut dyn Tx, id: RunId) -> Result<bool, DbError> {
        if self.run == Some(id) {
            return Ok(true);
        }
        match runs::line(tx, id)? {
            Some(line) => self.holds_run(tx, id, line),
            None => Ok(false),
        }
    }

    /// The open runs of the subtree, each after the run that requested it. The cost depends on the
    /// open runs of one tree, not on its history.
    pub fn open(&mut self, tx: &mut dyn Tx, root: SessionId) -> Result<Vec<Run>, DbError> {
        let mut found = Vec::new();
        // Oldest first, because the requester of a run is older than the run.
        for run in runs::live_in_tree(tx, root)? {
            if self.holds_run(tx, run.id, runs::Links::of(&run))? {
                found.push(run);
            }
        }
        Ok(found)
    }

    fn holds_run(
        &mut self,
        tx: &mut dyn Tx,
        id: RunId,
        line: runs::Links,
    ) -> Result<bool, DbError> {
        if self.run == Some(id) {
            return Ok(true);
        }
        if let Some(known) = self.runs.get(&id) {
            return Ok(*known);
        }
        let mut holds = self.holds_session(tx, line.session)?;
        if let (false, Some(parent)) = (holds, line.parent_run) {
            holds = self.holds(tx, parent)?;
        }
        // The root of a wake run is older than it, like every other ancestor.
        if let (false, Some(root)) = (holds, line.woken_for.filter(|root| *root != id)) {
            holds = self.holds(tx, root)?;
        }
        if let (false, Some(requester)) = (holds, line.requester) {
            holds = self.holds_session(tx, requester)?;
        }
        self.runs.insert(id, holds);
        Ok(holds)
    }

    fn holds_session(&mut self, tx: &mut dyn Tx, id: SessionId) -> Result<bool, DbError> {
        if self.session == Some(id) {
            return Ok(true);
        }
        if let Some(known) = self.sessions.get(&id) {
            return Ok(*known);
        }
        let mut holds = false;
        if let Some(parent) = sessions::parent_of(tx, id)? {
            holds = self.holds_session(tx, parent)?;
            // It may have been created by an ended run, in a session that continues.
            if !holds && let Some(maker) = runs::requesting_run_of(tx, id)? {
                holds = self.holds(tx, maker)?;
            }
        }
        self.sessions.insert(id, holds);
        Ok(holds)
    }
}
