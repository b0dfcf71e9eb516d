//! The table of scheduled resets and deletions, which wait for open runs to end.

use super::columns::uuid;
use crate::kernel::ids::SessionId;
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Tx, all, first};

/// What happens to a session when its last open run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clearing {
    /// The session is reset.
    Reset,
    /// The session is deleted with its descendants.
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

/// The reset or deletion is scheduled. A reset does not replace a scheduled deletion.
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

/// The scheduled reset or deletion of the session, if there is one.
pub fn of(tx: &mut dyn Tx, session: SessionId) -> Result<Option<Clearing>, DbError> {
    let found = first(
        tx,
        "SELECT what FROM clearings WHERE session_id = ?1",
        &[(&session.0).into()],
        |row| Ok(Clearing::parse(row.text(0)?)),
    )?;
    Ok(found.flatten())
}

/// Up to 1000 scheduled entries.
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

/// Nothing is scheduled for the session.
pub fn remove(tx: &mut dyn Tx, session: SessionId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM clearings WHERE session_id = ?1",
        &[(&session.0).into()],
    )
    .map(|_| ())
}
