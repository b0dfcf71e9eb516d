//! The table of questions.

use super::columns::{count, json, named, opt_string, opt_time, time, to_json, uuid, whole};
use super::tx::{DbError, Param, Row, Tx, all, first};
use crate::kernel::ids::{QuestionId, RunId, SessionId};
use crate::kernel::question::{Question, QuestionState};
use crate::kernel::time::Timestamp;

/// The columns that [`read`] reads, in its order.
pub const COLUMNS: &str = "id, org, run_id, step, session_id, root_session, text, choices, asked_at, \
     expires_at, state, answer, answered_by, ended_at";

fn read(row: &dyn Row) -> Result<Question, DbError> {
    whole(row, "questions", &[("id", 0)], decode)
}

/// A row out of [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Question, DbError> {
    Ok(Question {
        id: QuestionId(uuid(row, 0)?),
        org: row.text(1)?.to_owned(),
        run: RunId(uuid(row, 2)?),
        step: count(row, 3)?,
        session: SessionId(uuid(row, 4)?),
        root_session: SessionId(uuid(row, 5)?),
        text: row.text(6)?.to_owned(),
        choices: json(row, 7)?,
        asked_at: time(row, 8)?,
        expires_at: time(row, 9)?,
        state: named(row, 10, QuestionState::parse)?,
        answer: opt_string(row, 11)?,
        answered_by: opt_string(row, 12)?,
        ended_at: opt_time(row, 13)?,
    })
}

/// The question is in the table, at place `seq` of every list.
pub fn insert(tx: &mut dyn Tx, seq: i64, question: &Question) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO questions (id, seq, org, run_id, step, session_id, root_session, text, \
         choices, asked_at, expires_at, state) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'open')",
        &[
            (&question.id.0).into(),
            seq.into(),
            (&question.org).into(),
            (&question.run.0).into(),
            question.step.into(),
            (&question.session.0).into(),
            (&question.root_session.0).into(),
            (&question.text).into(),
            (&to_json(&question.choices)).into(),
            question.asked_at.0.into(),
            question.expires_at.0.into(),
        ],
    )
    .map(|_| ())
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

/// The open question is over, in this way.
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

/// The run's open questions, in the order in which they were asked.
pub fn open_of_run(tx: &mut dyn Tx, run: RunId) -> Result<Vec<Question>, DbError> {
    all(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM questions WHERE run_id = ?1 AND state = 'open' ORDER BY step"
        ),
        &[(&run.0).into()],
        read,
    )
}

/// The questions of a run that has ended are gone.
pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM questions WHERE run_id = ?1",
        &[(&run.0).into()],
    )
    .map(|_| ())
}

/// Which questions a list gives.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// The tenant.
    pub org: String,
    /// Of this session only.
    pub session: Option<SessionId>,
    /// Of the tree with this root only.
    pub root: Option<SessionId>,
    /// In this state only.
    pub state: Option<QuestionState>,
    /// Places above this one only.
    pub after: Option<i64>,
    /// So many at most.
    pub limit: u32,
}

/// A page of questions with their places, oldest first.
pub fn list(tx: &mut dyn Tx, query: &Query) -> Result<Vec<(i64, Question)>, DbError> {
    let mut params: Vec<Param<'_>> = vec![(&query.org).into()];
    let mut clauses = vec!["org = ?1".to_owned()];
    let mut bind = |clause: &str, param| {
        params.push(param);
        clauses.push(clause.replace('?', &format!("?{}", params.len())));
    };
    if let Some(session) = &query.session {
        bind("session_id = ?", (&session.0).into());
    }
    if let Some(root) = &query.root {
        bind("root_session = ?", (&root.0).into());
    }
    if let Some(after) = query.after {
        bind("seq > ?", after.into());
    }
    match query.state {
        // Written out, so that the engine can take the short index of open ones.
        Some(QuestionState::Open) => clauses.push("state = 'open'".to_owned()),
        Some(state) => bind("state = ?", state.as_str().into()),
        None => {}
    }
    let sql = format!(
        "SELECT {COLUMNS}, seq FROM questions WHERE {} ORDER BY seq LIMIT {}",
        clauses.join(" AND "),
        query.limit
    );
    all(tx, &sql, &params, |row| Ok((row.int(14)?, read(row)?)))
}
