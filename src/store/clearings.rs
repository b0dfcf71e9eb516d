//! The table of resets and deletions that wait for the end of open runs.

use super::columns::uuid;
use super::tx::{DbError, Tx, all, first};
use crate::kernel::ids::SessionId;
use crate::kernel::time::Timestamp;

/// What becomes of a session once nothing in it is open any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clearing {
    /// It begins anew.
    Reset,
    /// It goes, with those below it.
    Delete,
}

impl Clearing {
    fn as_str(self) -> &'static str {
        match self {
            Clearing::Reset => "reset",
            Clearing::Delete => "delete",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Clearing::Reset, Clearing::Delete]
            .into_iter()
            .find(|one| one.as_str() == text)
    }
}

/// This is to become of the session. Who has asked for its deletion does not get a reset.
pub fn insert(
    tx: &mut dyn Tx,
    session: SessionId,
    what: Clearing,
    now: Timestamp,
) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO clearings (session_id, what, asked_at) VALUES (?1, ?2, ?3) \
         ON CONFLICT (session_id) DO UPDATE SET what = excluded.what \
         WHERE excluded.what = 'delete'",
        &[(&session.0).into(), what.as_str().into(), now.0.into()],
    )
    .map(|_| ())
}

/// What is to become of the session, if somebody has asked for it.
pub fn of(tx: &mut dyn Tx, session: SessionId) -> Result<Option<Clearing>, DbError> {
    let found = first(
        tx,
        "SELECT what FROM clearings WHERE session_id = ?1",
        &[(&session.0).into()],
        |row| Ok(Clearing::parse(row.text(0)?)),
    )?;
    Ok(found.flatten())
}

/// Some of those that wait, in the order of their sessions.
pub fn some(tx: &mut dyn Tx) -> Result<Vec<(SessionId, Clearing)>, DbError> {
    let found = all(
        tx,
        "SELECT session_id, what FROM clearings LIMIT 1000",
        &[],
        |row| Ok((SessionId(uuid(row, 0)?), Clearing::parse(row.text(1)?))),
    )?;
    Ok(found
        .into_iter()
        .filter_map(|(session, what)| Some((session, what?)))
        .collect())
}

/// Nothing of that kind waits for the session.
pub fn remove(tx: &mut dyn Tx, session: SessionId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM clearings WHERE session_id = ?1",
        &[(&session.0).into()],
    )
    .map(|_| ())
}
