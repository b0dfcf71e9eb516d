//! The table of sends: what belongs to a turn that answers another session, beside its run.

use super::columns::{at, count, json, named, opt_time, opt_uuid, time, to_json, uuid, whole};
use super::tx::{DbError, Row, Tx, all, first, insert_row, number};
use crate::kernel::ids::{RunId, SessionId, SessionKey};
use crate::kernel::text_enum::text_enum;
use crate::kernel::time::Timestamp;

text_enum! {
    /// How far a turn of an exchange has come.
    State {
        /// It has not ended.
        Open = "open",
        /// It has, and what follows is still to be done.
        Due = "due",
        /// All is done.
        Done = "done",
    }
}

/// A turn that answers another session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// Its run.
    pub run: RunId,
    /// The first turn of its exchange; itself for the first.
    pub first: RunId,
    /// Its place in the exchange: 0, 1, 2 …; even ones are the target's.
    pub turn: u32,
    /// Whose words it answers; `None`: a client's.
    pub from: Option<(SessionId, SessionKey)>,
    /// Who began the exchange and is told of a late reply, and its generation then.
    pub asker: Option<(SessionId, i64)>,
    /// The sessions that the message has come through, its own included.
    pub chain: Vec<SessionId>,
    /// Until when a client's call waits for the reply.
    pub window_until: Option<Timestamp>,
    /// How far it has come.
    pub state: State,
}

/// The columns that [`read`] reads.
pub const COLUMNS: &str = "run_id, first_run, turn, from_id, from_key, asker_id, asker_generation, \
     chain, window_until, state";

fn read(row: &dyn Row) -> Result<Send, DbError> {
    whole(row, "sends", &[("run_id", at!(run_id))], decode)
}

/// A row out of [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Send, DbError> {
    Ok(Send {
        run: RunId(uuid(row, at!(run_id))?),
        first: RunId(uuid(row, at!(first_run))?),
        turn: count(row, at!(turn))?,
        from: match opt_uuid(row, at!(from_id))? {
            Some(id) => Some((SessionId(id), super::columns::key(row, at!(from_key))?)),
            None => None,
        },
        asker: match opt_uuid(row, at!(asker_id))? {
            Some(id) => Some((SessionId(id), row.int(at!(asker_generation))?)),
            None => None,
        },
        chain: json(row, at!(chain))?,
        window_until: opt_time(row, at!(window_until))?,
        state: named(row, at!(state), State::parse)?,
    })
}

/// The row is there.
pub fn insert(tx: &mut dyn Tx, send: &Send) -> Result<(), DbError> {
    insert_row(
        tx,
        "sends",
        &[
            ("run_id", (&send.run.0).into()),
            ("first_run", (&send.first.0).into()),
            ("turn", send.turn.into()),
            ("from_id", send.from.as_ref().map(|(id, _)| &id.0).into()),
            (
                "from_key",
                send.from.as_ref().map(|(_, key)| key.as_str()).into(),
            ),
            ("asker_id", send.asker.as_ref().map(|(id, _)| &id.0).into()),
            (
                "asker_generation",
                send.asker
                    .as_ref()
                    .map(|(_, generation)| *generation)
                    .into(),
            ),
            ("chain", (&to_json(&send.chain)).into()),
            ("window_until", send.window_until.map(|at| at.0).into()),
            ("state", send.state.as_str().into()),
        ],
    )
}

/// What belongs to that run.
pub fn get(tx: &mut dyn Tx, run: RunId) -> Result<Option<Send>, DbError> {
    first(
        tx,
        &format!("SELECT {COLUMNS} FROM sends WHERE run_id = ?1"),
        &[(&run.0).into()],
        read,
    )
}

/// The row of a run that is removed is gone.
pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    tx.execute("DELETE FROM sends WHERE run_id = ?1", &[(&run.0).into()])
        .map(|_| ())
}

/// The turn has come so far; nobody waits for it in a call any more.
pub fn set_state(tx: &mut dyn Tx, run: RunId, state: State) -> Result<(), DbError> {
    tx.execute(
        "UPDATE sends SET state = ?2, window_until = NULL WHERE run_id = ?1",
        &[(&run.0).into(), state.as_str().into()],
    )
    .map(|_| ())
}

/// Nobody waits for the reply in a call any more.
pub fn close_window(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    tx.execute(
        "UPDATE sends SET window_until = NULL WHERE run_id = ?1",
        &[(&run.0).into()],
    )
    .map(|_| ())
}

/// The target's turns of an exchange, latest first.
pub fn answers(tx: &mut dyn Tx, first_run: RunId) -> Result<Vec<RunId>, DbError> {
    all(
        tx,
        "SELECT run_id FROM sends WHERE first_run = ?1 AND turn % 2 = 0 ORDER BY turn DESC",
        &[(&first_run.0).into()],
        |row| Ok(RunId(uuid(row, 0)?)),
    )
}

/// Is the session to get a reply that is not there yet?
pub fn is_unfinished(tx: &mut dyn Tx, asker: SessionId) -> Result<bool, DbError> {
    let found = number(
        tx,
        "SELECT EXISTS (SELECT 1 FROM sends WHERE asker_id = ?1 AND state <> 'done')",
        &[(&asker.0).into()],
    )?;
    Ok(found != 0)
}

/// Turns that have ended and whose consequence is still to be done.
pub fn due(tx: &mut dyn Tx) -> Result<Vec<RunId>, DbError> {
    all(
        tx,
        "SELECT run_id FROM sends WHERE state = 'due'",
        &[],
        |row| Ok(RunId(uuid(row, 0)?)),
    )
}

/// How many there are of them.
pub fn count_due(tx: &mut dyn Tx) -> Result<i64, DbError> {
    number(tx, "SELECT count(*) FROM sends WHERE state = 'due'", &[])
}

/// Turns that a client's call waits for, with the end of its window.
pub fn windows(tx: &mut dyn Tx) -> Result<Vec<(RunId, Timestamp)>, DbError> {
    all(
        tx,
        "SELECT run_id, window_until FROM sends WHERE window_until IS NOT NULL",
        &[],
        |row| Ok((RunId(uuid(row, 0)?), time(row, 1)?)),
    )
}
