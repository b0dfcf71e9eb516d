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

/// The open runs of `run` and below it, itself first if it is open; each after whatever asked
/// for it.
pub fn open_from_run(context: &mut Context<'_>, run: &Run) -> Result<Vec<Run>, Fault> {
    let mut below = Below {
        run: Some(run.id),
        // Its session exists for a spawned run alone; a turn's session goes on without it, and
        // so does that of a called run.
        session: (run.origin == RunOrigin::Spawn && !run.is_called()).then_some(run.session),
        ..Below::default()
    };
    below.open(context.tx, run.root_session).map_err(db_fault)
}

/// The open runs that work in `session` or lie below it, each after whatever asked for it.
pub fn open_from_session(context: &mut Context<'_>, session: &Session) -> Result<Vec<Run>, Fault> {
    let mut below = Below {
        session: Some(session.id),
        ..Below::default()
    };
    below.open(context.tx, session.root).map_err(db_fault)
}

/// What is asked about, and what is known already. Every way up leads to something older, so
/// each look comes to an end.
#[derive(Default)]
struct Below {
    run: Option<RunId>,
    session: Option<SessionId>,
    runs: HashMap<RunId, bool>,
    sessions: HashMap<SessionId, bool>,
}

impl Below {
    /// The cost is that of the open runs of one tree, however long its history.
    fn open(&mut self, tx: &mut dyn Tx, root: SessionId) -> Result<Vec<Run>, DbError> {
        let mut found = Vec::new();
        // Older ones first: whatever asked for a run is older than it.
        for run in runs::live_under(tx, root)? {
            let line = runs::Line {
                session: run.session,
                requester: run.requester.as_ref().map(|by| by.session),
                parent_run: run.parent_run,
            };
            if self.holds_run(tx, run.id, line)? {
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
            holds = self.holds_id(tx, parent)?;
        }
        if let (false, Some(requester)) = (holds, line.requester) {
            holds = self.holds_session(tx, requester)?;
        }
        self.runs.insert(id, holds);
        Ok(holds)
    }

    fn holds_id(&mut self, tx: &mut dyn Tx, id: RunId) -> Result<bool, DbError> {
        match runs::line(tx, id)? {
            Some(line) => self.holds_run(tx, id, line),
            None => Ok(false),
        }
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
                holds = self.holds_id(tx, maker)?;
            }
        }
        self.sessions.insert(id, holds);
        Ok(holds)
    }
}
