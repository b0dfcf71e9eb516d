//! The table of memories. Each row has an entry in the index `memory_words`, kept in step with it.

use super::columns::values;
use super::filter::Filter;
use super::table::{self, read, read_with_seq, table};
use super::{memory_words, runs, sessions};
use crate::contract::rows::MemoryRows;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{MemoryId, RunId, SessionId};
use crate::kernel::memory::{Memory, Spaces};
use crate::kernel::run::{Run, RunOrigin};
use crate::kernel::session::Owner;
use crate::store::Store;
use crate::store::tx::{DbError, Param, Tx, all, first, number, sql};

table! {
    memories: Memory;
    key { id }
    insert { org, space, text(body), source, run(run_id), at(kept_at) }
    beside { seq: i64, digest: Vec<u8> }
    primary { seq }
    // A memory with an invented text is none.
    undecodable Moved { "source" => "source = 'tool'", "kept_at" => "kept_at = 0" }
}

/// The namespaces of a run. Its path has the agents of the runs that requested each other, in
/// whichever session; without a requesting run, it continues with the parent session's agent. A
/// client's session has no memories, so the path begins below it.
pub fn spaces_of(tx: &mut dyn Tx, run: &Run) -> Result<Spaces, DbError> {
    let mut path = vec![run.agent.clone()];
    if run.depth == 0 && run.delegated.is_none() {
        return Ok(Spaces::of(&path));
    }
    let (mut session, mut asker) = (run.session, asker_of(run));
    // A run is younger than its requester, and a session than its parent, so the loop ends.
    loop {
        let above = match asker {
            Some(asker) => runs::get(tx, asker)?,
            None => maker(tx, session)?,
        };
        if let Some(above) = above {
            (session, asker) = (above.session, asker_of(&above));
            path.push(above.agent);
            continue;
        }
        let parent = sessions::by_id(tx, session)?.and_then(|session| session.parent);
        let parent = match parent {
            Some(parent) => sessions::by_id(tx, parent)?,
            None => None,
        };
        let Some(parent) = parent.filter(|parent| parent.owner == Owner::Agent) else {
            break;
        };
        path.push(parent.agent);
        (session, asker) = (parent.id, None);
    }
    path.reverse();
    Ok(Spaces::of(&path))
}

/// The run that this one works for. The sender of a message is not one: the receiver's run does
/// not work for it.
fn asker_of(run: &Run) -> Option<RunId> {
    let is_made = run.origin == RunOrigin::Spawn || run.delegated.is_some();
    run.parent_run.filter(|_| is_made)
}

/// The run that requested this session: later runs in it work for the same agent as its first.
fn maker(tx: &mut dyn Tx, session: SessionId) -> Result<Option<Run>, DbError> {
    let maker = match runs::requesting_run_of(tx, session)? {
        Some(maker) => runs::get(tx, maker)?,
        None => None,
    };
    // If its first run was removed, the oldest one left may be a run called into the session.
    Ok(maker.filter(|maker| maker.session != session))
}

/// The hash by which an identical text is recognized.
fn digest(text: &str) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..16]);
    short
}

/// The memory is stored with `seq` as its list position, and can be found by its words.
pub fn insert(tx: &mut dyn Tx, seq: i64, memory: &Memory) -> Result<(), DbError> {
    let digest = digest(&memory.text);
    table::insert(tx, memory, [seq.into(), Param::Bytes(&digest)])?;
    memory_words::add(tx, seq, &memory.org, &memory.space, &memory.text)
}

/// The tenant's memory with that id.
pub fn get(tx: &mut dyn Tx, org: &str, id: MemoryId) -> Result<Option<Memory>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM memories WHERE id = ?1 AND org = ?2");
    first(tx, sql, &[(&id).into(), org.into()], read)
}

/// The memory of a namespace with exactly this text.
pub fn same(
    tx: &mut dyn Tx,
    org: &str,
    space: &str,
    text: &str,
) -> Result<Option<Memory>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM memories WHERE org = ?1 AND space = ?2 AND digest = ?3");
    let digest = digest(text);
    let params = [org.into(), space.into(), Param::Bytes(&digest)];
    first(tx, sql, &params, read)
}

/// The number of memories in a namespace.
pub fn count(tx: &mut dyn Tx, org: &str, space: &str) -> Result<i64, DbError> {
    let sql = "SELECT count(*) FROM memories WHERE org = ?1 AND space = ?2";
    number(tx, sql, &[org.into(), space.into()])
}

/// True if any namespace that the run can read has a memory.
pub fn has_any(tx: &mut dyn Tx, run: &Run) -> Result<bool, DbError> {
    for space in spaces_of(tx, run)?.readable() {
        if is_used(tx, &run.org, space)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True if the namespace has a memory.
pub fn is_used(tx: &mut dyn Tx, org: &str, space: &str) -> Result<bool, DbError> {
    let sql = "SELECT 1 FROM memories WHERE org = ?1 AND space = ?2 LIMIT 1";
    Ok(number(tx, sql, &[org.into(), space.into()])? > 0)
}

/// A page of a tenant's memories with their list positions, newest first.
pub fn list(
    tx: &mut dyn Tx,
    org: &str,
    space: Option<&str>,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<(i64, Memory)>, DbError> {
    let mut filter = Filter::default();
    filter.by("org = ?", org);
    filter.maybe("space = ?", space);
    filter.maybe("seq < ?", before);
    let (conditions, params) = filter.finish();
    let sql = format!(
        "SELECT {COLUMNS}, seq FROM memories WHERE {conditions} ORDER BY seq DESC LIMIT {limit}"
    );
    all(tx, &sql, &params, read_with_seq)
}

/// The memories that contain any of these words, best match first; in these namespaces, or in all
/// of the tenant's if none is given.
pub fn search(
    tx: &mut dyn Tx,
    org: &str,
    spaces: &[&str],
    words: &[String],
    limit: u32,
) -> Result<Vec<Memory>, DbError> {
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let sql = memory_words::search(&TABLE.qualified(), limit);
    let question = memory_words::question(org, spaces, words);
    all(tx, &sql, &[(&question).into()], read)
}

/// The tenant's memory is deleted; returns whether it existed.
pub fn remove(tx: &mut dyn Tx, org: &str, id: MemoryId) -> Result<bool, DbError> {
    let sql = "SELECT seq FROM memories WHERE id = ?1 AND org = ?2";
    let params = [(&id).into(), org.into()];
    let Some(seq) = first(tx, sql, &params, values)? else {
        return Ok(false);
    };
    memory_words::remove(tx, seq)?;
    tx.execute("DELETE FROM memories WHERE seq = ?1", &[seq.into()])
        .map(|gone| gone > 0)
}

/// The index is rebuilt: it has the words of every memory, and nothing else.
pub fn index_anew(tx: &mut dyn Tx) -> Result<(), DbError> {
    memory_words::clear(tx)?;
    let mut kept = Vec::new();
    tx.query(
        "SELECT seq, org, space, body FROM memories",
        &[],
        &mut |row| {
            // Rows that do not decode are quarantined when a read meets them.
            if let (Ok(org), Ok(space), Ok(body)) = (row.text(1), row.text(2), row.text(3)) {
                kept.push((row.int(0)?, [org, space, body].map(str::to_owned)));
            }
            Ok(())
        },
    )?;
    for (seq, [org, space, body]) in kept {
        memory_words::add(tx, seq, &org, &space, &body)?;
    }
    Ok(())
}

impl MemoryRows for Store {
    fn memories(&self, org: &str, ids: &[MemoryId]) -> Result<Vec<Memory>, Fault> {
        self.read_now(|tx| {
            let mut found = Vec::with_capacity(ids.len());
            for id in ids {
                found.extend(get(tx, org, *id)?);
            }
            Ok(found)
        })
    }
}
