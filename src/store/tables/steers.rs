//! The table of steering texts: messages to a run during its turn, until its next model call sees
//! them. Store commands write and read it.

use super::columns::{at, time, uuid, whole};
use crate::kernel::ids::{MessageId, RunId};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Param, Row, Tx, all, insert_row, number};

/// One steering text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steer {
    /// Its sequence number, which orders all rows.
    pub seq: i64,
    /// The id of its message.
    pub message: MessageId,
    /// The content.
    pub text: String,
    /// When it was sent.
    pub at: Timestamp,
}

/// The columns that [`read`] decodes, in its order, and the run.
pub const COLUMNS: &str = "seq, message_id, text, at, run_id";

fn read(row: &dyn Row) -> Result<Steer, DbError> {
    whole(
        row,
        "steers",
        &[("run_id", at!(run_id)), ("seq", at!(seq))],
        decode,
    )
}

/// Decodes a steering text from [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Steer, DbError> {
    Ok(Steer {
        seq: row.int(at!(seq))?,
        message: MessageId(uuid(row, at!(message_id))?),
        text: row.text(at!(text))?.to_owned(),
        at: time(row, at!(at))?,
    })
}

/// The text waits for the run's next model call.
pub fn insert(tx: &mut dyn Tx, run: RunId, steer: &Steer) -> Result<(), DbError> {
    insert_row(
        tx,
        "steers",
        &[
            ("run_id", (&run.0).into()),
            ("seq", steer.seq.into()),
            ("message_id", (&steer.message.0).into()),
            ("text", (&steer.text).into()),
            ("at", steer.at.0.into()),
        ],
    )
}

/// True if this message was already sent to the run, even if it still waits.
pub fn has(tx: &mut dyn Tx, run: RunId, message: MessageId) -> Result<bool, DbError> {
    let params: [Param<'_>; 2] = [(&run.0).into(), (&message.0).into()];
    let sql = "SELECT EXISTS (SELECT 1 FROM steers WHERE run_id = ?1 AND message_id = ?2)";
    Ok(number(tx, sql, &params)? != 0)
}

/// The texts that wait for the run's next model call, in order.
pub fn waiting(tx: &mut dyn Tx, run: RunId) -> Result<Vec<Steer>, DbError> {
    all(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM steers WHERE run_id = ?1 AND message_seq IS NULL ORDER BY seq"
        ),
        &[(&run.0).into()],
        read,
    )
}

/// The text is in the transcript at `message_seq`.
pub fn mark_delivered(
    tx: &mut dyn Tx,
    run: RunId,
    seq: i64,
    message_seq: i64,
) -> Result<(), DbError> {
    tx.execute(
        "UPDATE steers SET message_seq = ?3 WHERE run_id = ?1 AND seq = ?2",
        &[(&run.0).into(), seq.into(), message_seq.into()],
    )
    .map(|_| ())
}

/// The waiting texts of an ended run are deleted; returns their number.
pub fn give_up(tx: &mut dyn Tx, run: RunId) -> Result<u64, DbError> {
    tx.execute(
        "DELETE FROM steers WHERE run_id = ?1 AND message_seq IS NULL",
        &[(&run.0).into()],
    )
}

/// All texts of the run are deleted.
pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    tx.execute("DELETE FROM steers WHERE run_id = ?1", &[(&run.0).into()])
        .map(|_| ())
}
