//! The table of remembered decisions: decided approvals that also apply to later, similar calls.

use super::columns::{agent, at, named, time, uuid, whole, width};
use crate::kernel::ids::{ApprovalId, SessionId};
use crate::kernel::policy::approval::{Approval, Choice, Remember, Remembered};
use crate::store::tx::{DbError, Row, Tx, all, first, insert_row};

/// The columns that [`read`] decodes.
pub const COLUMNS: &str =
    "id, org, scope, session_id, agent, tool, covers, choice, decided_by, decided_at";

fn read(row: &dyn Row) -> Result<Remembered, DbError> {
    whole(row, "remembered", &[("id", at!(id))], decode)
}

/// Decodes a remembered decision from [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Remembered, DbError> {
    Ok(Remembered {
        id: ApprovalId(uuid(row, at!(id))?),
        org: row.text(at!(org))?.to_owned(),
        scope: named(row, at!(scope), Remember::parse)?,
        session: SessionId(uuid(row, at!(session_id))?),
        agent: agent(row, at!(agent))?,
        tool: row.text(at!(tool))?.to_owned(),
        covers: row.text(at!(covers))?.to_owned(),
        choice: named(row, at!(choice), Choice::parse)?,
        by: row.text(at!(decided_by))?.to_owned(),
        at: time(row, at!(decided_at))?,
    })
}

/// The decision is remembered, with `seq` as its list position.
pub fn insert(tx: &mut dyn Tx, seq: i64, one: &Remembered) -> Result<(), DbError> {
    insert_row(
        tx,
        "remembered",
        &[
            ("id", (&one.id.0).into()),
            ("seq", seq.into()),
            ("org", (&one.org).into()),
            ("scope", one.scope.as_str().into()),
            ("session_id", (&one.session.0).into()),
            ("agent", one.agent.as_str().into()),
            ("tool", (&one.tool).into()),
            ("covers", (&one.covers).into()),
            ("choice", one.choice.as_str().into()),
            ("decided_by", (&one.by).into()),
            ("decided_at", one.at.0.into()),
        ],
    )
}

/// The remembered decision for the call of `asked`; a denial takes precedence over an approval.
pub fn of(tx: &mut dyn Tx, asked: &Approval) -> Result<Option<Remembered>, DbError> {
    first(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM remembered WHERE org = ?1 AND tool = ?2 AND covers = ?3 \
             AND ((scope = 'session' AND session_id = ?4) OR (scope = 'agent' AND agent = ?5)) \
             ORDER BY CASE choice WHEN 'deny' THEN 0 ELSE 1 END, seq LIMIT 1"
        ),
        &[
            (&asked.org).into(),
            (&asked.tool).into(),
            (&asked.consent.covers).into(),
            (&asked.session.0).into(),
            asked.agent.as_str().into(),
        ],
        read,
    )
}

/// A page of a tenant's remembered decisions with their list positions, oldest first.
pub fn list(
    tx: &mut dyn Tx,
    org: &str,
    after: i64,
    limit: u32,
) -> Result<Vec<(i64, Remembered)>, DbError> {
    all(
        tx,
        &format!(
            "SELECT {COLUMNS}, seq FROM remembered WHERE seq > ?1 AND org = ?2 ORDER BY seq \
             LIMIT {limit}"
        ),
        &[after.into(), org.into()],
        |row| Ok((row.int(width(COLUMNS))?, read(row)?)),
    )
}

/// The decision no longer applies; returns whether it existed.
pub fn forget(tx: &mut dyn Tx, org: &str, id: ApprovalId) -> Result<bool, DbError> {
    tx.execute(
        "DELETE FROM remembered WHERE id = ?1 AND org = ?2",
        &[(&id.0).into(), org.into()],
    )
    .map(|gone| gone > 0)
}

/// The decisions remembered for a deleted session are deleted.
pub fn remove(tx: &mut dyn Tx, session: SessionId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM remembered WHERE scope = 'session' AND session_id = ?1",
        &[(&session.0).into()],
    )
    .map(|_| ())
}
