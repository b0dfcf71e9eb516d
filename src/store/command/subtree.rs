//! Which open runs lie below a run or a session, over every way down: a run asked for it, its
//! session asked for it, or it works in a session that was made there. Cancels and deletions
//! ask.

use std::collections::HashMap;

use super::context::Context;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::run::{Run, RunOrigin};
use crate::kernel::session::Session;
use crate::store::tx::{DbError, Tx};
use crate::store::{db_fault, runs, sessions};

/// The open runs that work in `session` or lie below it, each after whatever asked for it.
pub fn open_from_session(context: &mut Context<'_>, session: &Session) -> Result<Vec<Run>, Fault> {
    let mut below = Below::of_session(session);
    below.open(context.tx, session.root).map_err(db_fault)
}

/// Is the session `top`, or one below it?
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

/// What is asked about, and what is known already. Every way up leads to something older, so
/// each look comes to an end.
#[derive(Default)]
pub struct Below {
    run: Option<RunId>,
    session: Option<SessionId>,
    runs: HashMap<RunId, bool>,
    sessions: HashMap<SessionId, bool>,
}

impl Below {
    /// What is below this run, itself included.
    pub fn of_run(run: &Run) -> Self {
        Below {
            run: Some(run.id),
            // Its session exists for a spawned run alone; a turn's session goes on without it,
            // and so does that of a called run.
            session: (run.origin == RunOrigin::Spawn && !run.is_called()).then_some(run.session),
            ..Below::default()
        }
    }

    /// What works in this session or is below it.
    pub fn of_session(session: &Session) -> Self {
        Below {
            session: Some(session.id),
            ..Below::default()
        }
    }

    /// Does the run belong to it?
    pub fn holds(&mut self, tx: &mut dyn Tx, id: RunId) -> Result<bool, DbError> {
        if self.run == Some(id) {
            return Ok(true);
        }
        match runs::line(tx, id)? {
            Some(line) => self.holds_run(tx, id, line),
            None => Ok(false),
        }
    }

    /// Its open runs, each after what asked for it. The cost is that of the open runs of one tree, however long its history.
    pub fn open(&mut self, tx: &mut dyn Tx, root: SessionId) -> Result<Vec<Run>, DbError> {
        let mut found = Vec::new();
        // Older ones first: whatever asked for a run is older than it.
        for run in runs::live_under(tx, root)? {
            if self.holds_run(tx, run.id, runs::Line::of(&run))? {
                found.push(run);
            }
        }
        Ok(found)
    }

    fn holds_run(&mut self, tx: &mut dyn Tx, id: RunId, line: runs::Line) -> Result<bool, DbError> {
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
        // Older than the wake run, as every other way up.
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
            // It may have been made by a run that has ended, in a session that goes on.
            if !holds && let Some(maker) = runs::maker_of(tx, id)? {
                holds = self.holds(tx, maker)?;
            }
        }
        self.sessions.insert(id, holds);
        Ok(holds)
    }
}
