//! The table of permission bundles: the upper limit of what runs of a spawned session may do.

use super::columns::to_json;
use super::table::{self, read, table};
use crate::kernel::ids::SessionId;
use crate::kernel::policy::gate::{Bundle, Decision, Layer, Rule, Writes};
use crate::store::tx::{DbError, Tx, execute, first, sql};

/// The bundle of a session.
struct SessionBundle {
    session: SessionId,
    body: String,
}

table! {
    bundles: SessionBundle;
    key { session(session_id) }
    insert { body }
    // Without it the session's runs would have no restriction.
    undecodable Kept {}
}

/// The session's bundle is in the table.
pub fn insert(tx: &mut dyn Tx, session: SessionId, body: &str) -> Result<(), DbError> {
    let body = body.to_owned();
    table::insert(tx, &SessionBundle { session, body }, [])
}

/// The session's bundle; `None` if it was not spawned, or its parent had no restriction.
pub fn get(tx: &mut dyn Tx, session: SessionId) -> Result<Option<String>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM bundles WHERE session_id = ?1");
    let found = first(tx, sql, &[(&session).into()], read::<SessionBundle>)?;
    Ok(found.map(|bundle| bundle.body))
}

/// The bundle of a deleted session is deleted.
pub fn remove(tx: &mut dyn Tx, session: SessionId) -> Result<(), DbError> {
    execute(
        tx,
        "DELETE FROM bundles WHERE session_id = ?1",
        &[(&session).into()],
    )
}

/// The bundle that replaces a lost one: nothing is allowed.
pub fn lost() -> String {
    to_json(&Bundle {
        layers: vec![Layer {
            agent: "(lost with a part of the damaged store)".to_owned(),
            rules: vec![Rule {
                tool: "*".to_owned(),
                pattern: None,
                node: None,
                decision: Decision::Deny,
            }],
        }],
        writes: Writes::Nowhere,
    })
}

/// Every spawned session without a bundle has one that allows nothing, so that no run has more
/// permissions than before the rows were lost.
pub fn close_unbound(tx: &mut dyn Tx) -> Result<(), DbError> {
    execute(
        tx,
        "INSERT INTO bundles (session_id, body) SELECT id, ?1 FROM sessions \
         WHERE depth > 0 AND NOT EXISTS (SELECT 1 FROM bundles WHERE session_id = sessions.id)",
        &[lost().as_str().into()],
    )
}
