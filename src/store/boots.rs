//! The tables that belong to the store itself: lives of the daemon, its id, its counter.

use super::columns::{opt_time, time};
use super::tx::{DbError, Tx, first, number};
use crate::kernel::ids::BootId;
use crate::kernel::time::{Moment, Timestamp};

/// Takes `count` numbers that nobody had before; the first of them.
fn take_seqs(tx: &mut dyn Tx, count: i64) -> Result<i64, DbError> {
    let last = first(
        tx,
        "UPDATE counters SET value = value + ?1 WHERE name = 'seq' RETURNING value",
        &[count.into()],
        |row| row.int(0),
    )?;
    Ok(last.unwrap_or(count) - count + 1)
}

/// Numbers of the store's counter, taken from its row in blocks: most commands then neither
/// wait for that row nor write its page. What a process does not use up is a gap for ever.
#[derive(Debug, Default)]
pub struct Sequence {
    next: i64,
    end: i64,
}

/// So many numbers are taken from the row at once.
const BLOCK: i64 = 1024;

impl Sequence {
    /// Takes `count` numbers that nobody had before; the first of them.
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

    /// The last number that was taken; `None` where that is not known.
    pub fn last(&self) -> Option<i64> {
        (self.next > 0).then(|| self.next - 1)
    }

    /// What was done since some number was taken is undone, and the taking of the block may
    /// be among it: its numbers must not be given away.
    pub fn undone(&mut self) {
        *self = Sequence::default();
    }
}

/// The highest number that was taken.
pub fn last_seq(tx: &mut dyn Tx) -> Result<i64, DbError> {
    number(tx, "SELECT value FROM counters WHERE name = 'seq'", &[])
}

/// A text of this store, such as its id.
pub fn meta(tx: &mut dyn Tx, name: &str) -> Result<Option<String>, DbError> {
    first(
        tx,
        "SELECT value FROM meta WHERE name = ?1",
        &[name.into()],
        |row| Ok(row.text(0)?.to_owned()),
    )
}

/// The text is kept, unless there is one of that name.
pub fn set_meta_once(tx: &mut dyn Tx, name: &str, value: &str) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING",
        &[name.into(), value.into()],
    )
    .map(|_| ())
}

/// The text is kept, in place of one of that name.
pub fn set_meta(tx: &mut dyn Tx, name: &str, value: &str) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO meta (name, value) VALUES (?1, ?2) \
         ON CONFLICT (name) DO UPDATE SET value = ?2",
        &[name.into(), value.into()],
    )
    .map(|_| ())
}

/// There is no text of that name.
pub fn clear_meta(tx: &mut dyn Tx, name: &str) -> Result<(), DbError> {
    tx.execute("DELETE FROM meta WHERE name = ?1", &[name.into()])
        .map(|_| ())
}

/// This life of the daemon is known; whether the one before it ended uncleanly.
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

/// When an earlier life was last there: its clean end, or the last thing that it wrote down.
/// `None`: there was none.
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

/// This life of the daemon ended cleanly.
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

/// The last reading of the latest boot's steady clock that was stored; zero where it stored none.
pub fn last_alive(tx: &mut dyn Tx) -> Result<Timestamp, DbError> {
    let sql = "SELECT alive_ms FROM boots ORDER BY seq DESC LIMIT 1";
    number(tx, sql, &[]).map(Timestamp)
}
