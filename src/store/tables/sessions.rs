//! The table of sessions: rows, list queries and transcript counters.

use super::columns::{
    agent, amount, at, count, key, named, opt_named, opt_string, opt_time, opt_uuid, time, to_int,
    uuid, whole, width,
};
use super::filter::Filter;
use crate::kernel::ids::{SessionId, SessionKey};
use crate::kernel::run::Usage;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::session::{Cleanup, Fork, Owner, Session, SessionMode};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Row, Tx, all, first, insert_row, number};

/// The columns that [`read`] decodes.
pub const COLUMNS: &str = "id, org, key, generation, owner, agent, parent_id, parent_key, root_id, \
     depth, label, title, model, cwd, messages, created_at, updated_at, ver, model_calls, input_tokens, \
     output_tokens, cost_micros, mode, cleanup, archived_at, thinking, fork_of, fork_generation, \
     fork_seq";

/// The number of [`COLUMNS`]: the index of a query's first further column.
const WIDTH: usize = width(COLUMNS);

fn read(row: &dyn Row) -> Result<Session, DbError> {
    whole(row, "sessions", &[("id", at!(id))], decode)
}

/// Decodes a session from [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Session, DbError> {
    Ok(Session {
        id: SessionId(uuid(row, at!(id))?),
        org: row.text(at!(org))?.to_owned(),
        key: key(row, at!(key))?,
        generation: row.int(at!(generation))?,
        owner: named(row, at!(owner), Owner::parse)?,
        agent: agent(row, at!(agent))?,
        parent: opt_uuid(row, at!(parent_id))?.map(SessionId),
        parent_key: row
            .opt_text(at!(parent_key))?
            .map(|_| key(row, at!(parent_key)))
            .transpose()?,
        root: SessionId(uuid(row, at!(root_id))?),
        depth: count(row, at!(depth))?,
        label: opt_string(row, at!(label))?,
        title: opt_string(row, at!(title))?,
        model: opt_string(row, at!(model))?,
        cwd: opt_string(row, at!(cwd))?,
        messages: row.int(at!(messages))?,
        created_at: time(row, at!(created_at))?,
        updated_at: time(row, at!(updated_at))?,
        ver: row.int(at!(ver))?,
        usage: Usage {
            model_calls: amount(row, at!(model_calls))?,
            input_tokens: amount(row, at!(input_tokens))?,
            output_tokens: amount(row, at!(output_tokens))?,
            cost_micros: amount(row, at!(cost_micros))?,
        },
        mode: named(row, at!(mode), SessionMode::parse)?,
        cleanup: named(row, at!(cleanup), Cleanup::parse)?,
        archived_at: opt_time(row, at!(archived_at))?,
        thinking: opt_named(row, at!(thinking), Thinking::parse)?,
        fork: match opt_uuid(row, at!(fork_of))? {
            Some(of) => Some(Fork {
                of: SessionId(of),
                generation: row.int(at!(fork_generation))?,
                seq: row.int(at!(fork_seq))?,
            }),
            None => None,
        },
    })
}

/// The session is in the table, with `seq` as its list position.
pub fn insert(tx: &mut dyn Tx, seq: i64, session: &Session) -> Result<(), DbError> {
    insert_row(
        tx,
        "sessions",
        &[
            ("seq", seq.into()),
            ("id", (&session.id.0).into()),
            ("org", (&session.org).into()),
            ("key", session.key.as_str().into()),
            ("generation", session.generation.into()),
            ("owner", session.owner.as_str().into()),
            ("agent", session.agent.as_str().into()),
            ("parent_id", session.parent.as_ref().map(|id| &id.0).into()),
            (
                "parent_key",
                session.parent_key.as_ref().map(SessionKey::as_str).into(),
            ),
            ("root_id", (&session.root.0).into()),
            ("depth", session.depth.into()),
            ("label", session.label.as_deref().into()),
            ("title", session.title.as_deref().into()),
            ("model", session.model.as_deref().into()),
            ("cwd", session.cwd.as_deref().into()),
            ("messages", session.messages.into()),
            ("created_at", session.created_at.0.into()),
            ("updated_at", session.updated_at.0.into()),
            ("ver", session.ver.into()),
            ("mode", session.mode.as_str().into()),
            ("cleanup", session.cleanup.as_str().into()),
            ("thinking", session.thinking.map(Thinking::as_str).into()),
            (
                "fork_of",
                session.fork.as_ref().map(|fork| &fork.of.0).into(),
            ),
            (
                "fork_generation",
                session.fork.map(|fork| fork.generation).into(),
            ),
            ("fork_seq", session.fork.map(|fork| fork.seq).into()),
        ],
    )
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

/// The number of entries in the session's transcript; 0 if the session does not exist.
pub fn messages_of(tx: &mut dyn Tx, id: SessionId) -> Result<i64, DbError> {
    let sql = "SELECT messages FROM sessions WHERE id = ?1";
    number(tx, sql, &[(&id.0).into()])
}

/// True if the session exists and an agent, not a client, answers in it.
pub fn has_agent(tx: &mut dyn Tx, id: SessionId) -> Result<bool, DbError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM sessions WHERE id = ?1 AND owner <> 'client')";
    Ok(number(tx, sql, &[(&id.0).into()])? != 0)
}

/// The origin of the session's transcript, if the session is a fork.
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

/// The sessions spawned from this one, oldest first.
pub fn children(tx: &mut dyn Tx, id: SessionId, limit: u32) -> Result<Vec<Session>, DbError> {
    all(
        tx,
        &format!("SELECT {COLUMNS} FROM sessions WHERE parent_id = ?1 ORDER BY seq LIMIT {limit}"),
        &[(&id.0).into()],
        read,
    )
}

/// The row has the mutable fields of `session`.
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

/// The session is archived, so lists omit it. `updated_at` does not change.
pub fn archive(tx: &mut dyn Tx, id: SessionId, now: Timestamp) -> Result<(), DbError> {
    tx.execute(
        "UPDATE sessions SET archived_at = ?2, ver = ver + 1 WHERE id = ?1",
        &[(&id.0).into(), now.0.into()],
    )
    .map(|_| ())
}

/// The session is not archived; returns whether it was.
pub fn unarchive(tx: &mut dyn Tx, id: SessionId) -> Result<bool, DbError> {
    let changed = tx.execute(
        "UPDATE sessions SET archived_at = NULL, ver = ver + 1 \
         WHERE id = ?1 AND archived_at IS NOT NULL",
        &[(&id.0).into()],
    )?;
    Ok(changed > 0)
}

/// The session's row is deleted.
pub fn remove(tx: &mut dyn Tx, id: SessionId) -> Result<(), DbError> {
    tx.execute("DELETE FROM sessions WHERE id = ?1", &[(&id.0).into()])
        .map(|_| ())
}

/// Unarchived sessions of one tenant after list position `after`, oldest first, with their
/// positions.
pub fn unarchived(
    tx: &mut dyn Tx,
    org: &str,
    after: i64,
    limit: u32,
) -> Result<Vec<(i64, Session)>, DbError> {
    // Each half has an index of its own.
    let mut found = Vec::new();
    for half in ["IS NULL", "IS NOT NULL"] {
        found.extend(all(
            tx,
            &format!(
                "SELECT {COLUMNS}, seq FROM sessions WHERE org = ?1 AND parent_id {half} \
                 AND archived_at IS NULL AND seq > ?2 ORDER BY seq LIMIT {limit}"
            ),
            &[org.into(), after.into()],
            |row| Ok((row.int(WIDTH)?, read(row)?)),
        )?);
    }
    found.sort_unstable_by_key(|(seq, _)| *seq);
    found.truncate(limit as usize);
    Ok(found)
}

/// The next tenant by name that has sessions.
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

/// Filters for one page of sessions.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// The tenant.
    pub org: String,
    /// Only roots (`Some(true)`), only children (`Some(false)`), or both (`None`).
    pub roots: Option<bool>,
    /// Only children of this session.
    pub parent: Option<SessionId>,
    /// Only sessions of this agent.
    pub agent: Option<String>,
    /// Only sessions with this label.
    pub label: Option<String>,
    /// Only sessions with this text in key, label or title.
    pub search: Option<String>,
    /// Include archived sessions.
    pub archived: bool,
    /// Only list positions below this one.
    pub before: Option<i64>,
    /// Maximum number of rows.
    pub limit: u32,
}

/// A page of sessions, newest first, each with its list position.
pub fn list(tx: &mut dyn Tx, query: &ListQuery) -> Result<Vec<(i64, Session)>, DbError> {
    let is_narrow = query.parent.is_some() || query.label.is_some();
    if query.roots.is_none() && !query.archived && !is_narrow {
        // Roots and children have an index each: a page of both is merged from a page of each.
        let mut found = Vec::new();
        for roots in [true, false] {
            let half = ListQuery {
                roots: Some(roots),
                ..query.clone()
            };
            found.extend(list(tx, &half)?);
        }
        found.sort_unstable_by_key(|(seq, _)| std::cmp::Reverse(*seq));
        found.truncate(query.limit as usize);
        return Ok(found);
    }
    let pattern = query.search.as_ref().map(|text| like(text));
    // Rows are already stored in list order; an index on the org would force a sort. If a narrower
    // index exists, the plain form lets SQLite use it, except for the children of one session: it
    // would scan those of the whole tenant.
    let narrow = (!query.archived || query.label.is_some()) && query.parent.is_none();
    let org = if narrow { "org = ?" } else { "org || '' = ?" };
    let mut filter = Filter::default();
    filter.by(org, &query.org);
    if !query.archived {
        filter.only("archived_at IS NULL");
    }
    match query.roots {
        Some(true) => filter.only("parent_id IS NULL"),
        Some(false) => filter.only("parent_id IS NOT NULL"),
        None => {}
    }
    filter.maybe("parent_id = ?", query.parent.as_ref().map(|id| &id.0));
    filter.maybe("agent = ?", query.agent.as_ref());
    filter.maybe("label = ?", query.label.as_ref());
    filter.maybe(
        "(key LIKE ? ESCAPE '\\' OR label LIKE ? ESCAPE '\\' OR title LIKE ? ESCAPE '\\')",
        pattern.as_ref(),
    );
    filter.maybe("seq < ?", query.before);
    let (conditions, params) = filter.finish();
    let sql = format!(
        "SELECT {COLUMNS}, seq FROM sessions WHERE {conditions} ORDER BY seq DESC LIMIT {}",
        query.limit
    );
    all(tx, &sql, &params, |row| Ok((row.int(WIDTH)?, read(row)?)))
}

/// A LIKE pattern that matches any text containing `text` literally.
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

/// The next `count` transcript seqs are reserved, without gaps; returns the first.
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
            kind: crate::store::tx::DbErrorKind::Other,
            message: format!("no session {id}"),
        }),
    }
}

/// The session's model usage has grown by `used`.
pub fn add_usage(tx: &mut dyn Tx, id: SessionId, used: Usage) -> Result<(), DbError> {
    tx.execute(
        "UPDATE sessions SET model_calls = model_calls + ?2, input_tokens = input_tokens + ?3, \
         output_tokens = output_tokens + ?4, cost_micros = cost_micros + ?5 WHERE id = ?1",
        &[
            (&id.0).into(),
            to_int(used.model_calls).into(),
            to_int(used.input_tokens).into(),
            to_int(used.output_tokens).into(),
            to_int(used.cost_micros).into(),
        ],
    )
    .map(|_| ())
}
