//! The tables of what runs have in their environment: what the names stand for, and which runs'
//! programs may still carry it.

use super::columns::{at, named, opt_string, to_json, uuid, whole};
use super::tx::{DbError, Param, Row, Tx, all, first, insert_row, number, update_rows};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::overlay::EnvName;
use crate::kernel::secret::Reference;

/// What a run's environment is made of, as its row and its values are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewEnvironment {
    /// Each name with who has set it.
    pub names: Vec<EnvName>,
    /// What they stand for.
    pub values: Vec<StoredValue>,
}

/// What a name of a run stands for. Nothing in it can be read without the key.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredValue {
    /// The name.
    pub name: String,
    /// It is taken out of whatever the run says.
    pub secret: bool,
    /// Where it is read from.
    pub reference: Option<Reference>,
    /// It, sealed. Neither this nor a reference: it was given once, and is not kept.
    pub sealed: Option<Vec<u8>>,
    /// Why there is no value, where the run holds still for it.
    pub lacking: Option<String>,
}

/// With this begins the name under which the arguments are kept that an answer's calls have where
/// the transcript has them masked. No variable has such a name.
const ARGUMENTS: &str = "arguments ";

/// The name under which the arguments of an answer's calls are kept.
pub fn arguments_of(answer: StepId) -> String {
    format!("{ARGUMENTS}{answer}")
}

/// The columns that [`decode`] reads.
pub const COLUMNS: &str = "run_id, name, secret, reference, sealed, lacking";

fn read(row: &dyn Row) -> Result<(RunId, StoredValue), DbError> {
    let key = [("run_id", at!(run_id)), ("name", at!(name))];
    whole(row, "run_values", &key, decode)
}

/// A run and a value of it out of [`COLUMNS`].
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
        lacking: opt_string(row, at!(lacking))?,
    };
    Ok((RunId(uuid(row, at!(run_id))?), value))
}

/// The value is in the table, in place of the one before.
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
            ("lacking", value.lacking.as_deref().into()),
        ],
    )
}

/// What is sealed under this name.
pub fn sealed(tx: &mut dyn Tx, run: RunId, name: &str) -> Result<Option<Vec<u8>>, DbError> {
    let sql = format!("SELECT {COLUMNS} FROM run_values WHERE run_id = ?1 AND name = ?2");
    let found = first(tx, &sql, &[(&run.0).into(), name.into()], read)?;
    Ok(found.and_then(|(_, value)| value.sealed))
}

/// The values of a run, by name.
pub fn of(tx: &mut dyn Tx, run: RunId) -> Result<Vec<StoredValue>, DbError> {
    let sql = format!("SELECT {COLUMNS} FROM run_values WHERE run_id = ?1 ORDER BY name");
    let found = all(tx, &sql, &[(&run.0).into()], read)?;
    Ok(found.into_iter().map(|(_, value)| value).collect())
}

/// The run holds still for this name, for this reason.
pub fn lacks(tx: &mut dyn Tx, run: RunId, name: &str, why: &str) -> Result<(), DbError> {
    let key = [("run_id", (&run.0).into()), ("name", name.into())];
    update_rows(tx, "run_values", &key, &[("lacking", why.into())]).map(|_| ())
}

/// The run has ended: what was given to it is gone, and it lacks nothing.
pub fn forget_given(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
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

/// Nothing is known of the run any more.
pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM run_values WHERE run_id = ?1",
        &[(&run.0).into()],
    )?;
    unmark_applied(tx, run).map(|_| ())
}

/// Programs may carry the run's environment from now on; whether they might not before.
pub fn mark_applied(tx: &mut dyn Tx, run: RunId) -> Result<bool, DbError> {
    let changed = tx.execute(
        "INSERT INTO applied_environments (run_id) VALUES (?1) ON CONFLICT (run_id) DO NOTHING",
        &[(&run.0).into()],
    )?;
    Ok(changed == 1)
}

/// Can programs carry the run's environment?
pub fn is_applied(tx: &mut dyn Tx, run: RunId) -> Result<bool, DbError> {
    let sql = "SELECT 1 FROM applied_environments WHERE run_id = ?1";
    first(tx, sql, &[(&run.0).into()], |_| Ok(())).map(|found| found.is_some())
}

/// No program carries the run's environment; whether that was not known before.
pub fn unmark_applied(tx: &mut dyn Tx, run: RunId) -> Result<bool, DbError> {
    let sql = "DELETE FROM applied_environments WHERE run_id = ?1";
    Ok(tx.execute(sql, &[(&run.0).into()])? == 1)
}

/// Ended runs whose environment programs may still carry.
pub fn left_applied(tx: &mut dyn Tx) -> Result<Vec<RunId>, DbError> {
    all(
        tx,
        "SELECT run_id FROM applied_environments WHERE EXISTS \
         (SELECT 1 FROM runs WHERE id = run_id AND ended_at IS NOT NULL)",
        &[],
        |row| uuid(row, 0).map(RunId),
    )
}

/// How many runs' environments programs may carry.
pub fn count_applied(tx: &mut dyn Tx) -> Result<u64, DbError> {
    let found = number(tx, "SELECT count(*) FROM applied_environments", &[])?;
    Ok(u64::try_from(found).unwrap_or(0))
}

/// Who has set the names of the run's environment is noted.
pub fn set_names(tx: &mut dyn Tx, run: RunId, names: &[EnvName]) -> Result<(), DbError> {
    tx.execute(
        "UPDATE runs SET env = ?2 WHERE id = ?1",
        &[(&run.0).into(), (&to_json(&names)).into()],
    )
    .map(|_| ())
}
