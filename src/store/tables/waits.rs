//! The table of waits: what each open step waits for, if its outcome comes from elsewhere.

use uuid::Uuid;

use super::columns::values;
use crate::kernel::ids::RunId;
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Tx, all, execute};

/// The step waits for `awaited`, the id of a run, question or approval.
pub fn insert(tx: &mut dyn Tx, awaited: Uuid, run: RunId, step: u32) -> Result<(), DbError> {
    execute(
        tx,
        "INSERT INTO waits (awaited, run_id, step) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        &[(&awaited).into(), (&run).into(), step.into()],
    )
}

/// The run and seq of the steps that wait for `awaited`.
pub fn on(tx: &mut dyn Tx, awaited: Uuid) -> Result<Vec<(RunId, u32)>, DbError> {
    all(
        tx,
        "SELECT run_id, step FROM waits WHERE awaited = ?1 ORDER BY run_id, step",
        &[(&awaited).into()],
        values,
    )
}

/// The ids that the step waits for.
pub fn of(tx: &mut dyn Tx, run: RunId, step: u32) -> Result<Vec<Uuid>, DbError> {
    all(
        tx,
        "SELECT awaited FROM waits WHERE run_id = ?1 AND step = ?2 ORDER BY awaited",
        &[(&run).into(), step.into()],
        values,
    )
}

/// The ids that any step of the run waits for.
pub fn of_run(tx: &mut dyn Tx, run: RunId) -> Result<Vec<Uuid>, DbError> {
    all(
        tx,
        "SELECT awaited FROM waits WHERE run_id = ?1 ORDER BY step, awaited",
        &[(&run).into()],
        values,
    )
}

/// The step waits for nothing any more.
pub fn remove(tx: &mut dyn Tx, run: RunId, step: u32) -> Result<(), DbError> {
    execute(
        tx,
        "DELETE FROM waits WHERE run_id = ?1 AND step = ?2",
        &[(&run).into(), step.into()],
    )
}

/// Every step that waits for the provider of its run's model.
pub fn for_providers(tx: &mut dyn Tx) -> Result<Vec<(RunId, u32)>, DbError> {
    all(
        tx,
        "SELECT steps.run_id, steps.seq FROM steps \
         WHERE (steps.run_id, steps.seq) IN (SELECT run_id, step FROM waits) \
         AND steps.waits = 'provider'",
        &[],
        values,
    )
}

/// Every wait of a step that has a deadline, with the deadline.
pub fn wait_deadlines(tx: &mut dyn Tx) -> Result<Vec<(RunId, u32, Timestamp)>, DbError> {
    all(
        tx,
        "SELECT steps.run_id, steps.seq, steps.wait_until FROM steps \
         WHERE (steps.run_id, steps.seq) IN (SELECT run_id, step FROM waits) \
         AND steps.wait_until IS NOT NULL",
        &[],
        values,
    )
}
