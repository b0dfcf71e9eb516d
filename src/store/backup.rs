//! Copies of a whole store: made while it is open, and put in its place while it is not.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::sqlite::{Sqlite, Use, header_version};
use super::tx::{DbError, DbErrorKind, Tx, number};
use super::{boots, check, db_fault, files, memory_words, migrate};
use crate::clock::Clock;
use crate::failpoint::reach;
use crate::kernel::fault::{Fault, Kind};

/// A copy that was made and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Where it lies.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// The store that it is of.
    pub store_id: String,
    /// The version of its schema.
    pub schema: i64,
    /// Rows by table.
    pub rows: BTreeMap<String, u64>,
    /// How long it took, milliseconds.
    pub took_ms: u64,
}

/// Once this returns, there is a checked copy of the store at `database` as of one moment, for
/// its owner alone. A file that is there already stays as it is. Blocks for as long as it
/// takes to read all of the store; commits go on meanwhile.
pub fn copy(database: &Path, to: Option<PathBuf>, clock: &Clock) -> Result<Backup, Fault> {
    let began = clock.monotonic();
    let path = match to {
        Some(path) => path,
        None => next_path(database, clock).map_err(|fault| db_fault(fault.into()))?,
    };
    if fs::symlink_metadata(&path).is_ok() {
        return Err(there_already(&path));
    }
    clear_halves(database);
    let half = files::beside(&path, HALF);
    note(database, &half);
    let made = make(database, &half, &path);
    clear_halves(database);
    let mut backup = made?;
    let took = (clock.monotonic() - began).as_millis();
    backup.took_ms = u64::try_from(took).unwrap_or(u64::MAX);
    tracing::info!(path = %backup.path.display(), bytes = backup.bytes, "a backup was made");
    Ok(backup)
}

/// What the name of a half backup ends with.
const HALF: &str = ".partial";

/// Whatever ends the process, the next start knows which half backup to remove. Where even that
/// cannot be written, the backup itself says why.
fn note(database: &Path, half: &Path) {
    let note = files::copying(database);
    let written =
        files::private(&note).and_then(|()| fs::write(&note, half.as_os_str().as_encoded_bytes()));
    if let Err(fault) = written {
        tracing::warn!(%fault, "it is not noted which backup is being made");
    }
}

/// Once this returns, nothing is left of backups that were not finished. None may be under way.
pub fn clear_halves(database: &Path) {
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
            tracing::warn!(path = %half.display(), %fault, "a half backup stays behind");
        }
    }
    if let Err(fault) = files::remove(&note) {
        tracing::warn!(%fault, "the note of an earlier backup stays behind");
    }
}

fn there_already(path: &Path) -> Fault {
    Fault::new(
        Kind::Conflict,
        format!(
            "{} is there already; nothing was overwritten",
            path.display()
        ),
    )
    .hint("name another file, or none: then the time is in its name")
}

/// A name with the time in it, in the store's own folder of backups.
fn next_path(database: &Path, clock: &Clock) -> io::Result<PathBuf> {
    let folder = folder(database);
    files::private_folder(&folder)?;
    let time = clock.now().to_string().replace(':', "-");
    Ok(folder.join(format!("abide-{time}.db")))
}

/// The folder of the backups that have no name of their own.
pub fn folder(database: &Path) -> PathBuf {
    database.with_file_name("backups")
}

/// The newest backup in the store's own folder that is whole: each is read through, the newest
/// first.
pub fn newest(database: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder(database)).ok()?;
    let mut files: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let made = entry.metadata().ok()?.modified().ok()?;
            let path = entry.path();
            (path.extension()? == "db").then_some((made, path))
        })
        .collect();
    files.sort();
    let mut files = files.into_iter().rev().map(|(_, path)| path);
    files.find(|path| is_whole(path))
}

/// Is it a store that this program can read, without damage? All of it is read.
fn is_whole(path: &Path) -> bool {
    let known = header_version(path).is_ok_and(|version| version <= migrate::SCHEMA);
    let findings = || Sqlite::open(path, Use::Examine)?.check(None, 1);
    known && findings().is_ok_and(|findings| findings.is_empty())
}

/// The newest of the files, beside the database, to which a daemon has saved all that its store
/// held when another file had taken the place of that, and which are whole.
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
    // The time is in the name.
    found.sort();
    found.into_iter().rev().find(|path| is_whole(path))
}

/// The newest copy of the store that is whole: what a daemon has saved of it, or a backup in its
/// own folder.
pub fn newest_copy(database: &Path) -> Option<PathBuf> {
    let made = |path: &PathBuf| path.metadata().and_then(|about| about.modified()).ok();
    let both = [newest(database), rescued(database)];
    both.into_iter().flatten().max_by_key(made)
}

/// What to do where nothing of a store can be read: which copy can take its place, and how.
pub fn advice(database: &Path) -> String {
    let backup = newest_copy(database);
    match (rescued(database), backup) {
        (Some(rescued), newest) if newest.as_ref() == Some(&rescued) => format!(
            "All that the store held before its file was replaced or changed is in {0}: it takes \
             its place with `abide restore {0} --force`, which keeps what is there beside it",
            rescued.display()
        ),
        (_, Some(backup)) => format!(
            "Its newest backup that is whole takes its place with `abide restore {} --force`, \
             which keeps what is there beside it",
            backup.display()
        ),
        (_, None) => format!(
            "There is no whole backup in {}. Put one back from elsewhere (`abide restore FILE \
             --force`), try `sqlite3 {} .recover`, or move the file away to start anew",
            folder(database).display(),
            database.display()
        ),
    }
}

fn make(database: &Path, half: &Path, path: &Path) -> Result<Backup, Fault> {
    let io = |fault: io::Error| unwritable(path, &fault);
    files::discard(half).map_err(io)?;
    files::private(half).map_err(io)?;
    Sqlite::open(database, Use::Checkpoint)
        .and_then(|mut db| db.copy_to(half))
        .map_err(db_fault)?;
    reach("store.backup.copied");
    let backup = verify(half, path).map_err(db_fault)??;
    files::sync(half).map_err(io)?;
    // A name that was taken meanwhile is not taken over.
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
    files::sync_folder(path).map_err(io)?;
    Ok(backup)
}

fn unwritable(path: &Path, fault: &io::Error) -> Fault {
    match fault.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            db_fault(DbError {
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

/// Reads the whole copy; what is in it, or why it is of no use.
fn verify(half: &Path, path: &Path) -> Result<Result<Backup, Fault>, DbError> {
    let mut db = Sqlite::open(half, Use::Examine)?;
    let findings = db.check(None, check::MOST_FINDINGS)?;
    if !findings.is_empty() {
        return Ok(Err(Fault::new(
            Kind::Internal,
            format!(
                "the copy is damaged, so it was thrown away: {}",
                findings.join("; ")
            ),
        )
        .hint("the store itself may be damaged: abide doctor")));
    }
    Ok(Ok(Backup {
        path: path.to_owned(),
        bytes: half.metadata()?.len(),
        store_id: boots::meta(&mut db, "store_id")?.unwrap_or_default(),
        schema: migrate::version(&db)?,
        rows: rows(&mut db)?,
        took_ms: 0,
    }))
}

/// How many rows each table has.
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

/// A copy that was put in the place of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The version of its schema.
    pub schema: i64,
    /// Rows by table.
    pub rows: BTreeMap<String, u64>,
    /// Runs that were open when the copy was made: the next start carries them on.
    pub open_runs: u64,
    /// Announces that had not been told when the copy was made: the next start tells them.
    pub pending_announces: u64,
    /// Where the store lies now that was there before.
    pub set_aside: Option<PathBuf>,
}

/// Why a copy was not put in the place of a store. The store that is there stays as it was.
#[derive(Debug, thiserror::Error)]
pub enum Unplaced {
    /// It is no whole store.
    #[error("{path} is not a backup that can be used: {why}. Nothing was changed")]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is a store already, and nobody said that it may go.
    #[error(
        "there is a store already in {path}. Nothing was changed. With --force it is set aside \
         (renamed, not deleted) and the backup takes its place"
    )]
    StoreThere {
        /// The store.
        path: PathBuf,
    },
    /// The folder cannot be written, or read.
    #[error("{path}: {source}. The store that was there is as it was")]
    Io {
        /// What was to be written.
        path: PathBuf,
        /// Why it was not.
        source: io::Error,
    },
}

/// Once this returns, a copy of `file` is the store of `folder`, with an id of its own: cursors
/// that clients hold of what came after it must not meet other events under the same numbers.
/// The store that was there is set aside. Nobody may have it open.
pub fn place(folder: &Path, file: &Path, force: bool, clock: &Clock) -> Result<Placed, Unplaced> {
    let path = folder.join(files::DATABASE);
    let saved = files::saved(&path);
    let io = |source: io::Error| Unplaced::Io {
        path: path.clone(),
        source,
    };
    let unfit = |why: String| Unplaced::Unfit {
        path: file.to_owned(),
        why,
    };
    files::finish(&path).map_err(io)?;
    if path.exists() && !force {
        return Err(Unplaced::StoreThere { path });
    }
    let version = header_version(file).map_err(|fault| unfit(fault.message))?;
    migrate::check_not_newer(version).map_err(|fault| unfit(fault.to_string()))?;
    let log = files::log(file);
    if log.metadata().is_ok_and(|log| log.len() > 0) {
        return Err(unfit(format!(
            "{} lies beside it: it is a store in use, or was killed; start a daemon on it, and \
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

/// Checks the copy and gives it an id of its own.
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
        return Ok(Err("it is a database, but not one of abide".to_owned()));
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
