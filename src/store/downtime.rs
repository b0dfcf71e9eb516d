//! Handles the time since the previous process: whether the wall clock can be trusted, and
//! extending deadlines by the downtime. The command that begins a boot calls it.

use super::tx::{DbError, Tx};
use crate::kernel::ages::{BootBaseline, ClockTrust, HostBoot};
use crate::kernel::time::Timestamp;
use crate::store::tables::boots;
use crate::store::tables::columns::to_json;

/// Name of the `meta` row with the machine's start time.
const BASELINE: &str = "machine";

/// How far the clock can be trusted. The next start compares with this machine's start time.
pub fn sight(
    tx: &mut dyn Tx,
    now: Timestamp,
    last_seen: Option<Timestamp>,
    machine: Option<&HostBoot>,
    max_age_ms: u64,
) -> Result<ClockTrust, DbError> {
    // A baseline that does not decode is treated as missing.
    let known = boots::meta(tx, BASELINE)?;
    let known: Option<BootBaseline> = known.and_then(|text| serde_json::from_str(&text).ok());
    let (sight, next) = ClockTrust::of(now, last_seen, machine, known, max_age_ms);
    if let Some(next) = next {
        boots::set_meta(tx, BASELINE, &to_json(&next))?;
    }
    Ok(sight)
}

/// Columns that hold the deadline of something open: table, column, condition.
const WAITS: &[(&str, &str, &str)] = &[
    (
        "steps",
        "wait_until",
        "ended_at IS NULL AND run_id IN (SELECT run_id FROM waits)",
    ),
    ("approvals", "expires_at", "state = 'open'"),
    ("questions", "expires_at", "state = 'open'"),
    ("sends", "window_until", "state = 'open'"),
    ("runs", "not_before", "ended_at IS NULL"),
];

/// Every open deadline is as far from `now` as it was from `last_seen`: downtime and clock
/// changes do not count towards it.
pub fn extend_deadlines(
    tx: &mut dyn Tx,
    last_seen: Timestamp,
    now: Timestamp,
) -> Result<(), DbError> {
    let away = now.0.saturating_sub(last_seen.0);
    for (table, column, open) in WAITS {
        tx.execute(
            &format!(
                "UPDATE {table} SET {column} = {column} + ?1 WHERE {column} IS NOT NULL AND {open}"
            ),
            &[away.into()],
        )?;
    }
    Ok(())
}
