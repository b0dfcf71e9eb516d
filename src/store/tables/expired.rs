//! The table of runs that retention has removed: only their ids, tenants and removal times.

use super::columns::values;
use crate::kernel::ids::RunId;
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Tx, all, execute, first};

/// The run is recorded as removed, so that a request for it can say that it existed.
pub fn insert(tx: &mut dyn Tx, run: RunId, org: &str, now: Timestamp) -> Result<(), DbError> {
    execute(
        tx,
        "INSERT INTO expired (run_id, org, removed_at) VALUES (?1, ?2, ?3) \
         ON CONFLICT (run_id) DO NOTHING",
        &[(&run).into(), org.into(), now.0.into()],
    )
}

/// When the run was removed by retention; `None` if it was not.
pub fn removed_at(tx: &mut dyn Tx, org: &str, run: RunId) -> Result<Option<Timestamp>, DbError> {
    first(
        tx,
        "SELECT removed_at FROM expired WHERE run_id = ?1 AND org = ?2",
        &[(&run).into(), org.into()],
        values,
    )
}

/// When the run with the oldest id was removed.
pub fn oldest(tx: &mut dyn Tx) -> Result<Option<Timestamp>, DbError> {
    first(
        tx,
        "SELECT removed_at FROM expired ORDER BY run_id LIMIT 1",
        &[],
        values,
    )
}

/// At most `limit` of the oldest ids, removed before this time, are deleted; returns the number.
pub fn forget_some(tx: &mut dyn Tx, before: Timestamp, limit: u32) -> Result<u64, DbError> {
    // Ids sort by creation time.
    let oldest: Vec<(RunId, Timestamp)> = all(
        tx,
        &format!("SELECT run_id, removed_at FROM expired ORDER BY run_id LIMIT {limit}"),
        &[],
        values,
    )?;
    let mut gone = 0;
    for (id, removed_at) in oldest {
        if removed_at <= before {
            gone += tx.execute("DELETE FROM expired WHERE run_id = ?1", &[(&id).into()])?;
        }
    }
    Ok(gone)
}
