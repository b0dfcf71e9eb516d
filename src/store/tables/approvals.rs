//! The table of approvals: requests to run a tool call, open or decided.

use super::asked::{self, Query};
use super::columns::{
    agent, at, count, json, named, opt_named, opt_string, opt_time, time, to_json, uuid, whole,
    width,
};
use crate::kernel::ids::{ApprovalId, RunId, SessionId};
use crate::kernel::policy::approval::{Approval, ApprovalState, Consent, Remember};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Row, Tx, all, first, insert_row};

/// The columns that [`read`] decodes.
pub const COLUMNS: &str = "id, org, run_id, step, session_id, root_session, agent, tool, \
     arguments, why, covers, asked_at, expires_at, state, resolved_by, remember, ended_at";

fn read(row: &dyn Row) -> Result<Approval, DbError> {
    whole(row, "approvals", &[("id", at!(id))], decode)
}

/// Decodes an approval from [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Approval, DbError> {
    Ok(Approval {
        id: ApprovalId(uuid(row, at!(id))?),
        org: row.text(at!(org))?.to_owned(),
        run: RunId(uuid(row, at!(run_id))?),
        step: count(row, at!(step))?,
        session: SessionId(uuid(row, at!(session_id))?),
        root_session: SessionId(uuid(row, at!(root_session))?),
        agent: agent(row, at!(agent))?,
        tool: row.text(at!(tool))?.to_owned(),
        arguments: json(row, at!(arguments))?,
        consent: Consent {
            why: row.text(at!(why))?.to_owned(),
            covers: row.text(at!(covers))?.to_owned(),
            arguments: None,
        },
        asked_at: time(row, at!(asked_at))?,
        expires_at: time(row, at!(expires_at))?,
        state: named(row, at!(state), ApprovalState::parse)?,
        resolved_by: opt_string(row, at!(resolved_by))?,
        remember: opt_named(row, at!(remember), Remember::parse)?,
        ended_at: opt_time(row, at!(ended_at))?,
    })
}

/// The approval is in the table, open or decided, with `seq` as its list position.
pub fn insert(tx: &mut dyn Tx, seq: i64, one: &Approval) -> Result<(), DbError> {
    insert_row(
        tx,
        "approvals",
        &[
            ("id", (&one.id.0).into()),
            ("seq", seq.into()),
            ("org", (&one.org).into()),
            ("run_id", (&one.run.0).into()),
            ("step", one.step.into()),
            ("session_id", (&one.session.0).into()),
            ("root_session", (&one.root_session.0).into()),
            ("agent", one.agent.as_str().into()),
            ("tool", (&one.tool).into()),
            ("arguments", (&to_json(&one.arguments)).into()),
            ("why", (&one.consent.why).into()),
            ("covers", (&one.consent.covers).into()),
            ("asked_at", one.asked_at.0.into()),
            ("expires_at", one.expires_at.0.into()),
            ("state", one.state.as_str().into()),
            ("resolved_by", one.resolved_by.as_deref().into()),
            ("remember", one.remember.map(Remember::as_str).into()),
            ("ended_at", one.ended_at.map(|at| at.0).into()),
        ],
    )
}

/// The approval with that id.
pub fn get(tx: &mut dyn Tx, id: ApprovalId) -> Result<Option<Approval>, DbError> {
    first(
        tx,
        &format!("SELECT {COLUMNS} FROM approvals WHERE id = ?1"),
        &[(&id.0).into()],
        read,
    )
}

/// The open approval has the final state and decision of `one`.
pub fn end(tx: &mut dyn Tx, one: &Approval) -> Result<(), DbError> {
    tx.execute(
        "UPDATE approvals SET state = ?2, resolved_by = ?3, remember = ?4, ended_at = ?5 \
         WHERE id = ?1 AND state = 'open'",
        &[
            (&one.id.0).into(),
            one.state.as_str().into(),
            one.resolved_by.as_deref().into(),
            one.remember.map(Remember::as_str).into(),
            one.ended_at.map(|at: Timestamp| at.0).into(),
        ],
    )
    .map(|_| ())
}

/// The open approvals of these runs, in call order within each run.
pub fn open_of_runs(tx: &mut dyn Tx, runs: &[RunId]) -> Result<Vec<Approval>, DbError> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let (conditions, params) = asked::open_of(runs);
    let sql = format!("SELECT {COLUMNS} FROM approvals WHERE {conditions} ORDER BY step");
    all(tx, &sql, &params, read)
}

/// The approvals of an ended run are deleted.
pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM approvals WHERE run_id = ?1",
        &[(&run.0).into()],
    )
    .map(|_| ())
}

/// A page of approvals with their list positions, oldest first.
pub fn list(tx: &mut dyn Tx, query: &Query) -> Result<Vec<(i64, Approval)>, DbError> {
    let (conditions, params) = query.conditions();
    let sql = format!(
        "SELECT {COLUMNS}, seq FROM approvals WHERE {conditions} ORDER BY seq LIMIT {}",
        query.limit
    );
    all(tx, &sql, &params, |row| {
        Ok((row.int(width(COLUMNS))?, read(row)?))
    })
}
