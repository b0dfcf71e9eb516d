//! The table of messages: transcripts, without gaps, append only.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::columns::{
    at, json_by, named, opt_json, opt_string, opt_uuid, time, to_json, uuid, whole,
};
use super::sessions;
use super::tx::{DbError, Param, Row, Tx, all, first, insert_row, number, update_rows};
use crate::kernel::blocks::Blocks;
use crate::kernel::called;
use crate::kernel::ids::{AnnounceId, MessageId, RunId, SessionId};
use crate::kernel::message::{Message, MessageKind, NewMessage, Origin, Role};
use crate::kernel::pack;
use crate::kernel::run::Run;
use crate::kernel::said::{Passed, Said};
use crate::kernel::time::Timestamp;

/// The columns that [`read`] reads.
pub const COLUMNS: &str = "id, seq, at, role, kind, origin, run_id, content, tool_call, announce_id, \
     silent, metadata, session_id, generation, child_run";

/// A form in which entries are read.
pub trait Form: Sized {
    /// One entry out of [`COLUMNS`].
    fn decode(row: &dyn Row) -> Result<Self, DbError>;
}

impl Form for Message {
    fn decode(row: &dyn Row) -> Result<Self, DbError> {
        decode(row)
    }
}

impl Form for Passed {
    fn decode(row: &dyn Row) -> Result<Self, DbError> {
        entry(row, json_by(row, at!(content), Said::read)?)
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

/// A message out of [`COLUMNS`].
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
    let from = sessions::take_seqs(tx, session, new.len() as i64, now.0)?;
    let mut appended = Vec::with_capacity(new.len());
    for (seq, new) in (from..).zip(new) {
        insert(tx, session, generation, seq, &new, now)?;
        appended.push(new.at(seq, generation, now));
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

/// Which entries of a stretch are read.
#[derive(Clone, Copy, Debug)]
struct Which {
    /// A condition, behind the others; `{own}` is the place of `own`.
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

    /// Those that the model of this run may see. What called agents did on the way to their
    /// answers is left out here, lest it take the places of what is shown.
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

    /// The condition behind `params`, and those together with its own.
    fn bind<'a>(&'a self, mut params: Vec<Param<'a>>) -> (String, Vec<Param<'a>>) {
        let Some(own) = &self.own else {
            return (self.sql.to_owned(), params);
        };
        params.push((&own.0).into());
        let place = format!("?{}", params.len());
        (self.sql.replace("{own}", &place), params)
    }
}

/// A stretch of a transcript: of one session, up to a seq, of one generation or all.
#[derive(Clone, Copy, Debug)]
struct Part {
    session: SessionId,
    generation: Option<i64>,
    up_to: i64,
}

/// What the transcript of a session is made of, newest first: its own messages, and before
/// them those of the session that it is a fork of. A reset forgets them for its `generation`.
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

/// A session begins with this generation.
const FIRST_GENERATION: i64 = 1;

/// What the model of this run may see: the last `limit` messages of its generation, oldest
/// first. A called agent's doing is no part of its caller's conversation, which has the result
/// of the call; that agent sees the conversation in its own way.
pub fn window(tx: &mut dyn Tx, run: &Run, limit: u32) -> Result<Vec<Message>, DbError> {
    let parts = parts(tx, run.session, Some(run.generation))?;
    let found = last_of(tx, &parts, i64::MAX, limit, Which::shown_to(run))?;
    Ok(as_seen_by(run, found))
}

/// What the model of this run may see of the messages after `seq`: those of its generation, as
/// in [`window`].
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

/// The `limit` messages just before `seq`, oldest first. Without `tools`, calls and results
/// of tools are left out.
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

/// The `limit` messages just after `seq`, oldest first.
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

/// What the run's own input says: the task of a spawned run, the message of a turn. `None`
/// once the transcript is gone.
pub fn said_to(
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

/// The latest user message of the session keeps what a subagent is given to know for `call`.
pub fn keep_pack(
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

/// What a subagent is given to know for `call`.
pub fn pack(
    tx: &mut dyn Tx,
    session: SessionId,
    generation: i64,
    call: &str,
) -> Result<Option<Value>, DbError> {
    // What was said since then is some messages at the most.
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

/// Places and metadata of the last user messages, the latest first.
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

/// So many of a deleted session's messages are taken away, at most; how many that were.
pub fn remove_some(tx: &mut dyn Tx, session: SessionId, limit: u32) -> Result<u64, DbError> {
    tx.execute(
        &format!(
            "DELETE FROM messages WHERE session_id = ?1 AND seq IN \
             (SELECT seq FROM messages WHERE session_id = ?1 ORDER BY seq LIMIT {limit})"
        ),
        &[(&session.0).into()],
    )
}

/// A called run has answered its call in the transcript.
pub fn has_answer(tx: &mut dyn Tx, child: RunId) -> Result<bool, DbError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM messages WHERE child_run = ?1 \
               AND kind = 'sub_agent_ai')";
    Ok(number(tx, sql, &[(&child.0).into()])? != 0)
}

/// The place behind which only announces stand in the transcript, which no turn has seen.
pub fn seen_at_end(tx: &mut dyn Tx, session: SessionId) -> Result<i64, DbError> {
    number(
        tx,
        "SELECT seq FROM messages WHERE session_id = ?1 \
         AND kind <> 'announce' AND kind <> 'restart_notice' ORDER BY seq DESC LIMIT 1",
        &[(&session.0).into()],
    )
}

/// How many bytes the announces have that stand at the end of the transcript, where no turn
/// has seen them.
pub fn announce_bytes_at_end(tx: &mut dyn Tx, session: SessionId) -> Result<i64, DbError> {
    let before = seen_at_end(tx, session)?;
    number(
        tx,
        "SELECT coalesce(sum(octet_length(content)), 0) FROM messages \
         WHERE session_id = ?1 AND seq > ?2 AND kind = 'announce'",
        &[(&session.0).into(), before.into()],
    )
}

/// How many announces stand above `seq` that a turn must see; those of an inbox wait for
/// nobody's turn.
pub fn announces_above(tx: &mut dyn Tx, session: SessionId, seq: i64) -> Result<i64, DbError> {
    number(
        tx,
        "SELECT count(*) FROM messages JOIN outbox ON outbox.announce_id = messages.announce_id \
         WHERE messages.session_id = ?1 AND messages.seq > ?2 AND messages.kind = 'announce' \
         AND outbox.policy <> 'inbox'",
        &[(&session.0).into(), seq.into()],
    )
}
