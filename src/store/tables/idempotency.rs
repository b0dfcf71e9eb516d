//! The table of idempotency keys: the first request of each key, and its answer.

use super::columns::{opt_time, uuid, whole};
use crate::kernel::ids::RunId;
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Row, Tx, first};

/// The first request with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// Keyed hash of the canonical parameters.
    pub digest: Vec<u8>,
    /// The run that it created.
    pub run: RunId,
    /// The first answer, as JSON.
    pub answer: String,
}

/// The first request with this key; `None` if the key is unused.
pub fn get(tx: &mut dyn Tx, scope: &str, key: &str) -> Result<Option<Used>, DbError> {
    first(
        tx,
        &format!("SELECT {COLUMNS} FROM idempotency WHERE scope = ?1 AND key = ?2"),
        &[scope.into(), key.into()],
        |row| whole(row, "idempotency", &[("scope", 3), ("key", 4)], decode),
    )
}

/// The columns that [`decode`] reads, in its order, and the key.
pub const COLUMNS: &str = "digest, run_id, answer, scope, key";

/// Decodes a first request from [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Used, DbError> {
    let answer = row.text(2)?;
    if serde_json::from_str::<serde::de::IgnoredAny>(answer).is_err() {
        return Err(DbError::undecodable(2, "text that is not JSON"));
    }
    Ok(Used {
        digest: row.opt_bytes(0)?.unwrap_or_default().to_vec(),
        run: RunId(uuid(row, 1)?),
        answer: answer.to_owned(),
    })
}

/// When the newest key of this run was first used.
pub fn used_at(tx: &mut dyn Tx, run: RunId) -> Result<Option<Timestamp>, DbError> {
    let found = first(
        tx,
        "SELECT max(created_at) FROM idempotency WHERE run_id = ?1",
        &[(&run.0).into()],
        |row| opt_time(row, 0),
    )?;
    Ok(found.flatten())
}

/// The keys of this run are unused again.
pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM idempotency WHERE run_id = ?1",
        &[(&run.0).into()],
    )
    .map(|_| ())
}

/// The key is recorded with this answer, which a repeat will get.
pub fn insert(
    tx: &mut dyn Tx,
    scope: &str,
    key: &str,
    used: &Used,
    now: Timestamp,
) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO idempotency (scope, key, digest, run_id, answer, created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        &[
            scope.into(),
            key.into(),
            crate::store::tx::Param::Bytes(&used.digest),
            (&used.run.0).into(),
            (&used.answer).into(),
            now.0.into(),
        ],
    )
    .map(|_| ())
}
