//! The table of sessions.

use super::columns::{
    agent, amount, count, key, named, opt_named, opt_string, opt_time, opt_uuid, time, to_int,
    uuid, whole,
};
use super::tx::{DbError, Param, Row, Tx, all, first};
use crate::kernel::ids::{SessionId, SessionKey};
use crate::kernel::run::Usage;
use crate::kernel::session::{Cleanup, Fork, Owner, Session, SessionMode};
use crate::kernel::thinking::Thinking;
use crate::kernel::time::Timestamp;

/// The columns that [`read`] reads, in its order.
pub const COLUMNS: &str = "id, org, key, generation, owner, agent, parent_id, parent_key, root_id, \
     depth, label, title, model, cwd, messages, created_at, updated_at, ver, model_calls, input_tokens, \
     output_tokens, mode, cleanup, archived_at, thinking, fork_of, fork_generation, \
     fork_seq";

/// The number of [`COLUMNS`]: where a query's further columns begin.
const WIDTH: usize = 28;

fn read(row: &dyn Row) -> Result<Session, DbError> {
    whole(row, "sessions", &[("id", 0)], decode)
}

/// A session out of [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Session, DbError> {
    Ok(Session {
        id: SessionId(uuid(row, 0)?),
        org: row.text(1)?.to_owned(),
        key: key(row, 2)?,
        generation: row.int(3)?,
        owner: named(row, 4, Owner::parse)?,
        agent: agent(row, 5)?,
        parent: opt_uuid(row, 6)?.map(SessionId),
        parent_key: row.opt_text(7)?.map(|_| key(row, 7)).transpose()?,
        root: SessionId(uuid(row, 8)?),
        depth: count(row, 9)?,
        label: opt_string(row, 10)?,
        title: opt_string(row, 11)?,
        model: opt_string(row, 12)?,
        cwd: opt_string(row, 13)?,
        messages: row.int(14)?,
        created_at: time(row, 15)?,
        updated_at: time(row, 16)?,
        ver: row.int(17)?,
        usage: Usage {
            model_calls: amount(row, 18)?,
            input_tokens: amount(row, 19)?,
            output_tokens: amount(row, 20)?,
        },
        mode: named(row, 21, SessionMode::parse)?,
        cleanup: named(row, 22, Cleanup::parse)?,
        archived_at: opt_time(row, 23)?,
        thinking: opt_named(row, 24, Thinking::parse)?,
        fork: match opt_uuid(row, 25)? {
            Some(of) => Some(Fork {
                of: SessionId(of),
                generation: row.int(26)?,
                seq: row.int(27)?,
            }),
            None => None,
        },
    })
}

/// The session is in the table, at place `seq` of every list.
pub fn insert(tx: &mut dyn Tx, seq: i64, session: &Session) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO sessions (seq, id, org, key, generation, owner, agent, parent_id, parent_key, \
         root_id, depth, label, title, model, cwd, messages, created_at, updated_at, ver, mode, \
         cleanup, thinking, fork_of, fork_generation, fork_seq) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, \
         ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25)",
        &[
            seq.into(),
            (&session.id.0).into(),
            (&session.org).into(),
            session.key.as_str().into(),
            session.generation.into(),
            session.owner.as_str().into(),
            session.agent.as_str().into(),
            session.parent.as_ref().map(|id| &id.0).into(),
            session.parent_key.as_ref().map(SessionKey::as_str).into(),
            (&session.root.0).into(),
            session.depth.into(),
            session.label.as_deref().into(),
            session.title.as_deref().into(),
            session.model.as_deref().into(),
            session.cwd.as_deref().into(),
            session.messages.into(),
            session.created_at.0.into(),
            session.updated_at.0.into(),
            session.ver.into(),
            session.mode.as_str().into(),
            session.cleanup.as_str().into(),
            session.thinking.map(Thinking::as_str).into(),
            session.fork.as_ref().map(|fork| &fork.of.0).into(),
            session.fork.map(|fork| fork.generation).into(),
            session.fork.map(|fork| fork.seq).into(),
        ],
    )
    .map(|_| ())
}

/// The session with that key.
pub fn by_key(tx: &mut dyn Tx, org: &str, key: &SessionKey) -> Result<Option<Session>, DbError> {
    first(
        tx,
        &format!("SELECT {COLUMNS} FROM sessions WHERE org = ?1 AND key = ?2"),
        &[org.into(), key.as_str().into()],
        read,
    )
}

/// The session with that id.
pub fn by_id(tx: &mut dyn Tx, id: SessionId) -> Result<Option<Session>, DbError> {
    first(
        tx,
        &format!("SELECT {COLUMNS} FROM sessions WHERE id = ?1"),
        &[(&id.0).into()],
        read,
    )
}

/// What the session's transcript begins with, if it is a fork.
pub fn fork_of(tx: &mut dyn Tx, id: SessionId) -> Result<Option<Fork>, DbError> {
    first(
        tx,
        "SELECT fork_of, fork_generation, fork_seq FROM sessions \
         WHERE id = ?1 AND fork_of IS NOT NULL",
        &[(&id.0).into()],
        |row| {
            Ok(Fork {
                of: SessionId(uuid(row, 0)?),
                generation: row.int(1)?,
                seq: row.int(2)?,
            })
        },
    )
}

/// The sessions that were spawned from this one, oldest first.
pub fn children(tx: &mut dyn Tx, id: SessionId, limit: u32) -> Result<Vec<Session>, DbError> {
    all(
        tx,
        &format!("SELECT {COLUMNS} FROM sessions WHERE parent_id = ?1 ORDER BY seq LIMIT {limit}"),
        &[(&id.0).into()],
        read,
    )
}

/// What can be changed of a session that is there.
pub fn update(tx: &mut dyn Tx, session: &Session, now: Timestamp) -> Result<(), DbError> {
    tx.execute(
        "UPDATE sessions SET generation = ?2, label = ?3, title = ?4, model = ?5, cwd = ?6, \
         archived_at = ?7, updated_at = ?8, thinking = ?9, ver = ver + 1 WHERE id = ?1",
        &[
            (&session.id.0).into(),
            session.generation.into(),
            session.label.as_deref().into(),
            session.title.as_deref().into(),
            session.model.as_deref().into(),
            session.cwd.as_deref().into(),
            session.archived_at.map(|at| at.0).into(),
            now.0.into(),
            session.thinking.map(Thinking::as_str).into(),
        ],
    )
    .map(|_| ())
}

/// The session is put aside: lists leave it out. Its last change stays its last change.
pub fn archive(tx: &mut dyn Tx, id: SessionId, now: Timestamp) -> Result<(), DbError> {
    tx.execute(
        "UPDATE sessions SET archived_at = ?2, ver = ver + 1 WHERE id = ?1",
        &[(&id.0).into(), now.0.into()],
    )
    .map(|_| ())
}

/// The session is in use again; whether it had been put aside.
pub fn bring_back(tx: &mut dyn Tx, id: SessionId) -> Result<bool, DbError> {
    let changed = tx.execute(
        "UPDATE sessions SET archived_at = NULL, ver = ver + 1 \
         WHERE id = ?1 AND archived_at IS NOT NULL",
        &[(&id.0).into()],
    )?;
    Ok(changed > 0)
}

/// The row is gone.
pub fn remove(tx: &mut dyn Tx, id: SessionId) -> Result<(), DbError> {
    tx.execute("DELETE FROM sessions WHERE id = ?1", &[(&id.0).into()])
        .map(|_| ())
}

/// Sessions of one tenant after this place that are not archived, oldest first, each with its
/// place.
pub fn unarchived(
    tx: &mut dyn Tx,
    org: &str,
    after: i64,
    limit: u32,
) -> Result<Vec<(i64, Session)>, DbError> {
    all(
        tx,
        &format!(
            "SELECT {COLUMNS}, seq FROM sessions WHERE org = ?1 AND archived_at IS NULL \
             AND seq > ?2 ORDER BY seq LIMIT {limit}"
        ),
        &[org.into(), after.into()],
        |row| Ok((row.int(WIDTH)?, read(row)?)),
    )
}

/// The tenant after this one, by name.
pub fn next_org(tx: &mut dyn Tx, after: &str) -> Result<Option<String>, DbError> {
    first(
        tx,
        "SELECT org FROM sessions WHERE org > ?1 ORDER BY org LIMIT 1",
        &[after.into()],
        |row| Ok(row.text(0)?.to_owned()),
    )
}

/// The session that this one was spawned from.
pub fn parent_of(tx: &mut dyn Tx, id: SessionId) -> Result<Option<SessionId>, DbError> {
    let found = first(
        tx,
        "SELECT parent_id FROM sessions WHERE id = ?1",
        &[(&id.0).into()],
        |row| Ok(opt_uuid(row, 0)?.map(SessionId)),
    )?;
    Ok(found.flatten())
}

/// One page of sessions with their places, newest first. `before`: only places below it.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// The tenant.
    pub org: String,
    /// Roots only (`Some(true)`), children only (`Some(false)`), both.
    pub roots: Option<bool>,
    /// Children of this session only.
    pub parent: Option<SessionId>,
    /// Of this agent only.
    pub agent: Option<String>,
    /// With this label only.
    pub label: Option<String>,
    /// With this text in key, label or title only.
    pub search: Option<String>,
    /// The archived ones, too.
    pub archived: bool,
    /// Places below this one only.
    pub before: Option<i64>,
    /// So many at most.
    pub limit: u32,
}

/// A page of sessions, each with its place in the list.
pub fn list(tx: &mut dyn Tx, query: &ListQuery) -> Result<Vec<(i64, Session)>, DbError> {
    let pattern = query.search.as_ref().map(|text| like(text));
    let mut params: Vec<Param<'_>> = vec![(&query.org).into()];
    // The rows come newest first as they lie; an index on the org would only have them sorted
    // anew. Where a narrower index exists the plain form lets the engine take it.
    let narrow = !query.archived || query.parent.is_some() || query.label.is_some();
    let org = if narrow { "org = ?1" } else { "org || '' = ?1" };
    let mut clauses = vec![org.to_owned()];
    if !query.archived {
        clauses.push("archived_at IS NULL".to_owned());
    }
    match query.roots {
        Some(true) => clauses.push("parent_id IS NULL".to_owned()),
        Some(false) => clauses.push("parent_id IS NOT NULL".to_owned()),
        None => {}
    }
    let mut bind = |clause: &str, param| {
        params.push(param);
        clauses.push(clause.replace("?", &format!("?{}", params.len())));
    };
    if let Some(parent) = &query.parent {
        bind("parent_id = ?", (&parent.0).into());
    }
    if let Some(agent) = &query.agent {
        bind("agent = ?", agent.into());
    }
    if let Some(label) = &query.label {
        bind("label = ?", label.into());
    }
    if let Some(pattern) = &pattern {
        bind(
            "(key LIKE ? ESCAPE '\\' OR label LIKE ? ESCAPE '\\' OR title LIKE ? ESCAPE '\\')",
            pattern.into(),
        );
    }
    if let Some(before) = query.before {
        bind("seq < ?", before.into());
    }
    let sql = format!(
        "SELECT {COLUMNS}, seq FROM sessions WHERE {} ORDER BY seq DESC LIMIT {}",
        clauses.join(" AND "),
        query.limit
    );
    all(tx, &sql, &params, |row| Ok((row.int(WIDTH)?, read(row)?)))
}

/// A LIKE pattern for "contains this text".
fn like(text: &str) -> String {
    let mut pattern = String::from("%");
    for ch in text.chars() {
        if matches!(ch, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(ch);
    }
    pattern.push('%');
    pattern
}

/// Takes the next places in the transcript: the first of `count` seqs without gaps.
pub fn take_seqs(tx: &mut dyn Tx, id: SessionId, count: i64, now: i64) -> Result<i64, DbError> {
    let last = first(
        tx,
        "UPDATE sessions SET messages = messages + ?2, updated_at = ?3, ver = ver + 1 \
         WHERE id = ?1 RETURNING messages",
        &[(&id.0).into(), count.into(), now.into()],
        |row| row.int(0),
    )?;
    match last {
        Some(last) => Ok(last - count + 1),
        None => Err(DbError {
            kind: super::tx::DbErrorKind::Other,
            message: format!("no session {id}"),
        }),
    }
}

/// The session's model use has grown by `used`.
pub fn add_usage(tx: &mut dyn Tx, id: SessionId, used: Usage) -> Result<(), DbError> {
    tx.execute(
        "UPDATE sessions SET model_calls = model_calls + ?2, input_tokens = input_tokens + ?3, \
         output_tokens = output_tokens + ?4 WHERE id = ?1",
        &[
            (&id.0).into(),
            to_int(used.model_calls).into(),
            to_int(used.input_tokens).into(),
            to_int(used.output_tokens).into(),
        ],
    )
    .map(|_| ())
}
