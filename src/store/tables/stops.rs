//! The table of sessions in which a cancel is in force, because no work has begun since.

use crate::kernel::ids::SessionId;
use crate::kernel::run::stop::Stop;
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Tx, first};

/// A cancel is in force in the session. A user's cancel is not downgraded to an agent's.
pub fn insert(
    tx: &mut dyn Tx,
    session: SessionId,
    by_person: bool,
    now: Timestamp,
) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO stops (session_id, by_person, at) VALUES (?1, ?2, ?3) \
         ON CONFLICT (session_id) DO UPDATE SET at = excluded.at, \
         by_person = CASE WHEN stops.by_person = 1 THEN 1 ELSE excluded.by_person END",
        &[(&session.0).into(), by_person.into(), now.0.into()],
    )
    .map(|_| ())
}

/// The cancel that is in force in the session, if there is one.
pub fn of(tx: &mut dyn Tx, session: SessionId) -> Result<Option<Stop>, DbError> {
    first(
        tx,
        "SELECT by_person, at FROM stops WHERE session_id = ?1",
        &[(&session.0).into()],
        |row| {
            Ok(Stop {
                by_person: row.int(0)? != 0,
                at: Timestamp(row.int(1)?),
            })
        },
    )
}

/// No cancel is in force in the session.
pub fn remove(tx: &mut dyn Tx, session: SessionId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM stops WHERE session_id = ?1",
        &[(&session.0).into()],
    )
    .map(|_| ())
}
