//! The table of deleted sessions whose transcripts and journals are still being removed.

use super::columns::uuid;
use crate::kernel::ids::SessionId;
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Tx, all, first};

/// The remaining rows of the deleted session are scheduled for removal.
pub fn insert(tx: &mut dyn Tx, session: SessionId, now: Timestamp) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO purges (session_id, deleted_at) VALUES (?1, ?2) \
         ON CONFLICT (session_id) DO NOTHING",
        &[(&session.0).into(), now.0.into()],
    )
    .map(|_| ())
}

/// List position of the last run whose journal is removed; `None` if nothing is scheduled.
pub fn run_seq(tx: &mut dyn Tx, session: SessionId) -> Result<Option<i64>, DbError> {
    first(
        tx,
        "SELECT run_seq FROM purges WHERE session_id = ?1",
        &[(&session.0).into()],
        |row| row.int(0),
    )
}

/// The journals of the session's runs up to this list position are removed.
pub fn advance(tx: &mut dyn Tx, session: SessionId, run_seq: i64) -> Result<(), DbError> {
    tx.execute(
        "UPDATE purges SET run_seq = ?2 WHERE session_id = ?1",
        &[(&session.0).into(), run_seq.into()],
    )
    .map(|_| ())
}

/// No rows of the session are left to remove.
pub fn remove(tx: &mut dyn Tx, session: SessionId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM purges WHERE session_id = ?1",
        &[(&session.0).into()],
    )
    .map(|_| ())
}

/// Up to 1000 sessions that have rows left to remove.
pub fn sessions(tx: &mut dyn Tx) -> Result<Vec<SessionId>, DbError> {
    all(tx, "SELECT session_id FROM purges LIMIT 1000", &[], |row| {
        Ok(SessionId(uuid(row, 0)?))
    })
}
