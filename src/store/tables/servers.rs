//! The table of MCP servers: the tools that each offered at its last start.

use super::columns::whole;
use crate::contract::servers::KnownServer;
use crate::store::tx::{DbError, Row, Tx, all};

/// The columns that [`decode`] reads.
pub const COLUMNS: &str = "name, digest, tools";

/// Decodes a known server from [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<KnownServer, DbError> {
    Ok(KnownServer {
        name: row.text(0)?.to_owned(),
        digest: row.text(1)?.to_owned(),
        tools: row.text(2)?.to_owned(),
    })
}

/// All known servers, ordered by name.
pub fn every(tx: &mut dyn Tx) -> Result<Vec<KnownServer>, DbError> {
    let sql = format!("SELECT {COLUMNS} FROM tool_servers ORDER BY name");
    all(tx, &sql, &[], |row| {
        whole(row, "tool_servers", &[("name", 0)], decode)
    })
}

/// The row has `known`; an earlier one of that name is replaced.
pub fn put(tx: &mut dyn Tx, known: &KnownServer) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO tool_servers (name, digest, tools) VALUES (?1, ?2, ?3) \
         ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, tools = excluded.tools",
        &[
            (&known.name).into(),
            (&known.digest).into(),
            (&known.tools).into(),
        ],
    )
    .map(|_| ())
}
