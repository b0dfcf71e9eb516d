//! The tables of run environments: the values of variables, and the runs whose processes may
//! still have them.

use super::columns::{columns_of, to_json, values};
use super::table::{self, read, table};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::policy::overlay::EnvName;
use crate::kernel::secret::Reference;
use crate::store::tx::{DbError, Tx, all, execute, first, number, sql};

/// A new run's environment, as it is written to its row and its values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewEnvironment {
    /// Each name with its origin.
    pub names: Vec<EnvName>,
    /// The values of the names.
    pub values: Vec<StoredValue>,
}

/// The stored value of a run's variable. Sealed content can be read only with the key.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredValue {
    /// Name of the variable.
    pub name: String,
    /// The value is secret and is masked in everything the run outputs.
    pub secret: bool,
    /// Where the value is resolved from.
    pub reference: Option<Reference>,
    /// The encrypted value. `None` without a reference: it was given once and is not kept.
    pub sealed: Option<Vec<u8>>,
    /// Why the value is missing, while the run is paused for it.
    pub missing_reason: Option<String>,
}

/// Name prefix for the unmasked arguments of an answer's tool calls, which the transcript has
/// only masked. No variable has such a name.
const ARGUMENTS: &str = "arguments ";

/// The name under which the arguments of an answer's tool calls are stored.
pub fn arguments_of(answer: StepId) -> String {
    format!("{ARGUMENTS}{answer}")
}

/// A value with its run, as a row has it.
struct ValueRow {
    run: RunId,
    value: StoredValue,
}

table! {
    run_values: ValueRow;
    key { run(run_id) }
    update { value(name, secret, reference, sealed, lacking) }
    primary { run_id, name }
    // A run without the value is paused until it is provided.
    undecodable Moved { "secret" => "secret = 1", "lacking" => "lacking = NULL" }
}

columns_of!(StoredValue {
    name,
    secret,
    reference,
    sealed,
    missing_reason
});

/// The value is in the table; an earlier one of that name is replaced.
pub fn put(tx: &mut dyn Tx, run: RunId, value: &StoredValue) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM run_values WHERE run_id = ?1 AND name = ?2",
        &[(&run).into(), (&value.name).into()],
    )?;
    let value = value.clone();
    table::insert(tx, &ValueRow { run, value }, [])
}

/// The sealed content under this name.
pub fn sealed(tx: &mut dyn Tx, run: RunId, name: &str) -> Result<Option<Vec<u8>>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM run_values WHERE run_id = ?1 AND name = ?2");
    let found = first(tx, sql, &[(&run).into(), name.into()], read::<ValueRow>)?;
    Ok(found.and_then(|row| row.value.sealed))
}

/// The values of a run, ordered by name.
pub fn of(tx: &mut dyn Tx, run: RunId) -> Result<Vec<StoredValue>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM run_values WHERE run_id = ?1 ORDER BY name");
    let found = all(tx, sql, &[(&run).into()], read::<ValueRow>)?;
    Ok(found.into_iter().map(|row| row.value).collect())
}

/// The run's value of this name is recorded as missing, for this reason.
pub fn mark_missing(tx: &mut dyn Tx, run: RunId, name: &str, why: &str) -> Result<(), DbError> {
    let sql = "UPDATE run_values SET lacking = ?3 WHERE run_id = ?1 AND name = ?2";
    execute(tx, sql, &[(&run).into(), name.into(), why.into()])
}

/// Sealed values of the ended run are deleted, and none is recorded as missing.
pub fn clear_sealed(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM run_values WHERE run_id = ?1 AND name LIKE 'arguments %'",
        &[(&run).into()],
    )?;
    execute(
        tx,
        "UPDATE run_values SET sealed = NULL, lacking = NULL WHERE run_id = ?1",
        &[(&run).into()],
    )
}

/// All values of the run are deleted.
pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    tx.execute("DELETE FROM run_values WHERE run_id = ?1", &[(&run).into()])?;
    unmark_applied(tx, run).map(drop)
}

/// Processes may have the run's environment from now on; returns whether this is new.
pub fn mark_applied(tx: &mut dyn Tx, run: RunId) -> Result<bool, DbError> {
    let changed = tx.execute(
        "INSERT INTO applied_environments (run_id) VALUES (?1) ON CONFLICT (run_id) DO NOTHING",
        &[(&run).into()],
    )?;
    Ok(changed == 1)
}

/// True if processes may have the run's environment.
pub fn is_applied(tx: &mut dyn Tx, run: RunId) -> Result<bool, DbError> {
    let sql = "SELECT 1 FROM applied_environments WHERE run_id = ?1";
    first(tx, sql, &[(&run).into()], |_| Ok(())).map(|found| found.is_some())
}

/// No process has the run's environment; returns whether one might have had it before.
pub fn unmark_applied(tx: &mut dyn Tx, run: RunId) -> Result<bool, DbError> {
    let sql = "DELETE FROM applied_environments WHERE run_id = ?1";
    Ok(tx.execute(sql, &[(&run).into()])? == 1)
}

/// Ended runs whose environment processes may still have.
pub fn left_applied(tx: &mut dyn Tx) -> Result<Vec<RunId>, DbError> {
    all(
        tx,
        "SELECT run_id FROM applied_environments WHERE EXISTS \
         (SELECT 1 FROM runs WHERE id = run_id AND ended_at IS NOT NULL)",
        &[],
        values,
    )
}

/// The number of runs whose environment processes may have.
pub fn count_applied(tx: &mut dyn Tx, org: Option<&str>) -> Result<u64, DbError> {
    let sql = "SELECT count(*) FROM applied_environments AS one WHERE \
               (?1 IS NULL OR (SELECT org FROM runs WHERE id = one.run_id) = ?1)";
    let found = number(tx, sql, &[org.into()])?;
    Ok(u64::try_from(found).unwrap_or(0))
}

/// The row of the run has these names and origins.
pub fn set_names(tx: &mut dyn Tx, run: RunId, names: &[EnvName]) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE runs SET env = ?2 WHERE id = ?1",
        &[(&run).into(), to_json(&names).into()],
    )
}
