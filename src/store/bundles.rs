//! The table of bundles: what the runs of a spawned session may do at most.

use super::columns::whole;
use super::tx::{DbError, Row, Tx, first};
use crate::kernel::ids::SessionId;

/// The columns that [`decode`] reads, in its order, and the key.
pub const COLUMNS: &str = "body, session_id";

/// A body out of [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<String, DbError> {
    Ok(row.text(0)?.to_owned())
}

/// The session's bundle is in the table.
pub fn insert(tx: &mut dyn Tx, session: SessionId, body: &str) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO bundles (session_id, body) VALUES (?1, ?2)",
        &[(&session.0).into(), body.into()],
    )
    .map(|_| ())
}

/// The session's bundle; `None`: nobody has spawned it, or what did was bound by nothing.
pub fn get(tx: &mut dyn Tx, session: SessionId) -> Result<Option<String>, DbError> {
    first(
        tx,
        &format!("SELECT {COLUMNS} FROM bundles WHERE session_id = ?1"),
        &[(&session.0).into()],
        |row| whole(row, "bundles", &[("session_id", 1)], decode),
    )
}

/// The session is gone, and with it its bundle.
pub fn remove(tx: &mut dyn Tx, session: SessionId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM bundles WHERE session_id = ?1",
        &[(&session.0).into()],
    )
    .map(|_| ())
}
