//! The table of sessions: rows, list queries and transcript counters.

use super::columns::{columns_of, to_int, values};
use super::filter::Filter;
use super::table::{self, read, read_with_seq, table};
use crate::kernel::ids::{SessionId, SessionKey};
use crate::kernel::run::Usage;
use crate::kernel::session::{Fork, Session};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, DbErrorKind, Tx, all, execute, first, number, sql};

table! {
    sessions: Session;
    key { id }
    insert {
        org,
        key,
        owner,
        parent(parent_id),
        parent_key,
        root(root_id),
        depth,
        fork(fork_of, fork_generation, fork_seq),
        mode,
        cleanup,
        messages,
        usage(model_calls, input_tokens, output_tokens, cost_micros),
        created_at,
    }
    update { generation, agent, label, title, model, thinking, cwd, archived_at, updated_at }
    version { ver }
    beside { seq: i64 }
    primary { seq }
    undecodable Moved {
        "generation" => "generation = 0",
        "owner" => "owner = 'agent'",
        "agent" => "agent = 'unknown'",
        "parent_id" => "parent_id = NULL, parent_key = NULL",
        "parent_key" => "parent_id = NULL, parent_key = NULL",
        "root_id" => "root_id = id",
        "depth" => "depth = 0",
        "label" => "label = NULL",
        "title" => "title = NULL",
        "model" => "model = NULL",
        "cwd" => "cwd = NULL",
        "messages" => "messages = \
            (SELECT coalesce(max(seq), 0) FROM messages WHERE session_id = sessions.id)",
        "created_at" => "created_at = 0",
        "updated_at" => "updated_at = 0",
        "ver" => "ver = 1",
        "model_calls" => "model_calls = 0",
        "input_tokens" => "input_tokens = 0",
        "output_tokens" => "output_tokens = 0",
        "cost_micros" => "cost_micros = 0",
        "mode" => "mode = 'session'",
        "cleanup" => "cleanup = 'keep'",
        "archived_at" => "archived_at = NULL",
        "thinking" => "thinking = NULL",
        // Without the fork point, the transcript has no forked part.
        "fork_of" => "fork_of = NULL",
        "fork_generation" => "fork_of = NULL",
        "fork_seq" => "fork_of = NULL",
    }
}

columns_of!(Fork {
    of,
    generation,
    seq
});
columns_of!(optional Fork { of, generation, seq });

/// The session is in the table, with `seq` as its list position.
pub fn insert(tx: &mut dyn Tx, seq: i64, session: &Session) -> Result<(), DbError> {
    table::insert(tx, session, [seq.into()])
}

/// The session with that key.
pub fn by_key(tx: &mut dyn Tx, org: &str, key: &SessionKey) -> Result<Option<Session>, DbError> {
    first(
        tx,
        sql!("SELECT {COLUMNS} FROM sessions WHERE org = ?1 AND key = ?2"),
        &[org.into(), key.as_str().into()],
        read,
    )
}

/// The session with that id.
pub fn by_id(tx: &mut dyn Tx, id: SessionId) -> Result<Option<Session>, DbError> {
    first(
        tx,
        sql!("SELECT {COLUMNS} FROM sessions WHERE id = ?1"),
        &[(&id).into()],
        read,
    )
}

/// The number of entries in the session's transcript; 0 if the session does not exist.
pub fn messages_of(tx: &mut dyn Tx, id: SessionId) -> Result<i64, DbError> {
    let sql = "SELECT messages FROM sessions WHERE id = ?1";
    number(tx, sql, &[(&id).into()])
}

/// True if the session exists and an agent, not a client, answers in it.
pub fn has_agent(tx: &mut dyn Tx, id: SessionId) -> Result<bool, DbError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM sessions WHERE id = ?1 AND owner <> 'client')";
    Ok(number(tx, sql, &[(&id).into()])? != 0)
}

/// The origin of the session's transcript, if the session is a fork.
pub fn fork_of(tx: &mut dyn Tx, id: SessionId) -> Result<Option<Fork>, DbError> {
    first(
        tx,
        "SELECT fork_of, fork_generation, fork_seq FROM sessions \
         WHERE id = ?1 AND fork_of IS NOT NULL",
        &[(&id).into()],
        values,
    )
}

/// The sessions spawned from this one, oldest first.
pub fn children(tx: &mut dyn Tx, id: SessionId, limit: u32) -> Result<Vec<Session>, DbError> {
    all(
        tx,
        &format!("SELECT {COLUMNS} FROM sessions WHERE parent_id = ?1 ORDER BY seq LIMIT {limit}"),
        &[(&id).into()],
        read,
    )
}

/// The row has the mutable fields of `session`, changed now.
pub fn update(tx: &mut dyn Tx, session: &Session, now: Timestamp) -> Result<(), DbError> {
    let session = Session {
        updated_at: now,
        ..session.clone()
    };
    table::update(tx, &session)
}

/// The session is archived, so lists omit it. `updated_at` does not change.
pub fn archive(tx: &mut dyn Tx, id: SessionId, now: Timestamp) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE sessions SET archived_at = ?2, ver = ver + 1 WHERE id = ?1",
        &[(&id).into(), now.0.into()],
    )
}

/// The session is not archived; returns whether it was.
pub fn unarchive(tx: &mut dyn Tx, id: SessionId) -> Result<bool, DbError> {
    let changed = tx.execute(
        "UPDATE sessions SET archived_at = NULL, ver = ver + 1 \
         WHERE id = ?1 AND archived_at IS NOT NULL",
        &[(&id).into()],
    )?;
    Ok(changed > 0)
}

/// The session's row is deleted.
pub fn remove(tx: &mut dyn Tx, id: SessionId) -> Result<(), DbError> {
    execute(tx, "DELETE FROM sessions WHERE id = ?1", &[(&id).into()])
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
            read_with_seq,
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
        values,
    )
}

/// The session that this one was spawned from.
pub fn parent_of(tx: &mut dyn Tx, id: SessionId) -> Result<Option<SessionId>, DbError> {
    let found = first(
        tx,
        "SELECT parent_id FROM sessions WHERE id = ?1",
        &[(&id).into()],
        values,
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
    /// Only sessions with this working folder.
    pub cwd: Option<String>,
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
    filter.maybe("parent_id = ?", query.parent.as_ref());
    filter.maybe("agent = ?", query.agent.as_ref());
    filter.maybe("label = ?", query.label.as_ref());
    filter.maybe("cwd = ?", query.cwd.as_ref());
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
    all(tx, &sql, &params, read_with_seq)
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
    let last: Option<i64> = first(
        tx,
        "UPDATE sessions SET messages = messages + ?2, updated_at = ?3, ver = ver + 1 \
         WHERE id = ?1 RETURNING messages",
        &[(&id).into(), count.into(), now.into()],
        values,
    )?;
    match last {
        Some(last) => Ok(last - count + 1),
        None => Err(DbError {
            kind: DbErrorKind::Other,
            message: format!("no session {id}"),
        }),
    }
}

/// The session's model usage has grown by `used`.
pub fn add_usage(tx: &mut dyn Tx, id: SessionId, used: Usage) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE sessions SET model_calls = model_calls + ?2, input_tokens = input_tokens + ?3, \
         output_tokens = output_tokens + ?4, cost_micros = cost_micros + ?5 WHERE id = ?1",
        &[
            (&id).into(),
            to_int(used.model_calls).into(),
            to_int(used.input_tokens).into(),
            to_int(used.output_tokens).into(),
            to_int(used.cost_micros).into(),
        ],
    )
}
