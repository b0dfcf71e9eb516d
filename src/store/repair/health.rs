//! The state of a store and its files, for the doctor: for an open store and for a closed one.

use std::path::{Path, PathBuf};

use super::noticed::{CheckProgress, FoundDamage};
use super::outline::Outline;
use super::{check, salvage};
use crate::kernel::event::Salvage;
use crate::kernel::time::Timestamp;
use crate::store::placement::Placement;
use crate::store::sqlite::{Sqlite, Use, header_version};
use crate::store::tables::{boots, outbox, quarantine};
use crate::store::tx::{DbError, DbErrorKind, Tx, first, number};
use crate::store::{OpenError, backup, files, migrate};

/// The state of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreHealth {
    /// The database file.
    pub path: PathBuf,
    /// True if the daemon has it open.
    pub is_open: bool,
    /// What is wrong with the file; empty if nothing was found.
    pub damage: Vec<String>,
    /// Progress of the full check.
    pub checked: CheckProgress,
    /// The schema version of the file, and of this program.
    pub schema: (i64, i64),
    /// Bytes of the database file.
    pub bytes: u64,
    /// Bytes of the WAL.
    pub log_bytes: u64,
    /// Number of quarantined rows by table.
    pub quarantine: Vec<(String, i64)>,
    /// The latest quarantined rows.
    pub latest: Vec<quarantine::QuarantineEntry>,
    /// Number of announces that could not be delivered.
    pub undelivered: i64,
    /// Number of announces that are pending.
    pub pending: i64,
    /// The report of an earlier salvage.
    pub salvaged: Option<Salvage>,
    /// When the previous boot began, if it ended uncleanly.
    pub unclean_since: Option<Timestamp>,
    /// Files that were set aside.
    pub set_aside: Vec<PathBuf>,
}

/// Maximum number of quarantine entries that are reported.
const LATEST: i64 = 20;

/// The state of the open store.
pub fn of(
    tx: &mut dyn Tx,
    path: &Path,
    noticed: &FoundDamage,
    placement: &Placement,
) -> Result<StoreHealth, DbError> {
    let checked = noticed.checked();
    let mut damage = match &checked {
        CheckProgress::Done(_, findings) => findings.clone(),
        _ => Vec::new(),
    };
    if noticed.is_corrupt() && damage.is_empty() {
        damage.push("a page of the file could not be read".to_owned());
    }
    damage.extend(placement.look().map(|moved| moved.what));
    let schema = number(tx, "SELECT user_version FROM pragma_user_version", &[])?;
    // The newest boot row is that of this process.
    Ok(StoreHealth {
        is_open: true,
        ..gather(tx, path, (damage, checked, schema), 1)?
    })
}

fn gather(
    tx: &mut dyn Tx,
    path: &Path,
    (damage, checked, schema): (Vec<String>, CheckProgress, i64),
    own_boots: i64,
) -> Result<StoreHealth, DbError> {
    let size = |path: &Path| path.metadata().map_or(0, |file| file.len());
    let last = number(tx, "SELECT coalesce(max(seq), 0) FROM quarantine", &[])?;
    let after = number(
        tx,
        "SELECT coalesce(min(seq), 1) - 1 FROM \
         (SELECT seq FROM quarantine WHERE seq <= ?1 ORDER BY seq DESC LIMIT 20)",
        &[last.into()],
    )?;
    let unclean = first(
        tx,
        &format!(
            "SELECT started_at FROM boots WHERE seq = \
             (SELECT seq FROM boots ORDER BY seq DESC LIMIT 1 OFFSET {own_boots}) \
             AND ended_at IS NULL"
        ),
        &[],
        |row| row.int(0),
    )?;
    Ok(StoreHealth {
        path: path.to_owned(),
        is_open: false,
        damage,
        checked,
        schema: (schema, migrate::SCHEMA),
        bytes: size(path),
        log_bytes: size(&files::log(path)),
        quarantine: quarantine::counts(tx)?,
        latest: quarantine::list(tx, after, u32::try_from(LATEST).unwrap_or(20))?,
        undelivered: outbox::count_undelivered(tx)?,
        pending: outbox::count_pending(tx, None)?,
        salvaged: salvage::report(tx)?,
        unclean_since: unclean.map(Timestamp),
        set_aside: set_aside(path),
    })
}

fn set_aside(path: &Path) -> Vec<PathBuf> {
    let Some((folder, name)) = path.parent().zip(path.file_name()) else {
        return Vec::new();
    };
    let start = format!("{}.", name.to_string_lossy());
    let Ok(entries) = folder.read_dir() else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let rest = name.strip_prefix(&start).unwrap_or_default();
            ["damaged", "before-", "rescued"]
                .iter()
                .any(|why| rest.starts_with(why))
        })
        .collect();
    found.sort();
    found
}

/// Why a closed store could not be examined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unexamined {
    /// There is no store.
    Missing,
    /// A newer program wrote it: both schema versions, and which program reads it.
    Newer(String),
    /// It cannot be read: the reason, and what to do if a start cannot repair it.
    Unreadable(String, String),
}

/// The state of the closed store in this folder. Reads all of it and changes nothing.
pub fn examine(folder: &Path) -> Result<StoreHealth, Unexamined> {
    let path = folder.join(files::DATABASE);
    if !path.exists() {
        return Err(Unexamined::Missing);
    }
    let unreadable = |fault: DbError| Unexamined::Unreadable(fault.message, backup::advice(&path));
    let version = header_version(&path).map_err(unreadable)?;
    if version > migrate::SCHEMA {
        let newer = OpenError::newer(&path, version, migrate::SCHEMA);
        return Err(Unexamined::Newer(newer.to_string()));
    }
    look(&path).map_err(unreadable)
}

fn look(path: &Path) -> Result<StoreHealth, DbError> {
    let mut db = Sqlite::open(path, Use::Examine)?;
    let mut damage = db.check(None, check::MOST_FINDINGS)?;
    let outline = Outline::of(&mut db)?;
    if Outline::kept(path).is_some_and(|kept| kept.differs(&outline)) {
        damage.push("its schema differs from its saved outline".to_owned());
    }
    let schema = migrate::version(&db)?;
    let checked = CheckProgress::Done(Timestamp::default(), damage.clone());
    if check::tables(&mut db)?
        .iter()
        .any(|name| name == "quarantine")
    {
        return gather(&mut db, path, (damage, checked, schema), 0);
    }
    // A store with an older schema, not migrated yet.
    if boots::meta(&mut db, "store_id")?.is_none() {
        return Err(DbError {
            kind: DbErrorKind::Undecodable,
            message: "it has no store id".to_owned(),
        });
    }
    Ok(StoreHealth {
        path: path.to_owned(),
        is_open: false,
        damage,
        checked,
        schema: (schema, migrate::SCHEMA),
        bytes: path.metadata()?.len(),
        log_bytes: files::log(path).metadata().map_or(0, |log| log.len()),
        quarantine: Vec::new(),
        latest: Vec::new(),
        undelivered: 0,
        pending: 0,
        salvaged: None,
        unclean_since: None,
        set_aside: set_aside(path),
    })
}
