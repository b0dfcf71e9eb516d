//! The table of steps: the journal of each run.

use super::columns::{
    at, count, json, named, opt_json, opt_string, opt_time, opt_uuid, time, to_json, uuid, whole,
};
use super::filter::Filter;
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::run::Run;
use crate::kernel::run::step::{Effect, Step, StepKind, StepState, Wait, WaitKind};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Row, Tx, all, first, insert_row, update_rows};

/// The columns that [`read`] decodes.
pub const COLUMNS: &str = "id, run_id, seq, kind, tool, tool_call, asked_by, effect, state, input, \
     seen_up_to, message_seq, params_summary, result_summary, error, attempts, started_at, ended_at, \
     waits, wait_until, used";

fn read(row: &dyn Row) -> Result<Step, DbError> {
    whole(
        row,
        "steps",
        &[("run_id", at!(run_id)), ("seq", at!(seq))],
        decode,
    )
}

/// Decodes a step from [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Step, DbError> {
    Ok(Step {
        id: StepId(uuid(row, at!(id))?),
        run: RunId(uuid(row, at!(run_id))?),
        seq: count(row, at!(seq))?,
        kind: named(row, at!(kind), StepKind::parse)?,
        tool: opt_string(row, at!(tool))?,
        tool_call: opt_string(row, at!(tool_call))?,
        asked_by: opt_uuid(row, at!(asked_by))?.map(StepId),
        effect: named(row, at!(effect), Effect::parse)?,
        state: named(row, at!(state), StepState::parse)?,
        input: json(row, at!(input))?,
        seen_up_to: row.opt_int(at!(seen_up_to))?,
        message_seq: row.opt_int(at!(message_seq))?,
        params_summary: opt_string(row, at!(params_summary))?,
        result_summary: opt_string(row, at!(result_summary))?,
        error: opt_string(row, at!(error))?,
        attempts: count(row, at!(attempts))?,
        started_at: time(row, at!(started_at))?,
        ended_at: opt_time(row, at!(ended_at))?,
        waits: match row.opt_text(at!(waits))? {
            Some(_) => Some(Wait {
                kind: named(row, at!(waits), WaitKind::parse)?,
                until: opt_time(row, at!(wait_until))?,
            }),
            None => None,
        },
        used: opt_json(row, at!(used))?,
    })
}

/// The step is in the journal.
pub fn insert(tx: &mut dyn Tx, step: &Step) -> Result<(), DbError> {
    insert_row(
        tx,
        "steps",
        &[
            ("run_id", (&step.run.0).into()),
            ("seq", step.seq.into()),
            ("id", (&step.id.0).into()),
            ("kind", step.kind.as_str().into()),
            ("tool", step.tool.as_deref().into()),
            ("tool_call", step.tool_call.as_deref().into()),
            ("asked_by", step.asked_by.as_ref().map(|id| &id.0).into()),
            ("effect", step.effect.as_str().into()),
            ("state", step.state.as_str().into()),
            ("input", (&to_json(&step.input)).into()),
            ("seen_up_to", step.seen_up_to.into()),
            ("params_summary", step.params_summary.as_deref().into()),
            ("attempts", step.attempts.into()),
            ("started_at", step.started_at.0.into()),
        ],
    )
}

/// The row has the state, outcome and attempts of `step`.
pub fn update(tx: &mut dyn Tx, step: &Step) -> Result<(), DbError> {
    update_rows(
        tx,
        "steps",
        &[("run_id", (&step.run.0).into()), ("seq", step.seq.into())],
        &[
            ("state", step.state.as_str().into()),
            ("message_seq", step.message_seq.into()),
            ("result_summary", step.result_summary.as_deref().into()),
            ("error", step.error.as_deref().into()),
            ("attempts", step.attempts.into()),
            ("ended_at", step.ended_at.map(|at: Timestamp| at.0).into()),
            ("used", step.used.as_ref().map(to_json).as_deref().into()),
        ],
    )
    .map(|_| ())
}

/// The open step is marked as waiting.
pub fn set_wait(tx: &mut dyn Tx, run: RunId, seq: u32, wait: Wait) -> Result<(), DbError> {
    tx.execute(
        "UPDATE steps SET waits = ?3, wait_until = ?4 WHERE run_id = ?1 AND seq = ?2",
        &[
            (&run.0).into(),
            seq.into(),
            wait.kind.as_str().into(),
            wait.until.map(|at| at.0).into(),
        ],
    )
    .map(|_| ())
}

/// The open step no longer waits; it is to be executed.
pub fn clear_wait(tx: &mut dyn Tx, run: RunId, seq: u32) -> Result<(), DbError> {
    tx.execute(
        "UPDATE steps SET waits = NULL, wait_until = NULL WHERE run_id = ?1 AND seq = ?2",
        &[(&run.0).into(), seq.into()],
    )
    .map(|_| ())
}

/// True if the run is in the middle of a turn. A turn ends with a model answer, never with a
/// tool; a run that waits for a slot after a tool continues the same turn.
pub fn is_in_turn(tx: &mut dyn Tx, run: &Run) -> Result<bool, DbError> {
    if run.started_at.is_none() {
        return Ok(false);
    }
    let last = get(tx, run.id, run.steps)?;
    Ok(last.is_some_and(|step| !step.kind.answers() || step.state.is_open()))
}

/// Queued runs that are in the middle of a turn.
pub fn in_turn(tx: &mut dyn Tx) -> Result<Vec<RunId>, DbError> {
    all(
        tx,
        "SELECT runs.id FROM runs JOIN steps ON steps.run_id = runs.id AND steps.seq = runs.steps \
         WHERE runs.ended_at IS NULL AND runs.state = 'queued' AND runs.started_at IS NOT NULL \
         AND (steps.kind IN ('tool', 'compaction') OR steps.ended_at IS NULL)",
        &[],
        |row| Ok(RunId(uuid(row, 0)?)),
    )
}

/// The step at this position of the run.
pub fn get(tx: &mut dyn Tx, run: RunId, seq: u32) -> Result<Option<Step>, DbError> {
    first(
        tx,
        &format!("SELECT {COLUMNS} FROM steps WHERE run_id = ?1 AND seq = ?2"),
        &[(&run.0).into(), seq.into()],
        read,
    )
}

/// The step of this run with that id.
pub fn by_id(tx: &mut dyn Tx, run: RunId, id: StepId) -> Result<Option<Step>, DbError> {
    first(
        tx,
        &format!("SELECT {COLUMNS} FROM steps WHERE run_id = ?1 AND id = ?2"),
        &[(&run.0).into(), (&id.0).into()],
        read,
    )
}

/// The steps of these runs that wait for `kind`, in call order within each run.
pub fn waiting(tx: &mut dyn Tx, runs: &[RunId], kind: WaitKind) -> Result<Vec<Step>, DbError> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let mut filter = Filter::default();
    filter.one_of("run_id", runs.iter().map(|run| &run.0));
    filter.only("ended_at IS NULL");
    filter.by("waits = ?", kind.as_str());
    let (conditions, params) = filter.finish();
    let sql = format!("SELECT {COLUMNS} FROM steps WHERE {conditions} ORDER BY run_id, seq");
    all(tx, &sql, &params, read)
}

/// The run's steps after `seq`, in order.
pub fn after(tx: &mut dyn Tx, run: RunId, seq: u32, limit: u32) -> Result<Vec<Step>, DbError> {
    all(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM steps WHERE run_id = ?1 AND seq > ?2 ORDER BY seq LIMIT {limit}"
        ),
        &[(&run.0).into(), seq.into()],
        read,
    )
}

/// Maximum number of a run's last steps that are read to show its work.
const SHOWN: u32 = 1000;

/// The last steps of the run, in order.
pub fn latest(tx: &mut dyn Tx, run: &Run) -> Result<Vec<Step>, DbError> {
    after(tx, run.id, run.steps.saturating_sub(SHOWN), SHOWN)
}

/// The run's todo list: the arguments of its latest completed call of `todo`.
pub fn todo(tx: &mut dyn Tx, run: &Run) -> Result<Option<serde_json::Value>, DbError> {
    if run.tool_calls == 0 {
        return Ok(None);
    }
    first(
        tx,
        "SELECT input, run_id, seq FROM steps WHERE run_id = ?1 AND tool = 'todo' \
         AND state = 'done' ORDER BY seq DESC LIMIT 1",
        &[(&run.id.0).into()],
        |row| {
            whole(row, "steps", &[("run_id", 1), ("seq", 2)], |row| {
                json(row, 0)
            })
        },
    )
}

/// The transcript seq of the outcome of the run's latest step for this tool call id.
pub fn result_of(tx: &mut dyn Tx, run: RunId, tool_call: &str) -> Result<Option<i64>, DbError> {
    let found = first(
        tx,
        "SELECT message_seq FROM steps WHERE run_id = ?1 AND tool_call = ?2 \
         ORDER BY seq DESC LIMIT 1",
        &[(&run.0).into(), tool_call.into()],
        |row| row.opt_int(0),
    )?;
    Ok(found.flatten())
}

/// The run's steps without an outcome, in call order.
pub fn open(tx: &mut dyn Tx, run: RunId) -> Result<Vec<Step>, DbError> {
    all(
        tx,
        &format!("SELECT {COLUMNS} FROM steps WHERE run_id = ?1 AND ended_at IS NULL ORDER BY seq"),
        &[(&run.0).into()],
        read,
    )
}

/// A step as shown in lists: its seq, and its tool name or, without one, its kind.
pub type ShownStep = (u32, String);

/// The open steps of these runs, in call order within each run.
pub fn open_of_runs(tx: &mut dyn Tx, runs: &[RunId]) -> Result<Vec<(RunId, ShownStep)>, DbError> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let mut filter = Filter::default();
    filter.one_of("run_id", runs.iter().map(|run| &run.0));
    filter.only("ended_at IS NULL");
    let (conditions, params) = filter.finish();
    let sql = format!(
        "SELECT run_id, seq, coalesce(tool, kind) FROM steps WHERE {conditions} ORDER BY run_id, seq"
    );
    all(tx, &sql, &params, |row| {
        whole(row, "steps", &[("run_id", 0), ("seq", 1)], |row| {
            let what = row.text(2)?.to_owned();
            Ok((RunId(uuid(row, 0)?), (count(row, 1)?, what)))
        })
    })
}

/// At most `limit` of the run's steps are deleted; returns the number deleted.
pub fn remove_some(tx: &mut dyn Tx, run: RunId, limit: u32) -> Result<u64, DbError> {
    tx.execute(
        &format!(
            "DELETE FROM steps WHERE run_id = ?1 AND seq IN \
             (SELECT seq FROM steps WHERE run_id = ?1 ORDER BY seq LIMIT {limit})"
        ),
        &[(&run.0).into()],
    )
}

/// Seq of the last message that the run's latest model call sees; 0 before the first call.
pub fn seen_up_to(tx: &mut dyn Tx, run: RunId) -> Result<i64, DbError> {
    crate::store::tx::number(
        tx,
        "SELECT seen_up_to FROM steps WHERE run_id = ?1 AND kind = 'model' \
         ORDER BY seq DESC LIMIT 1",
        &[(&run.0).into()],
    )
}
