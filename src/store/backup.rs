//! Copies of a whole store: made while it is open, and restored while it is closed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::sqlite::{Sqlite, Use, header_version};
use super::tx::{DbError, DbErrorKind, Tx, number};
use super::{files, migrate, own_backups};
use crate::clock::Clock;
use crate::failpoint::reach;
use crate::kernel::fault::{Fault, Kind};
use crate::store::repair::check;
use crate::store::tables::{boots, memory_words};

/// A backup that was made and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedBackup {
    /// The file of the backup.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// The id of the copied store.
    pub store_id: String,
    /// The version of its schema.
    pub schema: i64,
    /// Number of rows by table.
    pub rows: BTreeMap<String, u64>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// Once this returns, there is a checked copy of the store at `database` as of one moment,
/// readable by its owner only. An existing file is not overwritten. Blocks until the whole store
/// is read; commits continue meanwhile.
pub fn copy(database: &Path, to: Option<PathBuf>, clock: &Clock) -> Result<CheckedBackup, Fault> {
    let began = clock.monotonic();
    let path = match to {
        Some(path) => path,
        None => next_path(database, clock).map_err(|fault| Fault::from(DbError::from(fault)))?,
    };
    if fs::symlink_metadata(&path).is_ok() {
        return Err(there_already(&path));
    }
    clear_unfinished(database);
    let half = files::beside(&path, HALF);
    note(database, &half);
    let made = make(database, &half, &path);
    clear_unfinished(database);
    let mut backup = made?;
    let took = (clock.monotonic() - began).as_millis();
    backup.took_ms = u64::try_from(took).unwrap_or(u64::MAX);
    tracing::info!(path = %backup.path.display(), bytes = backup.bytes, "a backup was made");
    Ok(backup)
}

/// Suffix of an unfinished backup.
const HALF: &str = ".partial";

/// The path of the unfinished backup is recorded, so that the next start can remove it. If that
/// cannot be written, it only warns: the backup reports the cause when it fails too.
fn note(database: &Path, half: &Path) {
    let note = files::copying(database);
    let written =
        files::private(&note).and_then(|()| fs::write(&note, half.as_os_str().as_encoded_bytes()));
    if let Err(fault) = written {
        tracing::warn!(%fault, "the path of the running backup could not be recorded");
    }
}

/// Once this returns, no unfinished backup is left. No backup may be running.
pub fn clear_unfinished(database: &Path) {
    let note = files::copying(database);
    let noted = fs::read_to_string(&note).map(PathBuf::from).ok();
    let own = fs::read_dir(folder(database));
    let own = own
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let halves = own.chain(noted).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(HALF)
    });
    for half in halves {
        if let Err(fault) = files::discard(&half) {
            tracing::warn!(path = %half.display(), %fault, "an unfinished backup could not be removed");
        }
    }
    if let Err(fault) = files::remove(&note) {
        tracing::warn!(%fault, "the record of an earlier backup could not be removed");
    }
}

fn there_already(path: &Path) -> Fault {
    Fault::new(
        Kind::Conflict,
        format!("{} already exists; nothing was overwritten", path.display()),
    )
    .hint("name another file, or none to get a name with the current time")
}

/// A file name with the current time, in the store's own backup folder.
fn next_path(database: &Path, clock: &Clock) -> io::Result<PathBuf> {
    let folder = folder(database);
    files::private_folder(&folder)?;
    let time = clock.now().to_string().replace(':', "-");
    Ok(folder.join(format!("abide-{time}.db")))
}

/// The folder of backups made without an explicit path.
pub fn folder(database: &Path) -> PathBuf {
    database.with_file_name("backups")
}

/// The newest intact backup in the folder: each is read in full, newest first.
fn newest(folder: &Path) -> Option<PathBuf> {
    let files = own_backups::list(folder).ok()?.into_iter();
    let mut files = files.rev().map(|one| one.path);
    files.find(|path| is_whole(path))
}

/// True if it is an undamaged store that this program can read. Reads all of it.
fn is_whole(path: &Path) -> bool {
    let known = header_version(path).is_ok_and(|version| version <= migrate::SCHEMA);
    let findings = || Sqlite::open(path, Use::Examine)?.check(None, 1);
    known && findings().is_ok_and(|findings| findings.is_empty())
}

/// The newest intact rescue file beside the database: a daemon saves its store there when another
/// file has taken the place of its database file.
fn rescued(database: &Path) -> Option<PathBuf> {
    let name = database.file_name()?.to_string_lossy().into_owned() + ".rescued-";
    let entries = fs::read_dir(database.parent()?).ok()?;
    let found = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<PathBuf> = found
        .filter(|path| {
            let this = path.file_name().unwrap_or_default().to_string_lossy();
            this.starts_with(&name) && !this.ends_with("-wal") && !this.ends_with("-shm")
        })
        .collect();
    // The name contains the time.
    found.sort();
    found.into_iter().rev().find(|path| is_whole(path))
}

/// The newest intact copy of the store: a rescue file, or a backup in its own or another folder.
pub fn newest_copy(database: &Path, other: Option<&Path>) -> Option<PathBuf> {
    let made = |path: &PathBuf| path.metadata().and_then(|about| about.modified()).ok();
    let found = [
        newest(&folder(database)),
        other.and_then(newest),
        rescued(database),
    ];
    found.into_iter().flatten().max_by_key(made)
}

/// Advice for the operator of an unreadable store: which copy can replace it, and how.
pub fn advice(database: &Path) -> String {
    let backup = newest_copy(database, None);
    match (rescued(database), backup) {
        (Some(rescued), newest) if newest.as_ref() == Some(&rescued) => format!(
            "The whole content of the store before its file was replaced or changed is in {0}: put it in \
             its place with `abide restore {0} --force`, which keeps the present file beside it",
            rescued.display()
        ),
        (_, Some(backup)) => format!(
            "Restore its newest intact backup with `abide restore {} --force`, \
             which keeps the present file beside it",
            backup.display()
        ),
        (_, None) => format!(
            "There is no intact backup in {}. Restore one from elsewhere (`abide restore FILE \
             --force`), try `sqlite3 {} .recover`, or move the file away to start with a new store",
            folder(database).display(),
            database.display()
        ),
    }
}

fn make(database: &Path, half: &Path, path: &Path) -> Result<CheckedBackup, Fault> {
    let io = |fault: io::Error| unwritable(path, &fault);
    files::discard(half).map_err(io)?;
    files::private(half).map_err(io)?;
    Sqlite::open(database, Use::Checkpoint).and_then(|mut db| db.copy_to(half))?;
    reach("store.backup.copied");
    let backup = verify(half, path)??;
    files::sync(half).map_err(io)?;
    // An existing file of that name is not replaced.
    match rustix::fs::renameat_with(
        rustix::fs::CWD,
        half,
        rustix::fs::CWD,
        path,
        rustix::fs::RenameFlags::NOREPLACE,
    ) {
        Ok(()) => {}
        Err(rustix::io::Errno::EXIST) => return Err(there_already(path)),
        Err(fault) => return Err(io(fault.into())),
    }
    files::sync_parent(path).map_err(io)?;
    Ok(backup)
}

fn unwritable(path: &Path, fault: &io::Error) -> Fault {
    match fault.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Fault::from(DbError {
                kind: DbErrorKind::Full,
                message: fault.to_string(),
            })
        }
        _ => Fault::new(
            Kind::InvalidParams,
            format!(
                "{} cannot be written: {fault}; no backup was made",
                path.display()
            ),
        )
        .hint("name a file in a folder that the daemon may write to")
        .with("path", "path"),
    }
}

/// Reads the whole copy; returns what it contains, or why it is unusable.
fn verify(half: &Path, path: &Path) -> Result<Result<CheckedBackup, Fault>, DbError> {
    let mut db = Sqlite::open(half, Use::Examine)?;
    let findings = db.check(None, check::MOST_FINDINGS)?;
    if !findings.is_empty() {
        return Ok(Err(Fault::new(
            Kind::Internal,
            format!(
                "the copy is damaged and was deleted: {}",
                findings.join("; ")
            ),
        )
        .hint("the store itself may be damaged; check it with abide doctor")));
    }
    Ok(Ok(CheckedBackup {
        path: path.to_owned(),
        bytes: half.metadata()?.len(),
        store_id: boots::meta(&mut db, "store_id")?.unwrap_or_default(),
        schema: migrate::version(&db)?,
        rows: rows(&mut db)?,
        took_ms: 0,
    }))
}

/// The number of rows of each table.
pub fn rows(db: &mut Sqlite) -> Result<BTreeMap<String, u64>, DbError> {
    let mut rows = BTreeMap::new();
    for table in check::tables(db)? {
        if memory_words::is_part(&table) {
            continue;
        }
        let count = number(db, &format!("SELECT count(*) FROM {table}"), &[])?;
        rows.insert(table, u64::try_from(count).unwrap_or(0));
    }
    Ok(rows)
}

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The version of the restored schema.
    pub schema: i64,
    /// Number of rows by table.
    pub rows: BTreeMap<String, u64>,
    /// Runs that were open when the copy was made; the next start resumes them.
    pub open_runs: u64,
    /// Announces that were pending when the copy was made; the next start delivers them.
    pub pending_announces: u64,
    /// Where the previous store was moved to, if there was one.
    pub set_aside: Option<PathBuf>,
}

/// Why a backup was not restored. The existing store is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The file is not an intact store.
    #[error("{path} is not a usable backup: {why}. Nothing was changed")]
    Unfit {
        /// The file to restore.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A store exists, and replacing it was not allowed.
    #[error(
        "a store already exists at {path}. Nothing was changed. With --force it is set aside \
         (renamed, not deleted) and the backup takes its place"
    )]
    StoreThere {
        /// The existing store.
        path: PathBuf,
    },
    /// A file or folder could not be read or written.
    #[error("{path}: {source}. The existing store is unchanged")]
    Io {
        /// The database path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Once this returns, a copy of `file` is the store of `folder`, with a new store id, so that
/// client cursors from after the backup are not applied to other events with the same numbers.
/// The previous store is set aside. No process may have it open.
pub fn place(
    folder: &Path,
    file: &Path,
    force: bool,
    clock: &Clock,
) -> Result<Placed, RestoreError> {
    let path = folder.join(files::DATABASE);
    let saved = files::saved(&path);
    let io = |source: io::Error| RestoreError::Io {
        path: path.clone(),
        source,
    };
    let unfit = |why: String| RestoreError::Unfit {
        path: file.to_owned(),
        why,
    };
    files::finish(&path).map_err(io)?;
    if path.exists() && !force {
        return Err(RestoreError::StoreThere { path });
    }
    let version = header_version(file).map_err(|fault| unfit(fault.message))?;
    migrate::check_not_newer(version).map_err(|fault| unfit(fault.to_string()))?;
    let log = files::log(file);
    if log.metadata().is_ok_and(|log| log.len() > 0) {
        return Err(unfit(format!(
            "{} exists beside it: the store is in use, or its daemon was killed; start a daemon on it, and \
             make the backup with `abide backup`",
            log.display()
        )));
    }
    files::discard(&saved).map_err(io)?;
    files::private(&saved).map_err(io)?;
    let copied = File::open(file).and_then(|mut from| {
        let mut to = fs::OpenOptions::new().append(true).open(&saved)?;
        io::copy(&mut from, &mut to)
    });
    copied.map_err(io)?;
    let prepared = prepare(&saved, clock);
    let mut placed = match prepared {
        Ok(Ok(placed)) => placed,
        Ok(Err(why)) => {
            files::discard(&saved).map_err(io)?;
            return Err(unfit(why));
        }
        Err(fault) => {
            files::discard(&saved).map_err(io)?;
            return Err(unfit(fault.message));
        }
    };
    reach("store.restore.prepared");
    let aside = files::aside(&path, "before-restore", clock.now());
    placed.set_aside = path.exists().then(|| aside.clone());
    files::switch(&path, &aside).map_err(io)?;
    files::clear_suspect(&path).map_err(io)?;
    Ok(placed)
}

/// Checks the copy and gives it a new store id.
fn prepare(saved: &Path, clock: &Clock) -> Result<Result<Placed, String>, DbError> {
    let mut db = Sqlite::open(saved, Use::Examine)?;
    let findings = db.check(None, check::MOST_FINDINGS)?;
    if !findings.is_empty() {
        return Ok(Err(format!("it is damaged: {}", findings.join("; "))));
    }
    let rows = rows(&mut db)?;
    let schema = migrate::version(&db)?;
    let is_store = ["meta", "sessions", "runs"]
        .iter()
        .all(|table| rows.contains_key(*table));
    if schema == 0 || !is_store {
        return Ok(Err("it is a database, but not an abide store".to_owned()));
    }
    let count = |db: &mut Sqlite, sql: &str| {
        Ok::<_, DbError>(u64::try_from(number(db, sql, &[])?).unwrap_or(0))
    };
    let open_runs = count(&mut db, "SELECT count(*) FROM runs WHERE ended_at IS NULL")?;
    let pending = "SELECT count(*) FROM outbox WHERE state = 'pending'";
    let pending_announces = count(&mut db, pending)?;
    drop(db);
    let mut db = Sqlite::open(saved, Use::Write)?;
    let id = clock.new_id().to_string();
    db.execute(
        "UPDATE meta SET value = ?1 WHERE name = 'store_id'",
        &[(&id).into()],
    )?;
    db.checkpoint_truncate()?;
    drop(db);
    files::discard_beside(saved)?;
    Ok(Ok(Placed {
        schema,
        rows,
        open_runs,
        pending_announces,
        set_aside: None,
    }))
}
