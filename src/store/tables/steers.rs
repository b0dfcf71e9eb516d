//! The table of steering texts: messages to a run during its turn, until its next model call sees
//! them. Store commands write and read it.

use super::table::{self, read, table};
use crate::kernel::ids::{MessageId, RunId};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Param, Tx, all, execute, number, sql};

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

table! {
    steers: Steer;
    key { seq } of { run_id: RunId }
    insert { message(message_id), text, at }
    beside { message_seq: Option<i64> }
    primary { run_id, seq }
    undecodable Moved {}
}

/// The text waits for the run's next model call.
pub fn insert(tx: &mut dyn Tx, run: RunId, steer: &Steer) -> Result<(), DbError> {
    table::insert(tx, steer, [(&run).into(), Param::Null])
}

/// True if this message was already sent to the run, even if it still waits.
pub fn has(tx: &mut dyn Tx, run: RunId, message: MessageId) -> Result<bool, DbError> {
    let params: [Param<'_>; 2] = [(&run).into(), (&message).into()];
    let sql = "SELECT EXISTS (SELECT 1 FROM steers WHERE run_id = ?1 AND message_id = ?2)";
    Ok(number(tx, sql, &params)? != 0)
}

/// The texts that wait for the run's next model call, in order.
pub fn waiting(tx: &mut dyn Tx, run: RunId) -> Result<Vec<Steer>, DbError> {
    all(
        tx,
        sql!("SELECT {COLUMNS} FROM steers WHERE run_id = ?1 AND message_seq IS NULL ORDER BY seq"),
        &[(&run).into()],
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
    execute(
        tx,
        "UPDATE steers SET message_seq = ?3 WHERE run_id = ?1 AND seq = ?2",
        &[(&run).into(), seq.into(), message_seq.into()],
    )
}

/// The waiting texts of an ended run are deleted; returns their number.
pub fn give_up(tx: &mut dyn Tx, run: RunId) -> Result<u64, DbError> {
    tx.execute(
        "DELETE FROM steers WHERE run_id = ?1 AND message_seq IS NULL",
        &[(&run).into()],
    )
}

/// All texts of the run are deleted.
pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    execute(tx, "DELETE FROM steers WHERE run_id = ?1", &[(&run).into()])
}
