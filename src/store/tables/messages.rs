//! The table of messages: append-only transcripts without gaps.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::columns::{
    at, json_by, named, opt_json, opt_string, opt_uuid, time, to_json, uuid, whole,
};
use super::sessions;
use crate::kernel::delegation::{called, pack};
use crate::kernel::ids::{AnnounceId, MessageId, RunId, SessionId};
use crate::kernel::run::Run;
use crate::kernel::session::blocks::Blocks;
use crate::kernel::session::message::{Message, MessageKind, NewMessage, Origin, Role};
use crate::kernel::session::stored_content::{StoredContent, StoredMessage};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Param, Row, Tx, all, first, insert_row, number, update_rows};

/// The columns that [`read`] decodes.
pub const COLUMNS: &str = "id, seq, at, role, kind, origin, run_id, content, tool_call, announce_id, \
     silent, metadata, session_id, generation, child_run";

/// A Rust type that a transcript entry is decoded into.
pub trait Form: Sized {
    /// Decodes one entry from [`COLUMNS`].
    fn decode(row: &dyn Row) -> Result<Self, DbError>;
}

impl Form for Message {
    fn decode(row: &dyn Row) -> Result<Self, DbError> {
        decode(row)
    }
}

impl Form for StoredMessage {
    fn decode(row: &dyn Row) -> Result<Self, DbError> {
        entry(row, json_by(row, at!(content), StoredContent::read)?)
    }
}

fn read<M: Form>(row: &dyn Row) -> Result<M, DbError> {
    whole(
        row,
        "messages",
        &[("session_id", at!(session_id)), ("seq", at!(seq))],
        M::decode,
    )
}

/// Decodes a message from [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Message, DbError> {
    entry(row, json_by(row, at!(content), Blocks::stored)?)
}

fn entry<Content, Metadata: DeserializeOwned>(
    row: &dyn Row,
    content: Content,
) -> Result<Message<Content, Metadata>, DbError> {
    Ok(Message {
        id: MessageId(uuid(row, at!(id))?),
        seq: row.int(at!(seq))?,
        generation: row.int(at!(generation))?,
        at: time(row, at!(at))?,
        role: named(row, at!(role), Role::parse)?,
        kind: named(row, at!(kind), MessageKind::parse)?,
        origin: named(row, at!(origin), Origin::parse)?,
        run: opt_uuid(row, at!(run_id))?.map(RunId),
        content,
        tool_call: opt_string(row, at!(tool_call))?,
        child_run: opt_uuid(row, at!(child_run))?.map(RunId),
        announce: opt_uuid(row, at!(announce_id))?.map(AnnounceId),
        silent: row.int(at!(silent))? != 0,
        metadata: opt_json(row, at!(metadata))?,
    })
}

/// The messages are at the end of the transcript, in this order.
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
    let from = sessions::take_seqs(tx, session, new.len() as i64, now.0)?;
    let mut appended = Vec::with_capacity(new.len());
    for (seq, new) in (from..).zip(new) {
        insert(tx, session, generation, seq, &new, now)?;
        appended.push(new.at(seq, generation, now));
    }
    Ok(appended)
}

/// The message is at `seq`, which the caller has reserved.
pub fn insert(
    tx: &mut dyn Tx,
    session: SessionId,
    generation: i64,
    seq: i64,
    new: &NewMessage,
    now: Timestamp,
) -> Result<(), DbError> {
    insert_row(
        tx,
        "messages",
        &[
            ("session_id", (&session.0).into()),
            ("seq", seq.into()),
            ("generation", generation.into()),
            ("id", (&new.id.0).into()),
            ("at", now.0.into()),
            ("role", new.role.as_str().into()),
            ("kind", new.kind.as_str().into()),
            ("origin", new.origin.as_str().into()),
            ("run_id", new.run.as_ref().map(|id| &id.0).into()),
            ("content", (&to_json(&new.content)).into()),
            ("tool_call", new.tool_call.as_deref().into()),
            ("child_run", new.child_run.as_ref().map(|id| &id.0).into()),
            ("announce_id", new.announce.as_ref().map(|id| &id.0).into()),
            ("silent", new.silent.into()),
            (
                "metadata",
                new.metadata.as_ref().map(to_json).as_deref().into(),
            ),
        ],
    )
}

/// A filter for the entries of a transcript part.
#[derive(Clone, Copy, Debug)]
struct Which {
    /// A condition appended to the others; `{own}` stands for the parameter of `own`.
    sql: &'static str,
    own: Option<RunId>,
}

impl Which {
    const ALL: Which = Which { sql: "", own: None };

    fn with(tools: bool) -> Which {
        match tools {
            true => Which::ALL,
            false => Which {
                sql: "AND kind NOT IN ('tool_call', 'tool_result')",
                own: None,
            },
        }
    }

    /// The entries that the model of this run may see. Inner steps of called agents are filtered
    /// out here, so that they do not use up the limit.
    fn shown_to(run: &Run) -> Which {
        match run.is_called() {
            true => Which {
                sql: "AND (child_run IS NULL OR child_run = {own} \
                      OR kind IN ('sub_agent_user', 'sub_agent_ai'))",
                own: Some(run.id),
            },
            false => Which {
                sql: "AND child_run IS NULL",
                own: None,
            },
        }
    }

    /// The condition with its parameter number, and `params` extended by its own parameter.
    fn bind<'a>(&'a self, mut params: Vec<Param<'a>>) -> (String, Vec<Param<'a>>) {
        let Some(own) = &self.own else {
            return (self.sql.to_owned(), params);
        };
        params.push((&own.0).into());
        let place = format!("?{}", params.len());
        (self.sql.replace("{own}", &place), params)
    }
}

/// A part of a transcript: one session up to a seq, one generation or all.
#[derive(Clone, Copy, Debug)]
struct Part {
    session: SessionId,
    generation: Option<i64>,
    up_to: i64,
}

/// The parts of a session's transcript, newest first: its own messages, then those of the session
/// that it was forked from, and so on. After a reset, its `generation` has no forked part.
fn parts(
    tx: &mut dyn Tx,
    session: SessionId,
    generation: Option<i64>,
) -> Result<Vec<Part>, DbError> {
    let mut parts = vec![Part {
        session,
        generation,
        up_to: i64::MAX,
    }];
    let mut at = (session, generation.unwrap_or(FIRST_GENERATION));
    while at.1 == FIRST_GENERATION
        && let Some(fork) = sessions::fork_of(tx, at.0)?
    {
        parts.push(Part {
            session: fork.of,
            generation: Some(fork.generation),
            up_to: fork.seq,
        });
        at = (fork.of, fork.generation);
    }
    Ok(parts)
}

/// The generation that a new session starts with.
const FIRST_GENERATION: i64 = 1;

/// The messages that the model of this run may see: the last `limit` of its generation, oldest
/// first. The caller's conversation has a called agent's result but not its inner steps; the
/// called agent gets a view of its own.
pub fn window(tx: &mut dyn Tx, run: &Run, limit: u32) -> Result<Vec<Message>, DbError> {
    let parts = parts(tx, run.session, Some(run.generation))?;
    let found = last_of(tx, &parts, i64::MAX, limit, Which::shown_to(run))?;
    Ok(as_seen_by(run, found))
}

/// The messages after `seq` that the model of this run may see, filtered as in [`window`].
pub fn window_after(
    tx: &mut dyn Tx,
    run: &Run,
    seq: i64,
    limit: u32,
) -> Result<Vec<Message>, DbError> {
    let parts = parts(tx, run.session, Some(run.generation))?;
    let found = after_which(tx, &parts, seq, limit, Which::shown_to(run))?;
    Ok(as_seen_by(run, found))
}

fn as_seen_by(run: &Run, found: Vec<Message>) -> Vec<Message> {
    match run.is_called() {
        true => called::seen_by(run, found),
        false => found,
    }
}

/// The last `limit` messages of all generations, oldest first.
pub fn last(tx: &mut dyn Tx, session: SessionId, limit: u32) -> Result<Vec<Message>, DbError> {
    before(tx, session, i64::MAX, limit, true)
}

/// The `limit` messages just before `seq`, oldest first. Without `tools`, tool calls and tool
/// results are left out.
pub fn before<M: Form>(
    tx: &mut dyn Tx,
    session: SessionId,
    seq: i64,
    limit: u32,
    tools: bool,
) -> Result<Vec<M>, DbError> {
    let parts = parts(tx, session, None)?;
    last_of(tx, &parts, seq, limit, Which::with(tools))
}

fn last_of<M: Form>(
    tx: &mut dyn Tx,
    parts: &[Part],
    seq: i64,
    limit: u32,
    which: Which,
) -> Result<Vec<M>, DbError> {
    let mut found = Vec::new();
    for part in parts {
        let left = limit - found.len() as u32;
        if left == 0 {
            break;
        }
        let below = seq.min(part.up_to.saturating_add(1));
        let (which, params) = which.bind(vec![
            (&part.session.0).into(),
            below.into(),
            part.generation.into(),
        ]);
        found.extend(all(
            tx,
            &format!(
                "SELECT {COLUMNS} FROM messages WHERE session_id = ?1 AND seq < ?2 \
                 AND (?3 IS NULL OR generation = ?3) {which} ORDER BY seq DESC LIMIT {left}"
            ),
            &params,
            read,
        )?);
    }
    found.reverse();
    Ok(found)
}

/// The `limit` messages just after `seq`, oldest first; `tools` as in [`before`].
pub fn after<M: Form>(
    tx: &mut dyn Tx,
    session: SessionId,
    seq: i64,
    limit: u32,
    tools: bool,
) -> Result<Vec<M>, DbError> {
    let parts = parts(tx, session, None)?;
    after_which(tx, &parts, seq, limit, Which::with(tools))
}

fn after_which<M: Form>(
    tx: &mut dyn Tx,
    parts: &[Part],
    seq: i64,
    limit: u32,
    which: Which,
) -> Result<Vec<M>, DbError> {
    let mut found = Vec::new();
    for part in parts.iter().rev() {
        let left = limit - found.len() as u32;
        if left == 0 {
            break;
        }
        if seq >= part.up_to {
            continue;
        }
        let (which, params) = which.bind(vec![
            (&part.session.0).into(),
            seq.into(),
            part.up_to.into(),
            part.generation.into(),
        ]);
        found.extend(all(
            tx,
            &format!(
                "SELECT {COLUMNS} FROM messages WHERE session_id = ?1 AND seq > ?2 \
                 AND seq <= ?3 AND (?4 IS NULL OR generation = ?4) {which} \
                 ORDER BY seq LIMIT {left}"
            ),
            &params,
            read,
        )?);
    }
    Ok(found)
}

/// The run's own input: the task of a spawned run, or the message of a turn. `None` once the
/// transcript is gone.
pub fn input_message(
    tx: &mut dyn Tx,
    session: SessionId,
    run: RunId,
) -> Result<Option<Message>, DbError> {
    first(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM messages WHERE session_id = ?1 AND run_id = ?2 \
             AND role = 'user' AND kind IN ('text', 'sub_agent_user') ORDER BY seq LIMIT 1"
        ),
        &[(&session.0).into(), (&run.0).into()],
        read,
    )
}

/// The session's latest user message has the delegation context for `call` in its metadata.
pub fn store_delegation_context(
    tx: &mut dyn Tx,
    session: SessionId,
    generation: i64,
    call: &str,
    pack: &Value,
) -> Result<(), DbError> {
    let Some((seq, metadata)) = with_packs(tx, session, generation, 1)?.pop() else {
        return Ok(());
    };
    let mut metadata = metadata.unwrap_or_else(|| Value::Object(Map::new()));
    metadata[pack::METADATA][call] = pack.clone();
    update_rows(
        tx,
        "messages",
        &[("session_id", (&session.0).into()), ("seq", seq.into())],
        &[("metadata", (&to_json(&metadata)).into())],
    )
    .map(|_| ())
}

/// The delegation context stored for `call`.
pub fn pack(
    tx: &mut dyn Tx,
    session: SessionId,
    generation: i64,
    call: &str,
) -> Result<Option<Value>, DbError> {
    // Only a few user messages follow the one that has it.
    let kept = with_packs(tx, session, generation, 50)?.into_iter();
    let mut packs = kept.filter_map(|(_, metadata)| {
        let mut metadata = metadata?;
        metadata
            .get_mut(pack::METADATA)?
            .get_mut(call)
            .map(Value::take)
    });
    Ok(packs.next())
}

/// Seqs and metadata of the last user messages, latest first.
fn with_packs(
    tx: &mut dyn Tx,
    session: SessionId,
    generation: i64,
    limit: u32,
) -> Result<Vec<(i64, Option<Value>)>, DbError> {
    all(
        tx,
        &format!(
            "SELECT seq, metadata, session_id FROM messages WHERE session_id = ?1 \
             AND generation = ?2 AND role = 'user' AND kind <> 'compaction' \
             AND child_run IS NULL \
             ORDER BY seq DESC LIMIT {limit}"
        ),
        &[(&session.0).into(), generation.into()],
        |row| {
            let key = [("session_id", 2), ("seq", 0)];
            whole(row, "messages", &key, |row| {
                Ok((row.int(0)?, opt_json(row, 1)?))
            })
        },
    )
}

/// At most `limit` messages of a deleted session are deleted; returns the number deleted.
pub fn remove_some(tx: &mut dyn Tx, session: SessionId, limit: u32) -> Result<u64, DbError> {
    tx.execute(
        &format!(
            "DELETE FROM messages WHERE session_id = ?1 AND seq IN \
             (SELECT seq FROM messages WHERE session_id = ?1 ORDER BY seq LIMIT {limit})"
        ),
        &[(&session.0).into()],
    )
}

/// True if the called run's answer is in the transcript.
pub fn has_answer(tx: &mut dyn Tx, child: RunId) -> Result<bool, DbError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM messages WHERE child_run = ?1 \
               AND kind = 'sub_agent_ai')";
    Ok(number(tx, sql, &[(&child.0).into()])? != 0)
}

/// Seq of the last entry that is no announce or restart notice; no turn has seen those after it.
pub fn seen_at_end(tx: &mut dyn Tx, session: SessionId) -> Result<i64, DbError> {
    number(
        tx,
        "SELECT seq FROM messages WHERE session_id = ?1 \
         AND kind <> 'announce' AND kind <> 'restart_notice' ORDER BY seq DESC LIMIT 1",
        &[(&session.0).into()],
    )
}

/// Total bytes of the announces at the end of the transcript, which no turn has seen.
pub fn announce_bytes_at_end(tx: &mut dyn Tx, session: SessionId) -> Result<i64, DbError> {
    let before = seen_at_end(tx, session)?;
    number(
        tx,
        "SELECT coalesce(sum(octet_length(content)), 0) FROM messages \
         WHERE session_id = ?1 AND seq > ?2 AND kind = 'announce'",
        &[(&session.0).into(), before.into()],
    )
}

/// The number of announces after `seq` that a turn must see; inbox announces do not count.
pub fn count_announces_after(
    tx: &mut dyn Tx,
    session: SessionId,
    seq: i64,
) -> Result<i64, DbError> {
    number(
        tx,
        "SELECT count(*) FROM messages JOIN outbox ON outbox.announce_id = messages.announce_id \
         WHERE messages.session_id = ?1 AND messages.seq > ?2 AND messages.kind = 'announce' \
         AND outbox.policy <> 'inbox'",
        &[(&session.0).into(), seq.into()],
    )
}
