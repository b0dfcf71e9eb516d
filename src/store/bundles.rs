//! The table of bundles: what the runs of a spawned session may do at most.

use super::columns::{to_json, whole};
use super::tx::{DbError, Row, Tx, first};
use crate::kernel::gate::{Bundle, Decision, Layer, Rule, Writes};
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

/// The body that stands for a bundle that was lost: nothing is allowed.
pub fn lost() -> String {
    to_json(&Bundle {
        layers: vec![Layer {
            agent: "(lost with a part of the damaged store)".to_owned(),
            rules: vec![Rule {
                tool: "*".to_owned(),
                pattern: None,
                decision: Decision::Deny,
            }],
        }],
        writes: Writes::Nowhere,
    })
}

/// Every spawned session without a bundle has the one that allows nothing. Afterwards no run is
/// bound by less than before the rows of this table were lost.
pub fn close_unbound(tx: &mut dyn Tx) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO bundles (session_id, body) SELECT id, ?1 FROM sessions \
         WHERE depth > 0 AND NOT EXISTS (SELECT 1 FROM bundles WHERE session_id = sessions.id)",
        &[lost().as_str().into()],
    )
    .map(|_| ())
}
