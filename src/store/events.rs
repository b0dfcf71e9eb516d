//! The table of events: the ordered log of what has happened.

use serde_json::Value;

use super::columns::{json, named, opt_uuid, time, to_json, whole};
use super::tx::{DbError, Row, Tx, all, first};
use crate::kernel::action::EventKind;
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::time::Timestamp;

/// An event that has no cursor yet.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// What happened.
    pub kind: EventKind,
    /// The tenant.
    pub org: String,
    /// In which session.
    pub session: Option<SessionId>,
    /// To which run.
    pub run: Option<RunId>,
    /// That run's parent.
    pub parent_run: Option<RunId>,
    /// Details.
    pub data: Value,
}

/// One event of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its place: strictly rising, never given twice.
    pub cursor: i64,
    /// When.
    pub at: Timestamp,
    /// What, where and to whom.
    pub event: NewEvent,
}

/// The columns that [`read`] reads, in its order.
pub const COLUMNS: &str = "cursor, at, kind, org, session_id, run_id, parent_run, data";

fn read(row: &dyn Row) -> Result<Event, DbError> {
    whole(row, "events", &[("cursor", 0)], decode)
}

/// An event out of [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Event, DbError> {
    Ok(Event {
        cursor: row.int(0)?,
        at: time(row, 1)?,
        event: NewEvent {
            kind: named(row, 2, EventKind::parse)?,
            org: row.text(3)?.to_owned(),
            session: opt_uuid(row, 4)?.map(SessionId),
            run: opt_uuid(row, 5)?.map(RunId),
            parent_run: opt_uuid(row, 6)?.map(RunId),
            data: json(row, 7)?,
        },
    })
}

/// The event is in the log at `cursor`.
pub fn insert(
    tx: &mut dyn Tx,
    cursor: i64,
    event: &NewEvent,
    now: Timestamp,
) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO events (cursor, at, kind, org, session_id, run_id, parent_run, data) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        &[
            cursor.into(),
            now.0.into(),
            event.kind.as_str().into(),
            (&event.org).into(),
            event.session.as_ref().map(|id| &id.0).into(),
            event.run.as_ref().map(|id| &id.0).into(),
            event.parent_run.as_ref().map(|id| &id.0).into(),
            (&to_json(&event.data)).into(),
        ],
    )
    .map(|_| ())
}

/// When the oldest event happened.
pub fn oldest(tx: &mut dyn Tx) -> Result<Option<Timestamp>, DbError> {
    first(
        tx,
        "SELECT at FROM events ORDER BY cursor LIMIT 1",
        &[],
        |row| time(row, 0),
    )
}

/// Some of the oldest events are gone, if they are from before this point; how many.
pub fn remove_some(tx: &mut dyn Tx, before: Timestamp, limit: u32) -> Result<u64, DbError> {
    let oldest = all(
        tx,
        &format!("SELECT cursor, at FROM events ORDER BY cursor LIMIT {limit}"),
        &[],
        |row| Ok((row.int(0)?, time(row, 1)?)),
    )?;
    let old = oldest.iter().take_while(|(_, at)| *at <= before).last();
    match old {
        Some((cursor, _)) => {
            tx.execute("DELETE FROM events WHERE cursor <= ?1", &[(*cursor).into()])
        }
        None => Ok(0),
    }
}

/// The events after `cursor`, in order.
pub fn after(tx: &mut dyn Tx, cursor: i64, limit: u32) -> Result<Vec<Event>, DbError> {
    all(
        tx,
        &format!("SELECT {COLUMNS} FROM events WHERE cursor > ?1 ORDER BY cursor LIMIT {limit}"),
        &[cursor.into()],
        read,
    )
}
