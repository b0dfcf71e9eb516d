//! The table of idempotency keys: what each was first used for, and the answer it got.

use super::columns::{opt_time, uuid, whole};
use super::tx::{DbError, Row, Tx, first};
use crate::kernel::ids::RunId;
use crate::kernel::time::Timestamp;

/// What a key was first used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// Keyed hash of the canonical parameters.
    pub digest: Vec<u8>,
    /// The run it made.
    pub run: RunId,
    /// The first answer, JSON.
    pub answer: String,
}

/// What the key was first used for, if it was.
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

/// A first use out of [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Used, DbError> {
    let answer = row.text(2)?;
    if serde_json::from_str::<serde::de::IgnoredAny>(answer).is_err() {
        return Err(DbError::undecodable(2, "text that is no JSON"));
    }
    Ok(Used {
        digest: row.opt_bytes(0)?.unwrap_or_default().to_vec(),
        run: RunId(uuid(row, 1)?),
        answer: answer.to_owned(),
    })
}

/// When the youngest key of this run was first used.
pub fn used_at(tx: &mut dyn Tx, run: RunId) -> Result<Option<Timestamp>, DbError> {
    let found = first(
        tx,
        "SELECT max(created_at) FROM idempotency WHERE run_id = ?1",
        &[(&run.0).into()],
        |row| opt_time(row, 0),
    )?;
    Ok(found.flatten())
}

/// The keys of this run are free.
pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM idempotency WHERE run_id = ?1",
        &[(&run.0).into()],
    )
    .map(|_| ())
}

/// A repeat of the key finds this answer.
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
            super::tx::Param::Bytes(&used.digest),
            (&used.run.0).into(),
            (&used.answer).into(),
            now.0.into(),
        ],
    )
    .map(|_| ())
}
