//! The table of messages: transcripts, without gaps, append only.

use super::columns::{json, named, opt_json, opt_string, opt_uuid, time, to_json, uuid, whole};
use super::sessions;
use super::tx::{DbError, Row, Tx, all, number};
use crate::kernel::ids::{AnnounceId, MessageId, RunId, SessionId};
use crate::kernel::message::{Message, MessageKind, NewMessage, Origin, Role};
use crate::kernel::time::Timestamp;

/// The columns that [`read`] reads, in its order.
pub const COLUMNS: &str = "id, seq, at, role, kind, origin, run_id, content, tool_call, announce_id, \
     silent, metadata, session_id";

fn read(row: &dyn Row) -> Result<Message, DbError> {
    whole(row, "messages", &[("session_id", 12), ("seq", 1)], decode)
}

/// A message out of [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Message, DbError> {
    Ok(Message {
        id: MessageId(uuid(row, 0)?),
        seq: row.int(1)?,
        at: time(row, 2)?,
        role: named(row, 3, Role::parse)?,
        kind: named(row, 4, MessageKind::parse)?,
        origin: named(row, 5, Origin::parse)?,
        run: opt_uuid(row, 6)?.map(RunId),
        content: json(row, 7)?,
        tool_call: opt_string(row, 8)?,
        announce: opt_uuid(row, 9)?.map(AnnounceId),
        silent: row.int(10)? != 0,
        metadata: opt_json(row, 11)?,
    })
}

/// The messages stand at the end of the transcript, in this order.
pub fn append(
    tx: &mut dyn Tx,
    session: SessionId,
    generation: i64,
    new: Vec<NewMessage>,
    now: Timestamp,
) -> Result<Vec<Message>, DbError> {
    if new.is_empty() {
        return Ok(Vec::new());
    }
    let first = sessions::take_seqs(tx, session, new.len() as i64, now.0)?;
    let mut appended = Vec::with_capacity(new.len());
    for (seq, new) in (first..).zip(new) {
        insert(tx, session, generation, seq, &new, now)?;
        appended.push(new.at(seq, now));
    }
    Ok(appended)
}

/// The message stands at `seq`, a place that the caller has taken.
pub fn insert(
    tx: &mut dyn Tx,
    session: SessionId,
    generation: i64,
    seq: i64,
    new: &NewMessage,
    now: Timestamp,
) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO messages (session_id, seq, generation, id, at, role, kind, origin, run_id, \
         content, tool_call, announce_id, silent, metadata) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        &[
            (&session.0).into(),
            seq.into(),
            generation.into(),
            (&new.id.0).into(),
            now.0.into(),
            new.role.as_str().into(),
            new.kind.as_str().into(),
            new.origin.as_str().into(),
            new.run.as_ref().map(|id| &id.0).into(),
            (&to_json(&new.content)).into(),
            new.tool_call.as_deref().into(),
            new.announce.as_ref().map(|id| &id.0).into(),
            new.silent.into(),
            new.metadata.as_ref().map(to_json).as_deref().into(),
        ],
    )
    .map(|_| ())
}

/// The last `limit` messages, oldest first.
pub fn last(tx: &mut dyn Tx, session: SessionId, limit: u32) -> Result<Vec<Message>, DbError> {
    before(tx, session, i64::MAX, limit, true)
}

/// The `limit` messages just before `seq`, oldest first. Without `tools`, calls and results
/// of tools are left out.
pub fn before(
    tx: &mut dyn Tx,
    session: SessionId,
    seq: i64,
    limit: u32,
    tools: bool,
) -> Result<Vec<Message>, DbError> {
    let mut found = all(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM messages WHERE session_id = ?1 AND seq < ?2 {} \
             ORDER BY seq DESC LIMIT {limit}",
            without(tools)
        ),
        &[(&session.0).into(), seq.into()],
        read,
    )?;
    found.reverse();
    Ok(found)
}

/// The `limit` messages just after `seq`, oldest first.
pub fn after(
    tx: &mut dyn Tx,
    session: SessionId,
    seq: i64,
    limit: u32,
    tools: bool,
) -> Result<Vec<Message>, DbError> {
    all(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM messages WHERE session_id = ?1 AND seq > ?2 {} \
             ORDER BY seq LIMIT {limit}",
            without(tools)
        ),
        &[(&session.0).into(), seq.into()],
        read,
    )
}

fn without(tools: bool) -> &'static str {
    if tools {
        ""
    } else {
        "AND kind NOT IN ('tool_call', 'tool_result')"
    }
}

/// How many announces stand above `seq` that a turn must see; those of an inbox wait for
/// nobody's turn.
pub fn announces_above(tx: &mut dyn Tx, session: SessionId, seq: i64) -> Result<i64, DbError> {
    number(
        tx,
        "SELECT count(*) FROM messages JOIN outbox ON outbox.announce_id = messages.announce_id \
         WHERE messages.session_id = ?1 AND messages.seq > ?2 AND messages.kind = 'announce' \
         AND outbox.policy = 'wake'",
        &[(&session.0).into(), seq.into()],
    )
}
