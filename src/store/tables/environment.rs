//! The tables of run environments: the values of variables, and the runs whose processes may
//! still have them.

use super::columns::{at, named, opt_string, to_json, uuid, whole};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::policy::overlay::EnvName;
use crate::kernel::secret::Reference;
use crate::store::tx::{DbError, Param, Row, Tx, all, first, insert_row, number, update_rows};

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

/// The columns that [`decode`] reads.
pub const COLUMNS: &str = "run_id, name, secret, reference, sealed, lacking";

fn read(row: &dyn Row) -> Result<(RunId, StoredValue), DbError> {
    let key = [("run_id", at!(run_id)), ("name", at!(name))];
    whole(row, "run_values", &key, decode)
}

/// Decodes a run id and one of its values from [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<(RunId, StoredValue), DbError> {
    let reference = match row.opt_text(at!(reference))? {
        Some(_) => Some(named(row, at!(reference), |text| {
            Reference::parse(text).ok()
        })?),
        None => None,
    };
    let value = StoredValue {
        name: row.text(at!(name))?.to_owned(),
        secret: row.int(at!(secret))? != 0,
        reference,
        sealed: row.opt_bytes(at!(sealed))?.map(<[u8]>::to_vec),
        missing_reason: opt_string(row, at!(lacking))?,
    };
    Ok((RunId(uuid(row, at!(run_id))?), value))
}

/// The value is in the table; an earlier one of that name is replaced.
pub fn put(tx: &mut dyn Tx, run: RunId, value: &StoredValue) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM run_values WHERE run_id = ?1 AND name = ?2",
        &[(&run.0).into(), (&value.name).into()],
    )?;
    let reference = value.reference.as_ref().map(ToString::to_string);
    insert_row(
        tx,
        "run_values",
        &[
            ("run_id", (&run.0).into()),
            ("name", (&value.name).into()),
            ("secret", value.secret.into()),
            ("reference", reference.as_deref().into()),
            ("sealed", value.sealed.as_deref().map(Param::Bytes).into()),
            ("lacking", value.missing_reason.as_deref().into()),
        ],
    )
}

/// The sealed content under this name.
pub fn sealed(tx: &mut dyn Tx, run: RunId, name: &str) -> Result<Option<Vec<u8>>, DbError> {
    let sql = format!("SELECT {COLUMNS} FROM run_values WHERE run_id = ?1 AND name = ?2");
    let found = first(tx, &sql, &[(&run.0).into(), name.into()], read)?;
    Ok(found.and_then(|(_, value)| value.sealed))
}

/// The values of a run, ordered by name.
pub fn of(tx: &mut dyn Tx, run: RunId) -> Result<Vec<StoredValue>, DbError> {
    let sql = format!("SELECT {COLUMNS} FROM run_values WHERE run_id = ?1 ORDER BY name");
    let found = all(tx, &sql, &[(&run.0).into()], read)?;
    Ok(found.into_iter().map(|(_, value)| value).collect())
}

/// The run's value of this name is recorded as missing, for this reason.
pub fn mark_missing(tx: &mut dyn Tx, run: RunId, name: &str, why: &str) -> Result<(), DbError> {
    let key = [("run_id", (&run.0).into()), ("name", name.into())];
    update_rows(tx, "run_values", &key, &[("lacking", why.into())]).map(|_| ())
}

/// Sealed values of the ended run are deleted, and none is recorded as missing.
pub fn clear_sealed(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM run_values WHERE run_id = ?1 AND name LIKE 'arguments %'",
        &[(&run.0).into()],
    )?;
    tx.execute(
        "UPDATE run_values SET sealed = NULL, lacking = NULL WHERE run_id = ?1",
        &[(&run.0).into()],
    )
    .map(|_| ())
}

/// All values of the run are deleted.
pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM run_values WHERE run_id = ?1",
        &[(&run.0).into()],
    )?;
    unmark_applied(tx, run).map(|_| ())
}

/// Processes may have the run's environment from now on; returns whether this is new.
pub fn mark_applied(tx: &mut dyn Tx, run: RunId) -> Result<bool, DbError> {
    let changed = tx.execute(
        "INSERT INTO applied_environments (run_id) VALUES (?1) ON CONFLICT (run_id) DO NOTHING",
        &[(&run.0).into()],
    )?;
    Ok(changed == 1)
}

/// True if processes may have the run's environment.
pub fn is_applied(tx: &mut dyn Tx, run: RunId) -> Result<bool, DbError> {
    let sql = "SELECT 1 FROM applied_environments WHERE run_id = ?1";
    first(tx, sql, &[(&run.0).into()], |_| Ok(())).map(|found| found.is_some())
}

/// No process has the run's environment; returns whether one might have had it before.
pub fn unmark_applied(tx: &mut dyn Tx, run: RunId) -> Result<bool, DbError> {
    let sql = "DELETE FROM applied_environments WHERE run_id = ?1";
    Ok(tx.execute(sql, &[(&run.0).into()])? == 1)
}

/// Ended runs whose environment processes may still have.
pub fn left_applied(tx: &mut dyn Tx) -> Result<Vec<RunId>, DbError> {
    all(
        tx,
        "SELECT run_id FROM applied_environments WHERE EXISTS \
         (SELECT 1 FROM runs WHERE id = run_id AND ended_at IS NOT NULL)",
        &[],
        |row| uuid(row, 0).map(RunId),
    )
}

/// The number of runs whose environment processes may have.
pub fn count_applied(tx: &mut dyn Tx) -> Result<u64, DbError> {
    let found = number(tx, "SELECT count(*) FROM applied_environments", &[])?;
    Ok(u64::try_from(found).unwrap_or(0))
}

/// The row of the run has these names and origins.
pub fn set_names(tx: &mut dyn Tx, run: RunId, names: &[EnvName]) -> Result<(), DbError> {
    tx.execute(
        "UPDATE runs SET env = ?2 WHERE id = ?1",
        &[(&run.0).into(), (&to_json(&names)).into()],
    )
    .map(|_| ())
}
