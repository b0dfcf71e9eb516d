//! The store's own tables: boots of the daemon with the time between them, the store's metadata, its
//! counter.

use super::columns::{to_json, values};
use crate::kernel::ages::{BootBaseline, ClockTrust, HostBoot};
use crate::kernel::ids::BootId;
use crate::kernel::time::{Moment, Timestamp};
use crate::store::tx::{DbError, Tx, execute, first, number};
use crate::version::version;

/// Reserves `count` new sequence numbers; returns the first.
fn take_seqs(tx: &mut dyn Tx, count: i64) -> Result<i64, DbError> {
    let last = first(
        tx,
        "UPDATE counters SET value = value + ?1 WHERE name = 'seq' RETURNING value",
        &[count.into()],
        values,
    )?;
    Ok(last.unwrap_or(count) - count + 1)
}

/// Sequence numbers, taken from the counter row in blocks, so that most commands neither wait for
/// that row nor write its page. Numbers that a process does not use remain gaps.
#[derive(Debug, Default)]
pub struct Sequence {
    next: i64,
    end: i64,
}

/// Number of sequence numbers reserved from the row in one write.
const BLOCK: i64 = 1024;

impl Sequence {
    /// Reserves `count` new numbers; returns the first.
    pub fn take(&mut self, tx: &mut dyn Tx, count: i64) -> Result<i64, DbError> {
        if self.end - self.next < count {
            let block = count.max(BLOCK);
            self.next = take_seqs(tx, block)?;
            self.end = self.next + block;
        }
        let first = self.next;
        self.next += count;
        Ok(first)
    }

    /// The last number that was given out; `None` if it is not known.
    pub fn last(&self) -> Option<i64> {
        (self.next > 0).then(|| self.next - 1)
    }

    /// Drops the current block after a rollback. The rollback may have undone the reservation of
    /// the block, so its numbers must not be given out.
    pub fn undone(&mut self) {
        *self = Sequence::default();
    }
}

/// The highest number that was reserved.
pub fn last_seq(tx: &mut dyn Tx) -> Result<i64, DbError> {
    number(tx, "SELECT value FROM counters WHERE name = 'seq'", &[])
}

/// When the first process opened the store.
pub fn first_start(tx: &mut dyn Tx) -> Result<Option<Timestamp>, DbError> {
    first(
        tx,
        "SELECT started_at FROM boots ORDER BY seq LIMIT 1",
        &[],
        values,
    )
}

/// A metadata value of this store, such as its id.
pub fn meta(tx: &mut dyn Tx, name: &str) -> Result<Option<String>, DbError> {
    first(
        tx,
        "SELECT value FROM meta WHERE name = ?1",
        &[name.into()],
        values,
    )
}

/// The value is stored, unless one of that name exists.
pub fn set_meta_once(tx: &mut dyn Tx, name: &str, value: &str) -> Result<(), DbError> {
    execute(
        tx,
        "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING",
        &[name.into(), value.into()],
    )
}

/// The value is stored; an earlier one of that name is replaced.
pub fn set_meta(tx: &mut dyn Tx, name: &str, value: &str) -> Result<(), DbError> {
    execute(
        tx,
        "INSERT INTO meta (name, value) VALUES (?1, ?2) \
         ON CONFLICT (name) DO UPDATE SET value = ?2",
        &[name.into(), value.into()],
    )
}

/// No value of that name is stored.
pub fn clear_meta(tx: &mut dyn Tx, name: &str) -> Result<(), DbError> {
    execute(tx, "DELETE FROM meta WHERE name = ?1", &[name.into()])
}

/// The boot is recorded; returns whether the previous one ended uncleanly.
pub fn begin(
    tx: &mut dyn Tx,
    seq: i64,
    boot: BootId,
    pid: u32,
    now: Timestamp,
) -> Result<bool, DbError> {
    let unclean = number(
        tx,
        "SELECT ended_at IS NULL FROM boots ORDER BY seq DESC LIMIT 1",
        &[],
    )? != 0;
    tx.execute(
        "INSERT INTO boots (seq, id, pid, version, started_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        &[
            seq.into(),
            (&boot.0).into(),
            pid.into(),
            version().into(),
            now.0.into(),
        ],
    )?;
    Ok(unclean)
}

/// When the previous process was last active: its clean end, or its last recorded event. `None`
/// if there was no boot before.
pub fn last_seen(tx: &mut dyn Tx) -> Result<Option<Timestamp>, DbError> {
    let boot = first(
        tx,
        "SELECT started_at, ended_at FROM boots ORDER BY seq DESC LIMIT 1",
        &[],
        values::<(Timestamp, Option<Timestamp>)>,
    )?;
    let Some((started, ended)) = boot else {
        return Ok(None);
    };
    if ended.is_some() {
        return Ok(ended);
    }
    let event: Option<Timestamp> = first(
        tx,
        "SELECT at FROM events ORDER BY cursor DESC LIMIT 1",
        &[],
        values,
    )?;
    Ok(Some(event.map_or(started, |event| event.max(started))))
}

/// The boot is recorded as cleanly ended.
pub fn end(tx: &mut dyn Tx, boot: BootId, now: Moment) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE boots SET ended_at = ?2, alive_ms = ?3 WHERE id = ?1",
        &[(&boot.0).into(), now.wall.0.into(), now.steady.0.into()],
    )
}

/// The process of this boot was alive at this reading of its steady clock.
pub fn set_alive(tx: &mut dyn Tx, boot: BootId, steady: Timestamp) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE boots SET alive_ms = ?2 WHERE id = ?1",
        &[(&boot.0).into(), steady.0.into()],
    )
}

/// The last stored reading of the latest boot's steady clock; zero if there is none.
pub fn last_alive(tx: &mut dyn Tx) -> Result<Timestamp, DbError> {
    let sql = "SELECT alive_ms FROM boots ORDER BY seq DESC LIMIT 1";
    number(tx, sql, &[]).map(Timestamp)
}

/// Name of the `meta` row with the machine's start time.
const BASELINE: &str = "machine";

/// How far the wall clock can be trusted since `last_seen`. The next start compares with this
/// machine's start time.
pub fn clock_trust(
    tx: &mut dyn Tx,
    now: Timestamp,
    last_seen: Option<Timestamp>,
    machine: Option<&HostBoot>,
    max_age_ms: u64,
) -> Result<ClockTrust, DbError> {
    // A baseline that does not decode is treated as missing.
    let known = meta(tx, BASELINE)?;
    let known: Option<BootBaseline> = known.and_then(|text| serde_json::from_str(&text).ok());
    let (trust, next) = ClockTrust::of(now, last_seen, machine, known, max_age_ms);
    if let Some(next) = next {
        set_meta(tx, BASELINE, &to_json(&next))?;
    }
    Ok(trust)
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
