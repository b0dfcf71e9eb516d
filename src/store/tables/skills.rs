//! The tables of skill set versions, and of the bodies that pinned sets name.

use super::blobs;
use super::columns::values;
use super::table::{self, read, table};
use crate::contract::skills::PickedSkills;
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Tx, all, execute, first, sql};

/// The recorded skill set of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillsNoted {
    /// The tenant.
    pub org: String,
    /// The folder.
    pub workspace: String,
    /// Hash of the usable skills.
    pub hash: String,
    /// Number of the version, from 1 on; it rises with each change.
    pub version: i64,
}

table! {
    skill_sets: SkillsNoted;
    key { org, workspace }
    update { hash, version }
    beside { changed_at: Timestamp }
    // An empty hash matches nothing: the next scan finds a change. If the version were lost, it
    // would go back.
    undecodable Kept { "hash" => "hash = ''" }
}

/// The recorded skill set of a folder.
pub fn get(tx: &mut dyn Tx, org: &str, workspace: &str) -> Result<Option<SkillsNoted>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM skill_sets WHERE org = ?1 AND workspace = ?2");
    first(tx, sql, &[org.into(), workspace.into()], read)
}

/// The recorded skill sets, most recently changed first.
pub fn latest(tx: &mut dyn Tx, limit: u32) -> Result<Vec<SkillsNoted>, DbError> {
    let sql = format!("SELECT {COLUMNS} FROM skill_sets ORDER BY changed_at DESC LIMIT {limit}");
    all(tx, &sql, &[], read)
}

/// The row has `noted`; an earlier one of that folder is replaced.
pub fn put(tx: &mut dyn Tx, noted: &SkillsNoted, now: Timestamp) -> Result<(), DbError> {
    table::put(tx, noted, [now.0.into()])
}

/// The set and the bodies that it names can be read by their hashes.
pub fn keep(tx: &mut dyn Tx, picked: &PickedSkills, now: Timestamp) -> Result<(), DbError> {
    let pinned = &picked.pinned;
    blobs::insert(tx, pinned, now)?;
    let sql = "SELECT body FROM skill_bodies WHERE pinned = ?1 LIMIT 1";
    let known = first(tx, sql, &[(&pinned.hash).into()], values::<String>)?;
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

/// The references of a removed pinned set are deleted; bodies that no other set names are unused.
pub fn forget(tx: &mut dyn Tx, pinned: &str) -> Result<(), DbError> {
    execute(
        tx,
        "DELETE FROM skill_bodies WHERE pinned = ?1",
        &[pinned.into()],
    )
}
