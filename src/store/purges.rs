//! The table of deleted sessions whose transcripts and journals are still being taken away.

use super::columns::uuid;
use super::tx::{DbError, Tx, all, first};
use crate::kernel::ids::SessionId;
use crate::kernel::time::Timestamp;

/// What the session left is to be taken away.
pub fn insert(tx: &mut dyn Tx, session: SessionId, now: Timestamp) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO purges (session_id, deleted_at) VALUES (?1, ?2) \
         ON CONFLICT (session_id) DO NOTHING",
        &[(&session.0).into(), now.0.into()],
    )
    .map(|_| ())
}

/// The place of the last run whose journal is gone; `None`: nothing is to be taken away.
pub fn run_seq(tx: &mut dyn Tx, session: SessionId) -> Result<Option<i64>, DbError> {
    first(
        tx,
        "SELECT run_seq FROM purges WHERE session_id = ?1",
        &[(&session.0).into()],
        |row| row.int(0),
    )
}

/// The journals of the runs up to this place are gone.
pub fn advance(tx: &mut dyn Tx, session: SessionId, run_seq: i64) -> Result<(), DbError> {
    tx.execute(
        "UPDATE purges SET run_seq = ?2 WHERE session_id = ?1",
        &[(&session.0).into(), run_seq.into()],
    )
    .map(|_| ())
}

/// Nothing is left of the session.
pub fn remove(tx: &mut dyn Tx, session: SessionId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM purges WHERE session_id = ?1",
        &[(&session.0).into()],
    )
    .map(|_| ())
}

/// The sessions of which something is left.
pub fn sessions(tx: &mut dyn Tx) -> Result<Vec<SessionId>, DbError> {
    all(tx, "SELECT session_id FROM purges LIMIT 1000", &[], |row| {
        Ok(SessionId(uuid(row, 0)?))
    })
}
