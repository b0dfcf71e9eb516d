//! The tables of stored agents and of the agent sets that the event log last recorded.

use std::collections::BTreeMap;

use super::columns::{json, time, to_json, whole};
use super::trust;
use crate::contract::rows::{AgentRows, StoredAgent, TrustedProject};
use crate::kernel::fault::Fault;
use crate::kernel::time::Timestamp;
use crate::store::Store;
use crate::store::tx::{DbError, Row, Tx, all, first, number};

/// The columns that [`decode`] reads.
pub const COLUMNS: &str = "org, name, format, body, revision, created_at";

fn read(row: &dyn Row) -> Result<StoredAgent, DbError> {
    whole(row, "agents", &[("org", 0), ("name", 1)], decode)
}

/// Decodes a stored agent from [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<StoredAgent, DbError> {
    Ok(StoredAgent {
        org: row.text(0)?.to_owned(),
        name: row.text(1)?.to_owned(),
        format: row.text(2)?.to_owned(),
        text: row.text(3)?.to_owned(),
        revision: row.int(4)?,
        created_at: time(row, 5)?,
    })
}

/// All stored agents, ordered by tenant and name.
pub fn every(tx: &mut dyn Tx) -> Result<Vec<StoredAgent>, DbError> {
    let sql = format!("SELECT {COLUMNS} FROM agents ORDER BY org, name");
    all(tx, &sql, &[], read)
}

/// The stored agent with that name.
pub fn get(tx: &mut dyn Tx, org: &str, name: &str) -> Result<Option<StoredAgent>, DbError> {
    let sql = format!("SELECT {COLUMNS} FROM agents WHERE org = ?1 AND name = ?2");
    first(tx, &sql, &[org.into(), name.into()], read)
}

/// The number of agents that a tenant has stored.
pub fn count(tx: &mut dyn Tx, org: &str) -> Result<i64, DbError> {
    let sql = "SELECT count(*) FROM agents WHERE org = ?1";
    number(tx, sql, &[org.into()])
}

/// The row has `agent`; an earlier one of that name is replaced.
pub fn put(tx: &mut dyn Tx, agent: &StoredAgent, now: Timestamp) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO agents (org, name, format, body, revision, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (org, name) DO UPDATE SET \
         format = excluded.format, body = excluded.body, revision = excluded.revision, \
         updated_at = excluded.updated_at",
        &[
            (&agent.org).into(),
            (&agent.name).into(),
            (&agent.format).into(),
            (&agent.text).into(),
            agent.revision.into(),
            agent.created_at.0.into(),
            now.0.into(),
        ],
    )
    .map(|_| ())
}

/// The row is deleted.
pub fn delete(tx: &mut dyn Tx, org: &str, name: &str) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM agents WHERE org = ?1 AND name = ?2",
        &[org.into(), name.into()],
    )
    .map(|_| ())
}

/// A tenant's set of agents as the event log last recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// Definition hash by agent name.
    pub agents: BTreeMap<String, String>,
    /// The number of recorded changes.
    pub version: i64,
}

/// The set of agents that the event log last recorded; `None` if there is none yet.
pub fn noted(tx: &mut dyn Tx, org: &str) -> Result<Option<Noted>, DbError> {
    let sql = format!("SELECT {SET_COLUMNS} FROM agent_sets WHERE org = ?1");
    first(tx, &sql, &[org.into()], |row| {
        whole(row, "agent_sets", &[("org", 2)], decode_set)
    })
}

/// The columns that [`decode_set`] reads, in its order, and the key.
pub const SET_COLUMNS: &str = "agents, version, org";

/// Decodes a recorded set from [`SET_COLUMNS`].
pub fn decode_set(row: &dyn Row) -> Result<Noted, DbError> {
    Ok(Noted {
        agents: json(row, 0)?,
        version: row.int(1)?,
    })
}

/// The row has `noted`.
pub fn note(tx: &mut dyn Tx, org: &str, noted: &Noted, now: Timestamp) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO agent_sets (org, agents, version, updated_at) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT (org) DO UPDATE SET agents = excluded.agents, version = excluded.version, \
         updated_at = excluded.updated_at",
        &[
            org.into(),
            (&to_json(&noted.agents)).into(),
            noted.version.into(),
            now.0.into(),
        ],
    )
    .map(|_| ())
}

impl AgentRows for Store {
    fn stored_agents(&self) -> Result<Vec<StoredAgent>, Fault> {
        self.read_now(|tx| every(tx))
    }

    fn trusted_projects(&self) -> Result<Vec<TrustedProject>, Fault> {
        self.read_now(|tx| trust::every(tx))
    }
}
