//! The table of sends: data about a turn that answers another session, beside its run.

use super::columns::{at, count, json, named, opt_time, opt_uuid, time, to_json, uuid, whole};
use crate::kernel::ids::{RunId, SessionId, SessionKey};
use crate::kernel::text::text_enum::text_enum;
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Row, Tx, all, first, insert_row, number};

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

/// The columns that [`read`] decodes.
pub const COLUMNS: &str = "run_id, first_run, turn, from_id, from_key, asker_id, asker_generation, \
     chain, window_until, state";

fn read(row: &dyn Row) -> Result<Send, DbError> {
    whole(row, "sends", &[("run_id", at!(run_id))], decode)
}

/// Decodes a send from [`COLUMNS`].
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

/// The row is in the table.
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

/// The send of that run.
pub fn get(tx: &mut dyn Tx, run: RunId) -> Result<Option<Send>, DbError> {
    first(
        tx,
        &format!("SELECT {COLUMNS} FROM sends WHERE run_id = ?1"),
        &[(&run.0).into()],
        read,
    )
}

/// The row of a removed run is deleted.
pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    tx.execute("DELETE FROM sends WHERE run_id = ?1", &[(&run.0).into()])
        .map(|_| ())
}

/// The turn has this state, and no call waits for its reply.
pub fn set_state(tx: &mut dyn Tx, run: RunId, state: State) -> Result<(), DbError> {
    tx.execute(
        "UPDATE sends SET state = ?2, window_until = NULL WHERE run_id = ?1",
        &[(&run.0).into(), state.as_str().into()],
    )
    .map(|_| ())
}

/// No call waits for the reply any more.
pub fn clear_wait_deadline(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
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

/// True if the session is still to receive a reply.
pub fn is_unfinished(tx: &mut dyn Tx, asker: SessionId) -> Result<bool, DbError> {
    let found = number(
        tx,
        "SELECT EXISTS (SELECT 1 FROM sends WHERE asker_id = ?1 AND state <> 'done')",
        &[(&asker.0).into()],
    )?;
    Ok(found != 0)
}

/// Turns that have ended and whose follow-up is not done yet.
pub fn due(tx: &mut dyn Tx) -> Result<Vec<RunId>, DbError> {
    all(
        tx,
        "SELECT run_id FROM sends WHERE state = 'due'",
        &[],
        |row| Ok(RunId(uuid(row, 0)?)),
    )
}

/// The number of turns in [`due`].
pub fn count_due(tx: &mut dyn Tx) -> Result<i64, DbError> {
    number(tx, "SELECT count(*) FROM sends WHERE state = 'due'", &[])
}

/// Turns that a client's call waits for, with the deadline.
pub fn wait_deadlines(tx: &mut dyn Tx) -> Result<Vec<(RunId, Timestamp)>, DbError> {
    all(
        tx,
        "SELECT run_id, window_until FROM sends WHERE window_until IS NOT NULL",
        &[],
        |row| Ok((RunId(uuid(row, 0)?), time(row, 1)?)),
    )
}
