//! The table of sends: data about a turn that answers another session, beside its run.

use super::columns::{texts, values};
use super::table::{self, read, table};
use crate::kernel::ids::{RunId, SessionId, SessionKey};
use crate::kernel::text::text_enum::text_enum;
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Tx, all, execute, first, number, sql};

text_enum! {
    /// The state of a turn of an exchange.
    State {
        /// The turn has not ended.
        Open = "open",
        /// The turn has ended, and its follow-up is not done yet.
        Due = "due",
        /// The turn has ended, and its follow-up is done.
        Done = "done",
    }
}

/// A turn that answers another session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// The run of the turn.
    pub run: RunId,
    /// The run of the exchange's first turn.
    pub first: RunId,
    /// Its position in the exchange: 0, 1, 2 …; even ones are the target's.
    pub turn: u32,
    /// The session whose message it answers; `None` for a client's message.
    pub from: Option<(SessionId, SessionKey)>,
    /// The session that began the exchange and receives a late reply, and its generation then.
    pub asker: Option<(SessionId, i64)>,
    /// The sessions that the message has passed through, including its own.
    pub chain: Vec<SessionId>,
    /// The deadline until which a client's call waits for the reply.
    pub window_until: Option<Timestamp>,
    /// The state of the turn.
    pub state: State,
}

table! {
    sends: Send;
    key { run(run_id) }
    insert {
        first(first_run),
        turn,
        from(from_id, from_key),
        asker(asker_id, asker_generation),
        chain,
        window_until,
        state,
    }
    undecodable Moved {}
}

texts!(State: State::parse;);

/// The row is in the table.
pub fn insert(tx: &mut dyn Tx, send: &Send) -> Result<(), DbError> {
    table::insert(tx, send, [])
}

/// The send of that run.
pub fn get(tx: &mut dyn Tx, run: RunId) -> Result<Option<Send>, DbError> {
    first(
        tx,
        sql!("SELECT {COLUMNS} FROM sends WHERE run_id = ?1"),
        &[(&run).into()],
        read,
    )
}

/// The row of a removed run is deleted.
pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    execute(tx, "DELETE FROM sends WHERE run_id = ?1", &[(&run).into()])
}

/// The turn has this state, and no call waits for its reply.
pub fn set_state(tx: &mut dyn Tx, run: RunId, state: State) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE sends SET state = ?2, window_until = NULL WHERE run_id = ?1",
        &[(&run).into(), state.as_str().into()],
    )
}

/// No call waits for the reply any more.
pub fn clear_wait_deadline(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE sends SET window_until = NULL WHERE run_id = ?1",
        &[(&run).into()],
    )
}

/// The target's turns of an exchange, latest first.
pub fn answers(tx: &mut dyn Tx, first_run: RunId) -> Result<Vec<RunId>, DbError> {
    all(
        tx,
        "SELECT run_id FROM sends WHERE first_run = ?1 AND turn % 2 = 0 ORDER BY turn DESC",
        &[(&first_run).into()],
        values,
    )
}

/// True if the session is still to receive a reply.
pub fn is_unfinished(tx: &mut dyn Tx, asker: SessionId) -> Result<bool, DbError> {
    let found = number(
        tx,
        "SELECT EXISTS (SELECT 1 FROM sends WHERE asker_id = ?1 AND state <> 'done')",
        &[(&asker).into()],
    )?;
    Ok(found != 0)
}

/// Turns that have ended and whose follow-up is not done yet.
pub fn due(tx: &mut dyn Tx) -> Result<Vec<RunId>, DbError> {
    all(
        tx,
        "SELECT run_id FROM sends WHERE state = 'due'",
        &[],
        values,
    )
}

/// The number of turns in [`due`].
pub fn count_due(tx: &mut dyn Tx, org: Option<&str>) -> Result<i64, DbError> {
    let sql = "SELECT count(*) FROM sends WHERE state = 'due' AND \
               (?1 IS NULL OR (SELECT org FROM runs WHERE id = sends.run_id) = ?1)";
    number(tx, sql, &[org.into()])
}

/// Turns that a client's call waits for, with the deadline.
pub fn wait_deadlines(tx: &mut dyn Tx) -> Result<Vec<(RunId, Timestamp)>, DbError> {
    all(
        tx,
        "SELECT run_id, window_until FROM sends WHERE window_until IS NOT NULL",
        &[],
        values,
    )
}
