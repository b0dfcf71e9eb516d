//! Marks on sessions, one row each: a cancel that is in force, a reset or deletion that waits for
//! open runs, rows that are left to remove.

/// The sessions in which a cancel is in force, because no work has begun since.
pub mod stops {
    use crate::kernel::ids::SessionId;
    use crate::kernel::run::stop::Stop;
    use crate::kernel::time::Timestamp;
    use crate::store::tables::columns::{columns_of, values};
    use crate::store::tx::{DbError, Tx, execute, first};

    columns_of!(Stop { by_person, at });

    /// A cancel is in force in the session. A user's cancel is not downgraded to an agent's.
    pub fn insert(
        tx: &mut dyn Tx,
        session: SessionId,
        by_person: bool,
        now: Timestamp,
    ) -> Result<(), DbError> {
        execute(
            tx,
            "INSERT INTO stops (session_id, by_person, at) VALUES (?1, ?2, ?3) \
             ON CONFLICT (session_id) DO UPDATE SET at = excluded.at, \
             by_person = CASE WHEN stops.by_person = 1 THEN 1 ELSE excluded.by_person END",
            &[(&session).into(), by_person.into(), now.0.into()],
        )
    }

    /// The cancel that is in force in the session, if there is one.
    pub fn of(tx: &mut dyn Tx, session: SessionId) -> Result<Option<Stop>, DbError> {
        first(
            tx,
            "SELECT by_person, at FROM stops WHERE session_id = ?1",
            &[(&session).into()],
            values,
        )
    }

    /// No cancel is in force in the session.
    pub fn remove(tx: &mut dyn Tx, session: SessionId) -> Result<(), DbError> {
        execute(
            tx,
            "DELETE FROM stops WHERE session_id = ?1",
            &[(&session).into()],
        )
    }
}

/// Scheduled resets and deletions, which wait for open runs to end.
pub mod clearings {
    use crate::kernel::ids::SessionId;
    use crate::kernel::text::text_enum::text_enum;
    use crate::kernel::time::Timestamp;
    use crate::store::tables::columns::values;
    use crate::store::tx::{DbError, Tx, all, execute, first};

    text_enum! {
        /// What happens to a session when its last open run has ended.
        Clearing {
            /// The session is reset.
            Reset = "reset",
            /// The session is deleted with its descendants.
            Delete = "delete",
        }
    }

    /// The reset or deletion is scheduled. A reset does not replace a scheduled deletion.
    pub fn insert(
        tx: &mut dyn Tx,
        session: SessionId,
        what: Clearing,
        now: Timestamp,
    ) -> Result<(), DbError> {
        execute(
            tx,
            "INSERT INTO clearings (session_id, what, asked_at) VALUES (?1, ?2, ?3) \
             ON CONFLICT (session_id) DO UPDATE SET what = excluded.what \
             WHERE excluded.what = 'delete'",
            &[(&session).into(), what.as_str().into(), now.0.into()],
        )
    }

    /// The scheduled reset or deletion of the session, if there is one.
    pub fn of(tx: &mut dyn Tx, session: SessionId) -> Result<Option<Clearing>, DbError> {
        let found = first(
            tx,
            "SELECT what FROM clearings WHERE session_id = ?1",
            &[(&session).into()],
            values::<String>,
        )?;
        Ok(found.and_then(|what| Clearing::parse(&what)))
    }

    /// Up to 1000 scheduled entries.
    pub fn some(tx: &mut dyn Tx) -> Result<Vec<(SessionId, Clearing)>, DbError> {
        let found = all(
            tx,
            "SELECT session_id, what FROM clearings LIMIT 1000",
            &[],
            values::<(SessionId, String)>,
        )?;
        Ok(found
            .into_iter()
            .filter_map(|(session, what)| Some((session, Clearing::parse(&what)?)))
            .collect())
    }

    /// Nothing is scheduled for the session.
    pub fn remove(tx: &mut dyn Tx, session: SessionId) -> Result<(), DbError> {
        execute(
            tx,
            "DELETE FROM clearings WHERE session_id = ?1",
            &[(&session).into()],
        )
    }
}

/// Deleted sessions whose transcripts and journals are still being removed.
pub mod purges {
    use crate::kernel::ids::SessionId;
    use crate::kernel::time::Timestamp;
    use crate::store::tables::columns::values;
    use crate::store::tx::{DbError, Tx, all, execute, first};

    /// The remaining rows of the deleted session are scheduled for removal.
    pub fn insert(tx: &mut dyn Tx, session: SessionId, now: Timestamp) -> Result<(), DbError> {
        execute(
            tx,
            "INSERT INTO purges (session_id, deleted_at) VALUES (?1, ?2) \
             ON CONFLICT (session_id) DO NOTHING",
            &[(&session).into(), now.0.into()],
        )
    }

    /// List position of the last run whose journal is removed; `None` if nothing is scheduled.
    pub fn run_seq(tx: &mut dyn Tx, session: SessionId) -> Result<Option<i64>, DbError> {
        first(
            tx,
            "SELECT run_seq FROM purges WHERE session_id = ?1",
            &[(&session).into()],
            values,
        )
    }

    /// The journals of the session's runs up to this list position are removed.
    pub fn advance(tx: &mut dyn Tx, session: SessionId, run_seq: i64) -> Result<(), DbError> {
        execute(
            tx,
            "UPDATE purges SET run_seq = ?2 WHERE session_id = ?1",
            &[(&session).into(), run_seq.into()],
        )
    }

    /// No rows of the session are left to remove.
    pub fn remove(tx: &mut dyn Tx, session: SessionId) -> Result<(), DbError> {
        execute(
            tx,
            "DELETE FROM purges WHERE session_id = ?1",
            &[(&session).into()],
        )
    }

    /// Up to 1000 sessions that have rows left to remove.
    pub fn sessions(tx: &mut dyn Tx) -> Result<Vec<SessionId>, DbError> {
        all(tx, "SELECT session_id FROM purges LIMIT 1000", &[], values)
    }
}
