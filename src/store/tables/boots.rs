//! The store's own tables: boots of the daemon, the store's metadata, its counter.

use super::columns::{opt_time, time};
use crate::kernel::ids::BootId;
use crate::kernel::time::{Moment, Timestamp};
use crate::store::tx::{DbError, Tx, first, number};

/// Reserves `count` new sequence numbers; returns the first.
fn take_seqs(tx: &mut dyn Tx, count: i64) -> Result<i64, DbError> {
    let last = first(
        tx,
        "UPDATE counters SET value = value + ?1 WHERE name = 'seq' RETURNING value",
        &[count.into()],
        |row| row.int(0),
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

/// A metadata value of this store, such as its id.
pub fn meta(tx: &mut dyn Tx, name: &str) -> Result<Option<String>, DbError> {
    first(
        tx,
        "SELECT value FROM meta WHERE name = ?1",
        &[name.into()],
        |row| Ok(row.text(0)?.to_owned()),
    )
}

/// The value is stored, unless one of that name exists.
pub fn set_meta_once(tx: &mut dyn Tx, name: &str, value: &str) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING",
        &[name.into(), value.into()],
    )
    .map(|_| ())
}

/// The value is stored; an earlier one of that name is replaced.
pub fn set_meta(tx: &mut dyn Tx, name: &str, value: &str) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO meta (name, value) VALUES (?1, ?2) \
         ON CONFLICT (name) DO UPDATE SET value = ?2",
        &[name.into(), value.into()],
    )
    .map(|_| ())
}

/// No value of that name is stored.
pub fn clear_meta(tx: &mut dyn Tx, name: &str) -> Result<(), DbError> {
    tx.execute("DELETE FROM meta WHERE name = ?1", &[name.into()])
        .map(|_| ())
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
            env!("CARGO_PKG_VERSION").into(),
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
        |row| Ok((time(row, 0)?, opt_time(row, 1)?)),
    )?;
    let Some((started, ended)) = boot else {
        return Ok(None);
    };
    if ended.is_some() {
        return Ok(ended);
    }
    let event = first(
        tx,
        "SELECT at FROM events ORDER BY cursor DESC LIMIT 1",
        &[],
        |row| time(row, 0),
    )?;
    Ok(Some(event.map_or(started, |event| event.max(started))))
}

/// The boot is recorded as cleanly ended.
pub fn end(tx: &mut dyn Tx, boot: BootId, now: Moment) -> Result<(), DbError> {
    tx.execute(
        "UPDATE boots SET ended_at = ?2, alive_ms = ?3 WHERE id = ?1",
        &[(&boot.0).into(), now.wall.0.into(), now.steady.0.into()],
    )
    .map(|_| ())
}

/// The process of this boot was alive at this reading of its steady clock.
pub fn set_alive(tx: &mut dyn Tx, boot: BootId, steady: Timestamp) -> Result<(), DbError> {
    tx.execute(
        "UPDATE boots SET alive_ms = ?2 WHERE id = ?1",
        &[(&boot.0).into(), steady.0.into()],
    )
    .map(|_| ())
}

/// The last stored reading of the latest boot's steady clock; zero if there is none.
pub fn last_alive(tx: &mut dyn Tx) -> Result<Timestamp, DbError> {
    let sql = "SELECT alive_ms FROM boots ORDER BY seq DESC LIMIT 1";
    number(tx, sql, &[]).map(Timestamp)
}
