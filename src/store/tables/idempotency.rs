//! The table of idempotency keys: the first request of each key, and its answer.

use serde_json::value::RawValue;

use super::columns::values;
use super::table::{self, read, table};
use crate::kernel::ids::RunId;
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Param, Tx, execute, first, sql};

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

/// A first request, as it is read.
struct UsedRow {
    digest: Vec<u8>,
    run: RunId,
    answer: Box<RawValue>,
}

table! {
    idempotency: UsedRow;
    key {} of { scope: String, key: String }
    insert { digest, run(run_id), answer }
    beside { created_at: Timestamp }
    // Without it a repeat would do the work a second time.
    undecodable Kept {}
}

/// The first request with this key; `None` if the key is unused.
pub fn get(tx: &mut dyn Tx, scope: &str, key: &str) -> Result<Option<Used>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM idempotency WHERE scope = ?1 AND key = ?2");
    let found = first(tx, sql, &[scope.into(), key.into()], read::<UsedRow>)?;
    Ok(found.map(|row| Used {
        digest: row.digest,
        run: row.run,
        answer: Box::<str>::from(row.answer).into(),
    }))
}

/// When the newest key of this run was first used.
pub fn used_at(tx: &mut dyn Tx, run: RunId) -> Result<Option<Timestamp>, DbError> {
    let found = first(
        tx,
        "SELECT max(created_at) FROM idempotency WHERE run_id = ?1",
        &[(&run).into()],
        values,
    )?;
    Ok(found.flatten())
}

/// The keys of this run are unused again.
pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    execute(
        tx,
        "DELETE FROM idempotency WHERE run_id = ?1",
        &[(&run).into()],
    )
}

/// The key is recorded with this answer, which a repeat will get.
pub fn insert(
    tx: &mut dyn Tx,
    scope: &str,
    key: &str,
    used: &Used,
    now: Timestamp,
) -> Result<(), DbError> {
    execute(
        tx,
        "INSERT INTO idempotency (scope, key, digest, run_id, answer, created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        &[
            scope.into(),
            key.into(),
            Param::Bytes(&used.digest),
            (&used.run).into(),
            (&used.answer).into(),
            now.0.into(),
        ],
    )
}
