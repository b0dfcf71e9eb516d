//! The table of bodies that runs pin, keyed by the hash of their content.

use super::columns::values;
use super::table::{self, read, table};
use crate::contract::catalog::Pinned;
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Param, Row, Tx, all, execute, first, sql};

/// A body with its hash.
struct Blob {
    hash: String,
    body: String,
}

table! {
    blobs: Blob;
    key { hash }
    insert { body }
    beside { used_at: Timestamp }
    // The next run with the same body stores it again.
    undecodable Moved {}
}

/// Precision of the last-use time, in milliseconds: it is written once an hour, not per run.
pub const USED_WITHIN_MS: u64 = 3_600_000;

/// The body can be read by its hash, and counts as used now. It nearly always exists, so that is
/// checked first; otherwise the whole body would be bound to a statement for nothing.
pub fn insert(tx: &mut dyn Tx, pinned: &Pinned, now: Timestamp) -> Result<(), DbError> {
    let hash = || Param::from(&pinned.hash);
    let sql = "SELECT used_at FROM blobs WHERE hash = ?1";
    // A time that does not decode is overwritten.
    let used = |row: &dyn Row| Ok(Timestamp(row.int(0).unwrap_or_default()));
    match first(tx, sql, &[hash()], used)? {
        None => tx.execute(
            "INSERT INTO blobs (hash, body, used_at) VALUES (?1, ?2, ?3)",
            &[hash(), pinned.body.as_ref().into(), now.0.into()],
        )?,
        Some(used) if now.since(used) > USED_WITHIN_MS => tx.execute(
            "UPDATE blobs SET used_at = ?2 WHERE hash = ?1",
            &[hash(), now.0.into()],
        )?,
        Some(_) => 0,
    };
    Ok(())
}

/// The body with that hash.
pub fn get(tx: &mut dyn Tx, hash: &str) -> Result<Option<String>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM blobs WHERE hash = ?1");
    let found = first(tx, sql, &[hash.into()], read::<Blob>)?;
    Ok(found.map(|blob| blob.body))
}

/// Bodies that no run has pinned since this time and no pinned skill set names, with the time of
/// their last use.
pub fn unused_since(
    tx: &mut dyn Tx,
    point: Timestamp,
    limit: u32,
) -> Result<Vec<(String, Timestamp)>, DbError> {
    all(
        tx,
        &format!(
            "SELECT hash, used_at FROM blobs WHERE used_at < ?1 AND NOT EXISTS \
             (SELECT 1 FROM skill_bodies WHERE body = blobs.hash) LIMIT {limit}"
        ),
        &[point.0.into()],
        values,
    )
}

/// The body counts as used at this point.
pub fn use_again(tx: &mut dyn Tx, hash: &str, now: Timestamp) -> Result<(), DbError> {
    let sql = "UPDATE blobs SET used_at = ?2 WHERE hash = ?1";
    execute(tx, sql, &[hash.into(), now.0.into()])
}

/// The body is deleted.
pub fn remove(tx: &mut dyn Tx, hash: &str) -> Result<(), DbError> {
    execute(tx, "DELETE FROM blobs WHERE hash = ?1", &[hash.into()])
}
