//! The table of questions that runs ask users.

use super::asked::{self, Query};
use super::columns::{
    at, count, json, named, opt_string, opt_time, time, to_json, uuid, whole, width,
};
use crate::kernel::ids::{QuestionId, RunId, SessionId};
use crate::kernel::question::{Question, QuestionState};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Row, Tx, all, first, insert_row};

/// The columns that [`read`] decodes.
pub const COLUMNS: &str = "id, org, run_id, step, session_id, root_session, text, choices, asked_at, \
     expires_at, state, answer, answered_by, ended_at";

fn read(row: &dyn Row) -> Result<Question, DbError> {
    whole(row, "questions", &[("id", at!(id))], decode)
}

/// Decodes a question from [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Question, DbError> {
    Ok(Question {
        id: QuestionId(uuid(row, at!(id))?),
        org: row.text(at!(org))?.to_owned(),
        run: RunId(uuid(row, at!(run_id))?),
        step: count(row, at!(step))?,
        session: SessionId(uuid(row, at!(session_id))?),
        root_session: SessionId(uuid(row, at!(root_session))?),
        text: row.text(at!(text))?.to_owned(),
        choices: json(row, at!(choices))?,
        asked_at: time(row, at!(asked_at))?,
        expires_at: time(row, at!(expires_at))?,
        state: named(row, at!(state), QuestionState::parse)?,
        answer: opt_string(row, at!(answer))?,
        answered_by: opt_string(row, at!(answered_by))?,
        ended_at: opt_time(row, at!(ended_at))?,
    })
}

/// The open question is in the table, with `seq` as its list position.
pub fn insert(tx: &mut dyn Tx, seq: i64, question: &Question) -> Result<(), DbError> {
    insert_row(
        tx,
        "questions",
        &[
            ("id", (&question.id.0).into()),
            ("seq", seq.into()),
            ("org", (&question.org).into()),
            ("run_id", (&question.run.0).into()),
            ("step", question.step.into()),
            ("session_id", (&question.session.0).into()),
            ("root_session", (&question.root_session.0).into()),
            ("text", (&question.text).into()),
            ("choices", (&to_json(&question.choices)).into()),
            ("asked_at", question.asked_at.0.into()),
            ("expires_at", question.expires_at.0.into()),
            ("state", "open".into()),
        ],
    )
}

/// The question with that id.
pub fn get(tx: &mut dyn Tx, id: QuestionId) -> Result<Option<Question>, DbError> {
    first(
        tx,
        &format!("SELECT {COLUMNS} FROM questions WHERE id = ?1"),
        &[(&id.0).into()],
        read,
    )
}

/// The open question has this final state; `answer` is the text and the user who gave it.
pub fn end(
    tx: &mut dyn Tx,
    id: QuestionId,
    state: QuestionState,
    answer: Option<(&str, &str)>,
    now: Timestamp,
) -> Result<(), DbError> {
    tx.execute(
        "UPDATE questions SET state = ?2, answer = ?3, answered_by = ?4, ended_at = ?5 \
         WHERE id = ?1 AND state = 'open'",
        &[
            (&id.0).into(),
            state.as_str().into(),
            answer.map(|(text, _)| text).into(),
            answer.map(|(_, by)| by).into(),
            now.0.into(),
        ],
    )
    .map(|_| ())
}

/// The open questions of these runs, in the order of the asking steps within each run.
pub fn open_of_runs(tx: &mut dyn Tx, runs: &[RunId]) -> Result<Vec<Question>, DbError> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let (conditions, params) = asked::open_of(runs);
    let sql = format!("SELECT {COLUMNS} FROM questions WHERE {conditions} ORDER BY step");
    all(tx, &sql, &params, read)
}

/// The questions of an ended run are deleted.
pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM questions WHERE run_id = ?1",
        &[(&run.0).into()],
    )
    .map(|_| ())
}

/// A page of questions with their list positions, oldest first.
pub fn list(tx: &mut dyn Tx, query: &Query) -> Result<Vec<(i64, Question)>, DbError> {
    let (conditions, params) = query.conditions();
    let sql = format!(
        "SELECT {COLUMNS}, seq FROM questions WHERE {conditions} ORDER BY seq LIMIT {}",
        query.limit
    );
    all(tx, &sql, &params, |row| {
        Ok((row.int(width(COLUMNS))?, read(row)?))
    })
}
