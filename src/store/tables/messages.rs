//! The table of messages: append-only transcripts without gaps.

use serde_json::{Map, Value};

use super::columns::{keyed, to_json};
use super::sessions;
use super::table::{self, Decoded, read, table};
use crate::kernel::delegation::{called, pack};
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::run::Run;
use crate::kernel::session::message::{Message, NewMessage};
use crate::kernel::session::stored_content::StoredMessage;
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Param, Tx, all, execute, first, number, sql};

table! {
    messages: Message, StoredMessage;
    key { seq } of { session_id: SessionId }
    insert {
        generation,
        id,
        at,
        role,
        kind,
        origin,
        run(run_id),
        content,
        tool_call,
        child_run,
        announce(announce_id),
        silent,
        metadata,
    }
    primary { session_id, seq }
    undecodable Moved {
        "id" => "id = $fresh",
        "at" => "at = 0",
        "role" => "role = 'system'",
        "kind" => "kind = 'text'",
        "origin" => "origin = 'internal'",
        "run_id" => "run_id = NULL",
        "content" => "content = '[{\"type\":\"text\",\"text\":\"[This entry was damaged and cannot \
                      be read. The stored row is in quarantine; see abide doctor.]\"}]'",
        "tool_call" => "tool_call = NULL",
        // Whichever run it belonged to, it stays out of the session's own conversation.
        "child_run" => "child_run = run_id",
        "announce_id" => "announce_id = NULL",
        "silent" => "silent = 0",
        "metadata" => "metadata = NULL",
    }
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
    let new = (from..).zip(new);
    let appended: Vec<Message> = new.map(|(seq, new)| new.at(seq, generation, now)).collect();
    for message in &appended {
        insert(tx, session, message)?;
    }
    Ok(appended)
}

/// The message is at its `seq`, which the caller has reserved.
pub fn insert(tx: &mut dyn Tx, session: SessionId, message: &Message) -> Result<(), DbError> {
    table::insert(tx, message, [(&session).into()])
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
        params.push(own.into());
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
pub fn before<M: Decoded>(
    tx: &mut dyn Tx,
    session: SessionId,
    seq: i64,
    limit: u32,
    tools: bool,
) -> Result<Vec<M>, DbError> {
    let parts = parts(tx, session, None)?;
    last_of(tx, &parts, seq, limit, Which::with(tools))
}

fn last_of<M: Decoded>(
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
            (&part.session).into(),
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
pub fn after<M: Decoded>(
    tx: &mut dyn Tx,
    session: SessionId,
    seq: i64,
    limit: u32,
    tools: bool,
) -> Result<Vec<M>, DbError> {
    let parts = parts(tx, session, None)?;
    after_which(tx, &parts, seq, limit, Which::with(tools))
}

fn after_which<M: Decoded>(
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
            (&part.session).into(),
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
        sql!(
            "SELECT {COLUMNS} FROM messages WHERE session_id = ?1 AND run_id = ?2 \
             AND role = 'user' AND kind IN ('text', 'sub_agent_user') ORDER BY seq LIMIT 1"
        ),
        &[(&session).into(), (&run).into()],
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
    execute(
        tx,
        "UPDATE messages SET metadata = ?3 WHERE session_id = ?1 AND seq = ?2",
        &[(&session).into(), seq.into(), to_json(&metadata).into()],
    )
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
            "SELECT seq, metadata, seq, session_id FROM messages WHERE session_id = ?1 \
             AND generation = ?2 AND role = 'user' AND kind <> 'compaction' \
             AND child_run IS NULL \
             ORDER BY seq DESC LIMIT {limit}"
        ),
        &[(&session).into(), generation.into()],
        keyed("messages", KEY),
    )
}

/// At most `limit` messages of a deleted session are deleted; returns the number deleted.
pub fn remove_some(tx: &mut dyn Tx, session: SessionId, limit: u32) -> Result<u64, DbError> {
    tx.execute(
        &format!(
            "DELETE FROM messages WHERE session_id = ?1 AND seq IN \
             (SELECT seq FROM messages WHERE session_id = ?1 ORDER BY seq LIMIT {limit})"
        ),
        &[(&session).into()],
    )
}

/// True if the called run's answer is in the transcript.
pub fn has_answer(tx: &mut dyn Tx, child: RunId) -> Result<bool, DbError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM messages WHERE child_run = ?1 \
               AND kind = 'sub_agent_ai')";
    Ok(number(tx, sql, &[(&child).into()])? != 0)
}

/// Seq of the last entry that is no announce or restart notice; no turn has seen those after it.
pub fn seen_at_end(tx: &mut dyn Tx, session: SessionId) -> Result<i64, DbError> {
    number(
        tx,
        "SELECT seq FROM messages WHERE session_id = ?1 \
         AND kind <> 'announce' AND kind <> 'restart_notice' ORDER BY seq DESC LIMIT 1",
        &[(&session).into()],
    )
}

/// Total bytes of the announces at the end of the transcript, which no turn has seen.
pub fn announce_bytes_at_end(tx: &mut dyn Tx, session: SessionId) -> Result<i64, DbError> {
    let before = seen_at_end(tx, session)?;
    number(
        tx,
        "SELECT coalesce(sum(octet_length(content)), 0) FROM messages \
         WHERE session_id = ?1 AND seq > ?2 AND kind = 'announce'",
        &[(&session).into(), before.into()],
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
        &[(&session).into(), seq.into()],
    )
}
