//! The table of events: the ordered log of what happened.

use serde_json::value::RawValue;

use super::columns::{columns_of, keyed, to_json, values};
use super::table::{self, read, table};
use crate::kernel::event::{EventData, EventKind};
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Tx, all, first, number, sql};

/// An event that has no cursor yet.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// The tenant; empty for events about the daemon itself.
    pub org: String,
    /// The session it concerns.
    pub session: Option<SessionId>,
    /// The run it concerns.
    pub run: Option<RunId>,
    /// Details, which determine its kind.
    pub data: EventData,
}

/// Data about an event's session and run besides their ids, stored with the event so that it can
/// be filtered and shown after their rows are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// Key of the session.
    pub session_key: Option<String>,
    /// Parent of the run.
    pub parent_run: Option<RunId>,
    /// The root run of its tree.
    pub root_run: Option<RunId>,
    /// Id of its trace.
    pub trace_id: Option<String>,
}

/// One event of the log, with the fields that readers need.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its position in the log: strictly rising, never reused.
    pub cursor: i64,
    /// When it happened.
    pub at: Timestamp,
    /// The kind of event; a kind unknown to this program is passed on.
    pub kind: String,
    /// The tenant; empty for events about the daemon itself.
    pub org: String,
    /// The run it concerns.
    pub run: Option<RunId>,
    /// Session key, parent, root and trace.
    pub circumstances: Circumstances,
    /// Details, a JSON object.
    pub data: Box<RawValue>,
}

table! {
    events: Event;
    key { cursor }
    insert {
        at,
        kind,
        org,
        run(run_id),
        circumstances(session_key, parent_run, root_run, trace_id),
        data,
    }
    beside { session_id: Option<SessionId> }
    undecodable Moved {}
}

columns_of!(Circumstances {
    session_key,
    parent_run,
    root_run,
    trace_id
});

/// The event is in the log at `cursor`.
pub fn insert(
    tx: &mut dyn Tx,
    cursor: i64,
    event: &NewEvent,
    about: &Circumstances,
    now: Timestamp,
) -> Result<(), DbError> {
    let data = RawValue::from_string(to_json(&event.data));
    let row = Event {
        cursor,
        at: now,
        kind: event.data.kind().as_str().to_owned(),
        org: event.org.clone(),
        run: event.run,
        circumstances: about.clone(),
        data: data.map_err(|fault| DbError::undecodable(0, fault))?,
    };
    table::insert(tx, &row, [event.session.as_ref().into()])
}

/// When the oldest event happened.
pub fn oldest(tx: &mut dyn Tx) -> Result<Option<Timestamp>, DbError> {
    first(
        tx,
        "SELECT at FROM events ORDER BY cursor LIMIT 1",
        &[],
        values,
    )
}

/// The cursor of the last of at most `limit` oldest events from before this time.
pub fn end_of_old(tx: &mut dyn Tx, before: Timestamp, limit: u32) -> Result<Option<i64>, DbError> {
    let oldest: Vec<(i64, Timestamp)> = all(
        tx,
        &format!("SELECT cursor, at FROM events ORDER BY cursor LIMIT {limit}"),
        &[],
        values,
    )?;
    let old = oldest.iter().take_while(|(_, at)| *at <= before).last();
    Ok(old.map(|(cursor, _)| *cursor))
}

/// The events up to this cursor are deleted; returns their number.
pub fn remove_to(tx: &mut dyn Tx, cursor: i64) -> Result<u64, DbError> {
    tx.execute("DELETE FROM events WHERE cursor <= ?1", &[cursor.into()])
}

/// Org, kind and session key of the events after `from`, up to `to`.
pub fn outlines(
    tx: &mut dyn Tx,
    from: i64,
    to: i64,
) -> Result<Vec<(String, String, Option<String>)>, DbError> {
    all(
        tx,
        "SELECT org, kind, session_key FROM events WHERE cursor > ?1 AND cursor <= ?2",
        &[from.into(), to.into()],
        |row| {
            let (org, kind) = (row.text(0)?.to_owned(), row.text(1)?.to_owned());
            Ok((org, kind, row.opt_text(2)?.map(str::to_owned)))
        },
    )
}

/// The event with this cursor.
pub fn get(tx: &mut dyn Tx, cursor: i64) -> Result<Option<Event>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM events WHERE cursor = ?1");
    first(tx, sql, &[cursor.into()], read)
}

/// The number of events after `cursor`, at most `limit`, and when the first of them happened.
pub fn count_after(
    tx: &mut dyn Tx,
    cursor: i64,
    limit: u32,
) -> Result<(i64, Option<Timestamp>), DbError> {
    let sql = "SELECT at FROM events WHERE cursor > ?1 ORDER BY cursor LIMIT 1";
    let since = first(tx, sql, &[cursor.into()], values)?;
    let sql =
        format!("SELECT count(*) FROM (SELECT 1 FROM events WHERE cursor > ?1 LIMIT {limit})");
    Ok((number(tx, &sql, &[cursor.into()])?, since))
}

/// The key of a session, for an event about it.
pub fn key_of(tx: &mut dyn Tx, session: SessionId) -> Result<Option<String>, DbError> {
    first(
        tx,
        "SELECT key FROM sessions WHERE id = ?1",
        &[(&session).into()],
        values,
    )
}

/// Parent, root and trace of a run, for an event about it.
pub fn tree_of(tx: &mut dyn Tx, run: RunId) -> Result<Option<Circumstances>, DbError> {
    first(
        tx,
        "SELECT parent_run, root_run, trace_id FROM runs WHERE id = ?1",
        &[(&run).into()],
        |row| {
            let (parent_run, root_run, trace_id) = values(row)?;
            Ok(Circumstances {
                session_key: None,
                parent_run,
                root_run,
                trace_id,
            })
        },
    )
}

/// The result of reading the log from a cursor.
#[derive(Debug)]
pub enum LogPart {
    /// The events after the requested cursor, in order; empty if there are no more yet.
    Events(Vec<Event>),
    /// Some of the requested events are expired. The log is complete after this cursor.
    Expired(i64),
}

/// The events after `cursor`, in order, at most `limit`.
pub fn after(tx: &mut dyn Tx, cursor: i64, limit: u32) -> Result<LogPart, DbError> {
    let expired = expired(tx)?;
    if cursor < expired {
        return Ok(LogPart::Expired(expired));
    }
    let found = all(
        tx,
        &format!("SELECT {COLUMNS} FROM events WHERE cursor > ?1 ORDER BY cursor LIMIT {limit}"),
        &[cursor.into()],
        read,
    )?;
    Ok(LogPart::Events(found))
}

/// Runs that ended, or were queued by other runs, shortly before the event with this cursor:
/// within `within_ms` milliseconds, and among the `most` events before it.
pub fn shortly_before(
    tx: &mut dyn Tx,
    cursor: i64,
    within_ms: i64,
    most: i64,
) -> Result<Vec<(RunId, EventKind)>, DbError> {
    let at = "SELECT at FROM events WHERE cursor = ?1";
    let Some(at) = first(tx, at, &[cursor.into()], values::<i64>)? else {
        return Ok(Vec::new());
    };
    all(
        tx,
        "SELECT run_id, kind, cursor FROM events \
         WHERE cursor > ?1 AND cursor <= ?2 AND at >= ?3 AND run_id IS NOT NULL \
         AND (kind = 'run.ended' OR (kind = 'run.queued' AND parent_run IS NOT NULL)) \
         ORDER BY cursor",
        &[
            (cursor - most).into(),
            cursor.into(),
            (at - within_ms).into(),
        ],
        keyed("events", KEY),
    )
}

/// Events up to this cursor may be deleted; those after it are all present.
pub fn expired(tx: &mut dyn Tx) -> Result<i64, DbError> {
    number(tx, "SELECT up_to FROM events_expired", &[])
}

/// The cursor of the last event; 0 if there is none.
pub fn last(tx: &mut dyn Tx) -> Result<i64, DbError> {
    number(tx, "SELECT coalesce(max(cursor), 0) FROM events", &[])
}
