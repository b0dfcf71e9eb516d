//! What a start makes of the time since the process before: how far the clock is believed, and
//! that nothing which was waited for has run out meanwhile. The command that begins a life of the
//! daemon calls it.

use super::boots;
use super::columns::to_json;
use super::tx::{DbError, Tx};
use crate::kernel::ages::{Baseline, Machine, Sight};
use crate::kernel::time::Timestamp;

/// Under which name the machine's start is kept.
const BASELINE: &str = "machine";

/// How far the clock can be believed; from then on the next start judges by this machine's start.
pub fn sight(
    tx: &mut dyn Tx,
    now: Timestamp,
    last_seen: Option<Timestamp>,
    machine: Option<&Machine>,
    max_age_ms: u64,
) -> Result<Sight, DbError> {
    // A text that cannot be read is as good as none.
    let known = boots::meta(tx, BASELINE)?;
    let known: Option<Baseline> = known.and_then(|text| serde_json::from_str(&text).ok());
    let (sight, next) = Sight::of(now, last_seen, machine, known, max_age_ms);
    if let Some(next) = next {
        boots::set_meta(tx, BASELINE, &to_json(&next))?;
    }
    Ok(sight)
}

/// Where points in time are stored until which something open waits.
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

/// Whatever is waited for has as much time left at `now` as it had at `last_seen`: while nobody
/// was there to answer, and whatever was done to the clock, no time is over.
pub fn wait_on(tx: &mut dyn Tx, last_seen: Timestamp, now: Timestamp) -> Result<(), DbError> {
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
