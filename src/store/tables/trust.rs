//! The table of trusted projects.

use super::columns::{time, whole};
use crate::contract::rows::TrustedProject;
use crate::store::tx::{DbError, Row, Tx, all, first, number};

/// The columns that [`decode`] reads.
pub const COLUMNS: &str = "org, folder, hash, user, trusted_at";

fn read(row: &dyn Row) -> Result<TrustedProject, DbError> {
    let key = [("org", 0), ("folder", 1)];
    whole(row, "trusted_projects", &key, decode)
}

/// Decodes a trusted project from [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<TrustedProject, DbError> {
    Ok(TrustedProject {
        org: row.text(0)?.to_owned(),
        folder: row.text(1)?.to_owned(),
        hash: row.text(2)?.to_owned(),
        user: row.text(3)?.to_owned(),
        at: time(row, 4)?,
    })
}

/// All trusted projects, ordered by tenant and folder.
pub fn every(tx: &mut dyn Tx) -> Result<Vec<TrustedProject>, DbError> {
    let sql = format!("SELECT {COLUMNS} FROM trusted_projects ORDER BY org, folder");
    all(tx, &sql, &[], read)
}

/// The tenant's trust in that folder, if there is one.
pub fn get(tx: &mut dyn Tx, org: &str, folder: &str) -> Result<Option<TrustedProject>, DbError> {
    let sql = format!("SELECT {COLUMNS} FROM trusted_projects WHERE org = ?1 AND folder = ?2");
    first(tx, &sql, &[org.into(), folder.into()], read)
}

/// The number of projects that a tenant trusts.
pub fn count(tx: &mut dyn Tx, org: &str) -> Result<i64, DbError> {
    let sql = "SELECT count(*) FROM trusted_projects WHERE org = ?1";
    number(tx, sql, &[org.into()])
}

/// The row has `project`; an earlier one of that folder is replaced.
pub fn put(tx: &mut dyn Tx, project: &TrustedProject) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO trusted_projects (org, folder, hash, user, trusted_at) \
         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (org, folder) DO UPDATE SET \
         hash = excluded.hash, user = excluded.user, trusted_at = excluded.trusted_at",
        &[
            (&project.org).into(),
            (&project.folder).into(),
            (&project.hash).into(),
            (&project.user).into(),
            project.at.0.into(),
        ],
    )
    .map(|_| ())
}

/// The row is deleted.
pub fn delete(tx: &mut dyn Tx, org: &str, folder: &str) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM trusted_projects WHERE org = ?1 AND folder = ?2",
        &[org.into(), folder.into()],
    )
    .map(|_| ())
}
