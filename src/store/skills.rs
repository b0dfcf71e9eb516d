//! The tables of versions of skills, and of the bodies that pinned sets name.

use super::blobs;
use super::columns::whole;
use super::tx::{DbError, Row, Tx, all, first};
use crate::contract::skills::PickedSkills;
use crate::kernel::time::Timestamp;

/// The skills of a folder as they were last noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillsNoted {
    /// The tenant.
    pub org: String,
    /// The folder.
    pub workspace: String,
    /// Of what can be used there.
    pub hash: String,
    /// How often that has changed, from 1 on.
    pub version: i64,
}

/// The columns that [`decode`] reads.
pub const COLUMNS: &str = "org, workspace, hash, version";

fn read(row: &dyn Row) -> Result<SkillsNoted, DbError> {
    whole(row, "skill_sets", &[("org", 0), ("workspace", 1)], decode)
}

/// What was noted, out of [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<SkillsNoted, DbError> {
    Ok(SkillsNoted {
        org: row.text(0)?.to_owned(),
        workspace: row.text(1)?.to_owned(),
        hash: row.text(2)?.to_owned(),
        version: row.int(3)?,
    })
}

/// What was last noted of a folder.
pub fn get(tx: &mut dyn Tx, org: &str, workspace: &str) -> Result<Option<SkillsNoted>, DbError> {
    let sql = format!("SELECT {COLUMNS} FROM skill_sets WHERE org = ?1 AND workspace = ?2");
    first(tx, &sql, &[org.into(), workspace.into()], read)
}

/// What was noted of each folder, those that changed last first.
pub fn latest(tx: &mut dyn Tx, limit: u32) -> Result<Vec<SkillsNoted>, DbError> {
    let sql = format!("SELECT {COLUMNS} FROM skill_sets ORDER BY changed_at DESC LIMIT {limit}");
    all(tx, &sql, &[], read)
}

/// The row holds `noted`.
pub fn put(tx: &mut dyn Tx, noted: &SkillsNoted, now: Timestamp) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO skill_sets (org, workspace, hash, version, changed_at) \
         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (org, workspace) DO UPDATE SET \
         hash = excluded.hash, version = excluded.version, changed_at = excluded.changed_at",
        &[
            (&noted.org).into(),
            (&noted.workspace).into(),
            (&noted.hash).into(),
            noted.version.into(),
            now.0.into(),
        ],
    )
    .map(|_| ())
}

/// The set and the bodies that it names can be read by their hashes.
pub fn keep(tx: &mut dyn Tx, picked: &PickedSkills, now: Timestamp) -> Result<(), DbError> {
    let pinned = &picked.pinned;
    blobs::insert(tx, pinned, now)?;
    let sql = "SELECT body FROM skill_bodies WHERE pinned = ?1 LIMIT 1";
    let known = first(tx, sql, &[(&pinned.hash).into()], |row| {
        row.text(0).map(str::to_owned)
    })?;
    if known.is_some() {
        return Ok(());
    }
    for body in &picked.bodies {
        blobs::insert(tx, body, now)?;
        tx.execute(
            "INSERT INTO skill_bodies (pinned, body) VALUES (?1, ?2) \
             ON CONFLICT (pinned, body) DO NOTHING",
            &[(&pinned.hash).into(), (&body.hash).into()],
        )?;
    }
    Ok(())
}

/// A pinned set is gone: the bodies that it named are nobody's, as far as no other names them.
pub fn forget(tx: &mut dyn Tx, pinned: &str) -> Result<(), DbError> {
    tx.execute(
        "DELETE FROM skill_bodies WHERE pinned = ?1",
        &[pinned.into()],
    )
    .map(|_| ())
}
