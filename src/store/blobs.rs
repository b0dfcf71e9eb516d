//! The table of bodies that runs pin, by the hash of their content.

use super::columns::whole;
use super::tx::{DbError, Row, Tx, first};
use crate::contract::catalog::Pinned;

/// The body can be read by its hash.
pub fn insert(tx: &mut dyn Tx, pinned: &Pinned) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO blobs (hash, body) VALUES (?1, ?2) ON CONFLICT (hash) DO NOTHING",
        &[(&pinned.hash).into(), pinned.body.as_ref().into()],
    )
    .map(|_| ())
}

/// The body with that hash.
pub fn get(tx: &mut dyn Tx, hash: &str) -> Result<Option<String>, DbError> {
    first(
        tx,
        &format!("SELECT {COLUMNS} FROM blobs WHERE hash = ?1"),
        &[hash.into()],
        |row| whole(row, "blobs", &[("hash", 1)], decode),
    )
}

/// The columns that [`decode`] reads, in its order, and the key.
pub const COLUMNS: &str = "body, hash";

/// A body out of [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<String, DbError> {
    Ok(row.text(0)?.to_owned())
}
