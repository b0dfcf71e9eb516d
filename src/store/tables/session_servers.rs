//! The table of MCP servers that clients have given to sessions.

use super::table::{self, read, table};
use crate::contract::servers::StoredServer;
use crate::kernel::ids::SessionId;
use crate::store::tx::{DbError, Tx, all, execute, first, sql};

table! {
    session_servers: StoredServer;
    key { session(session_id), name }
    update { given, transport, digest, sealed, tools, problem, set_at }
    // A server that cannot be started or reached is none; its client gives it again.
    undecodable Moved {
        "given" => "given = name",
        "transport" => "transport = 'stdio'",
        "digest" => "digest = ''",
        "tools" => "tools = NULL",
        "problem" => "problem = NULL",
        "set_at" => "set_at = 0",
    }
}

/// The servers of a session, ordered by name.
pub fn of(tx: &mut dyn Tx, session: SessionId) -> Result<Vec<StoredServer>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM session_servers WHERE session_id = ?1 ORDER BY name");
    all(tx, sql, &[(&session).into()], read)
}

/// The server of that name of a session.
pub fn get(
    tx: &mut dyn Tx,
    session: SessionId,
    name: &str,
) -> Result<Option<StoredServer>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM session_servers WHERE session_id = ?1 AND name = ?2");
    first(tx, sql, &[(&session).into(), name.into()], read)
}

/// The row has these values.
pub fn put(tx: &mut dyn Tx, server: &StoredServer) -> Result<(), DbError> {
    table::put(tx, server, [])
}

/// The session has no servers.
pub fn remove(tx: &mut dyn Tx, session: SessionId) -> Result<(), DbError> {
    execute(
        tx,
        "DELETE FROM session_servers WHERE session_id = ?1",
        &[(&session).into()],
    )
}
