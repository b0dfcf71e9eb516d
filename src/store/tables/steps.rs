//! The table of steps: the journal of each run.

use super::columns::{columns_of, keyed, values};
use super::filter::Filter;
use super::table::{self, read, table};
use crate::contract::nodes::StepOfCall;
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::run::Run;
use crate::kernel::run::step::{Step, StepKind, StepWait, WaitKind};
use crate::store::tx::{DbError, Tx, all, execute, first, number, sql};

table! {
    steps: Step;
    key { run(run_id), seq }
    insert {
        id,
        kind,
        tool,
        tool_call,
        asked_by,
        effect,
        input,
        seen_up_to,
        params_summary,
        started_at,
        waits(waits, wait_until),
    }
    update { state, message_seq, result_summary, error, attempts, ended_at, used }
    // A step with invented parts is no evidence.
    undecodable Moved {}
}

columns_of!(optional StepWait { kind, until });

/// The step is in the journal.
pub fn insert(tx: &mut dyn Tx, step: &Step) -> Result<(), DbError> {
    table::insert(tx, step, [])
}

/// The row has the state, outcome and attempts of `step`.
pub fn update(tx: &mut dyn Tx, step: &Step) -> Result<(), DbError> {
    table::update(tx, step)
}

/// The open step has this input.
pub fn set_input(
    tx: &mut dyn Tx,
    run: RunId,
    seq: u32,
    input: &serde_json::Value,
) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE steps SET input = ?3 WHERE run_id = ?1 AND seq = ?2",
        &[(&run).into(), seq.into(), input.to_string().into()],
    )
}

/// The open step is marked as waiting.
pub fn set_wait(tx: &mut dyn Tx, run: RunId, seq: u32, wait: StepWait) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE steps SET waits = ?3, wait_until = ?4 WHERE run_id = ?1 AND seq = ?2",
        &[
            (&run).into(),
            seq.into(),
            wait.kind.as_str().into(),
            wait.until.map(|at| at.0).into(),
        ],
    )
}

/// The open step no longer waits; it is to be executed.
pub fn clear_wait(tx: &mut dyn Tx, run: RunId, seq: u32) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE steps SET waits = NULL, wait_until = NULL WHERE run_id = ?1 AND seq = ?2",
        &[(&run).into(), seq.into()],
    )
}

/// True if the run is in the middle of a turn. A turn ends with a model answer, never with a
/// tool; a run that waits for a slot after a tool continues the same turn. A call of an outside agent
/// is a part of its prompt.
pub fn is_in_turn(tx: &mut dyn Tx, run: &Run) -> Result<bool, DbError> {
    if run.started_at.is_none() {
        return Ok(false);
    }
    let Some(last) = get(tx, run.id, run.steps)? else {
        return Ok(false);
    };
    let prompt = match last.asked_by {
        Some(by) => by_id(tx, run.id, by)?.filter(|by| by.kind == StepKind::Command),
        None => None,
    };
    let last = prompt.unwrap_or(last);
    Ok(!last.kind.answers() || last.state.is_open())
}

/// Queued runs that are in the middle of a turn.
pub fn in_turn(tx: &mut dyn Tx) -> Result<Vec<RunId>, DbError> {
    all(
        tx,
        "SELECT runs.id FROM runs JOIN steps ON steps.run_id = runs.id AND steps.seq = runs.steps \
         WHERE runs.ended_at IS NULL AND runs.state = 'queued' AND runs.started_at IS NOT NULL \
         AND (steps.kind IN ('tool', 'compaction') OR steps.ended_at IS NULL) \
         AND NOT EXISTS (SELECT 1 FROM steps AS prompt WHERE prompt.run_id = steps.run_id \
         AND prompt.id = steps.asked_by AND prompt.kind = 'command' \
         AND prompt.ended_at IS NOT NULL)",
        &[],
        values,
    )
}

/// The step at this position of the run.
pub fn get(tx: &mut dyn Tx, run: RunId, seq: u32) -> Result<Option<Step>, DbError> {
    first(
        tx,
        sql!("SELECT {COLUMNS} FROM steps WHERE run_id = ?1 AND seq = ?2"),
        &[(&run).into(), seq.into()],
        read,
    )
}

/// The step of this run with that id.
pub fn by_id(tx: &mut dyn Tx, run: RunId, id: StepId) -> Result<Option<Step>, DbError> {
    first(
        tx,
        sql!("SELECT {COLUMNS} FROM steps WHERE run_id = ?1 AND id = ?2"),
        &[(&run).into(), (&id).into()],
        read,
    )
}

/// The steps of these runs that wait for `kind`, in call order within each run.
pub fn waiting(tx: &mut dyn Tx, runs: &[RunId], kind: WaitKind) -> Result<Vec<Step>, DbError> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let mut filter = Filter::default();
    filter.one_of("run_id", runs);
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
        &[(&run).into(), seq.into()],
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
        &[(&run.id).into()],
        keyed("steps", KEY),
    )
}

/// The transcript seq of the outcome of the run's latest step for this tool call id.
pub fn result_of(tx: &mut dyn Tx, run: RunId, tool_call: &str) -> Result<Option<i64>, DbError> {
    let found = first(
        tx,
        "SELECT message_seq FROM steps WHERE run_id = ?1 AND tool_call = ?2 \
         ORDER BY seq DESC LIMIT 1",
        &[(&run).into(), tool_call.into()],
        values,
    )?;
    Ok(found.flatten())
}

/// The run's steps without an outcome, in call order.
pub fn open(tx: &mut dyn Tx, run: RunId) -> Result<Vec<Step>, DbError> {
    all(
        tx,
        sql!("SELECT {COLUMNS} FROM steps WHERE run_id = ?1 AND ended_at IS NULL ORDER BY seq"),
        &[(&run).into()],
        read,
    )
}

/// Those of these steps of the tenant whose effect another process keeps.
pub fn kept(
    tx: &mut dyn Tx,
    org: &str,
    ids: &[StepId],
) -> Result<Vec<(StepId, StepOfCall)>, DbError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut filter = Filter::default();
    filter.one_of("steps.id", ids);
    filter.only("steps.effect = 'kept'");
    filter.by("runs.org = ?", org);
    let (conditions, params) = filter.finish();
    let sql = format!(
        "SELECT steps.id, steps.ended_at IS NOT NULL OR runs.ended_at IS NOT NULL, \
         coalesce(steps.waits, '') = 'review', steps.run_id, steps.seq \
         FROM steps JOIN runs ON runs.id = steps.run_id WHERE {conditions}"
    );
    let found: Vec<(StepId, bool, bool)> = all(tx, &sql, &params, keyed("steps", KEY))?;
    let of_call = |(id, has_ended, is_reviewed)| match (has_ended, is_reviewed) {
        (true, _) => (id, StepOfCall::Ended),
        (false, true) => (id, StepOfCall::InReview),
        (false, false) => (id, StepOfCall::Open),
    };
    Ok(found.into_iter().map(of_call).collect())
}

/// A step as shown in lists: its seq, and its tool name or, without one, its kind.
pub type ShownStep = (u32, String);

/// The open steps of these runs, in call order within each run.
pub fn open_of_runs(tx: &mut dyn Tx, runs: &[RunId]) -> Result<Vec<(RunId, ShownStep)>, DbError> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let mut filter = Filter::default();
    filter.one_of("run_id", runs);
    filter.only("ended_at IS NULL");
    let (conditions, params) = filter.finish();
    let sql = format!(
        "SELECT run_id, seq, coalesce(tool, kind), run_id, seq FROM steps \
         WHERE {conditions} ORDER BY run_id, seq"
    );
    all(tx, &sql, &params, keyed("steps", KEY))
}

/// At most `limit` of the run's steps are deleted; returns the number deleted.
pub fn remove_some(tx: &mut dyn Tx, run: RunId, limit: u32) -> Result<u64, DbError> {
    tx.execute(
        &format!(
            "DELETE FROM steps WHERE run_id = ?1 AND seq IN \
             (SELECT seq FROM steps WHERE run_id = ?1 ORDER BY seq LIMIT {limit})"
        ),
        &[(&run).into()],
    )
}

/// Seq of the last message that the run's latest step that answers sees, be it a model call or a turn
/// of a program; 0 before the first one.
pub fn seen_up_to(tx: &mut dyn Tx, run: RunId) -> Result<i64, DbError> {
    number(
        tx,
        "SELECT seen_up_to FROM steps WHERE run_id = ?1 AND seen_up_to IS NOT NULL \
         ORDER BY seq DESC LIMIT 1",
        &[(&run).into()],
    )
}
