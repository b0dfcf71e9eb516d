//! Opens a store: an intact one, a new one, or one salvaged from a damaged file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot, watch};

use super::checkpoint::Checkpoints;
use super::handle::{Store, StoreInner};
use super::migrate::MigrateError;
use super::placement::Placement;
use super::readers::Readers;
use super::room::DiskSpace;
use super::sqlite::{Sqlite, Use, header_version};
use super::threads::{Threads, thread};
use super::tx::{DbError, DbErrorKind};
use super::writer::{CommitChannels, OnFatal, QUEUE, Writer, WriterMessage, WriterShared};
use super::{backup, before_migration, checkpoint, files, migrate};
use crate::clock::Clock;
use crate::contract::commit::{CommandSettings, CommitEffect};
use crate::kernel::event::Salvage;
use crate::store::repair::noticed::FoundDamage;
use crate::store::repair::outline::Outline;
use crate::store::repair::salvage::Unsaved;
use crate::store::repair::{check, redo, salvage};
use crate::store::tables::boots;
use crate::version::version;

/// Options for opening a store.
pub struct OpenOptions {
    /// The state folder.
    pub folder: PathBuf,
    /// Source of time and ids.
    pub clock: Clock,
    /// Initial settings that commands follow.
    pub settings: CommandSettings,
    /// Called when no further commit can be trusted; it must end the process.
    pub on_fatal: OnFatal,
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The schema is too new, or a migration failed.
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    /// A program with a newer schema, or one from before the first release, wrote the store.
    #[error(
        "the store has schema version {found}, this program (abide {}) knows {known}: {reader}. Nothing \
         was changed; use that version, or another state folder{advice}",
        version()
    )]
    Newer {
        /// The schema version of the file.
        found: i64,
        /// The schema version of this program.
        known: i64,
        /// Which version reads the store, as text for the operator.
        reader: String,
        /// `. The store before its migration …`, or empty.
        advice: String,
    },
    /// The file is damaged or is not a database, and no row could be read.
    #[error(
        "{path} cannot be read as a store: {why}. No row could be salvaged. The file was not \
         changed and nothing was started. {advice}"
    )]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// What is wrong with the file.
        why: String,
        /// Which backup can replace it, as text for the operator.
        advice: String,
    },
    /// The database file is missing, but its WAL exists.
    #[error(
        "{log} has the latest writes, but its database file is missing. \
         Nothing was started, so that they are not lost. Put the database file back. {advice}"
    )]
    OnlyLog {
        /// The WAL file.
        log: PathBuf,
        /// Which backup can replace the store, as text for the operator.
        advice: String,
    },
    /// Another process holds a lock on the database.
    #[error(
        "{path} is locked by {by}. Nothing was started and nothing was changed. End that process, or its \
         transaction, and start again"
    )]
    Locked {
        /// The database file.
        path: PathBuf,
        /// The processes that hold the lock, as far as the system reports them.
        by: String,
    },
    /// The file or its folder is not writable.
    #[error(
        "{path} cannot be written: {source}. Nothing was started and nothing was changed. Make \
         the file and its folder writable for this user, or choose another --state-dir"
    )]
    ReadOnly {
        /// The database file.
        path: PathBuf,
        /// The engine's error.
        source: DbError,
    },
    /// The disk is full, and not even the files that reads need can be created.
    #[error(
        "the disk with {path} is full ({source}). Nothing was started and nothing was lost. Free \
         some space, and start again"
    )]
    NoRoom {
        /// The database file.
        path: PathBuf,
        /// The engine's error.
        source: DbError,
    },
    /// Any other error of the engine.
    #[error(
        "{path} cannot be opened: {source}. Nothing was started; accepted work is kept. Check \
         it with `abide doctor`"
    )]
    Db {
        /// The database file.
        path: PathBuf,
        /// The engine's error.
        source: DbError,
    },
}

impl OpenError {
    pub(super) fn of(path: &Path, source: DbError) -> Self {
        let path = path.to_owned();
        match source.kind {
            DbErrorKind::ReadOnly => OpenError::ReadOnly { path, source },
            DbErrorKind::Full => OpenError::NoRoom { path, source },
            DbErrorKind::Io if files::is_at_size_limit(&path) => OpenError::NoRoom { path, source },
            DbErrorKind::Busy => OpenError::Locked {
                by: files::locked_by(&path),
                path,
            },
            _ if source.is_damage() => OpenError::damaged(&path, source.message),
            _ => OpenError::Db { path, source },
        }
    }

    fn damaged(path: &Path, why: String) -> Self {
        OpenError::Damaged {
            path: path.to_owned(),
            why,
            advice: backup::advice(path),
        }
    }

    /// The refusal of a store at `path` with a newer schema. The file is only read.
    pub(super) fn newer(path: &Path, found: i64, known: i64) -> Self {
        let reader = Sqlite::open_unchanged(path)
            .and_then(|mut db| boots::meta(&mut db, &schema_name(found)))
            .ok()
            .flatten();
        let reader = match reader {
            Some(version) => format!("abide {version} or a later version reads it"),
            None => {
                "another version of abide wrote it, a newer one or a build from before the first \
                     release"
                    .to_owned()
            }
        };
        let copy = before_migration::newest(path);
        let advice = copy.map(|copy| {
            format!(
                ". This program reads the store as it was before the migration: `abide restore {} \
                 --force` puts that in place and keeps the present file, which has what was done since, \
                 beside it",
                copy.display()
            )
        });
        OpenError::Newer {
            found,
            known,
            reader,
            advice: advice.unwrap_or_default(),
        }
    }

    fn of_schema(path: &Path, fault: MigrateError) -> Self {
        match fault {
            MigrateError::Failed { source, .. }
                if matches!(source.kind, DbErrorKind::Full | DbErrorKind::Busy) =>
            {
                OpenError::of(path, source)
            }
            MigrateError::Db(source) => OpenError::of(path, source),
            MigrateError::Newer { found, known } => OpenError::newer(path, found, known),
            fault => OpenError::Migrate(fault),
        }
    }
}

/// The result of opening a store.
pub struct OpenedStore {
    /// The handle for reads and writes.
    pub store: Store,
    /// The registry's work after commits, in commit order: one message per commit.
    pub effects: mpsc::UnboundedReceiver<Vec<CommitEffect>>,
    /// The store's threads; the owner closes them last.
    pub threads: Threads,
    /// The report of the salvage, if the file was found damaged.
    pub salvaged: Option<Salvage>,
    /// Resolves (with an error) when the writer's thread has ended.
    pub writer_ended: oneshot::Receiver<()>,
}

impl Store {
    /// Opens the store in a folder, or creates one; runs migrations. A damaged file is set aside,
    /// and the data that could be read from it is opened in its place.
    pub fn open(options: OpenOptions) -> Result<OpenedStore, OpenError> {
        let path = options.folder.join(files::DATABASE);
        let wrap = |source: DbError| OpenError::of(&path, source);
        let (begun, salvaged) = begin_or_salvage(&path, &options.clock)?;
        let OpenedDatabase {
            mut db,
            id,
            digest_key,
        } = begun;
        let noticed = Arc::new(FoundDamage::new(&path));
        let placement = Arc::new(Placement::of(&path));
        let readers = Readers::open(&path, Arc::clone(&noticed), Arc::clone(&placement));
        let readers = readers.map_err(&wrap)?;
        let shared = Arc::new(Checkpoints::default());
        let (kept, clock) = (Arc::clone(&shared), options.clock.clone());
        let checkpoint_db = checkpoint::open(&path).map_err(&wrap)?;

        let (queue, jobs) = mpsc::channel(QUEUE);
        let (effects_in, effects) = mpsc::unbounded_channel();
        let (head_in, head) = watch::channel(boots::last_seq(&mut db).map_err(&wrap)?);
        let writer = Writer::new(
            db,
            options.clock,
            options.settings,
            CommitChannels {
                effects: effects_in,
                head: head_in,
            },
            WriterShared {
                checkpoints: Arc::clone(&shared),
                noticed: Arc::clone(&noticed),
                placement: Arc::clone(&placement),
            },
            options.on_fatal,
        );
        let (writer, writer_ended) = start(writer, jobs, &path)?;
        let (stop_checkpoints, stop) = std::sync::mpsc::channel();
        let (looked_after, wake) = (Arc::clone(&placement), queue.clone());
        let watch = move || {
            if looked_after.look().is_some() {
                // If the queue is full, the writer is busy and checks the files itself.
                let _ = wake.try_send(WriterMessage::CheckFiles);
            }
        };
        let checkpoints = thread(
            "abide-checkpoint",
            move || checkpoint::run(checkpoint_db, &shared, &stop, &watch),
            &path,
        )?;
        Ok(OpenedStore {
            store: Store {
                inner: Arc::new(StoreInner {
                    queue: queue.clone(),
                    readers,
                    noticed,
                    placement,
                    checkpoints: kept,
                    clock,
                    copying: Mutex::new(()),
                    room: DiskSpace::new(&options.folder),
                    id,
                    digest_key,
                    head,
                }),
            },
            effects,
            threads: Threads {
                queue,
                writer,
                checkpoints,
                stop_checkpoints,
                check: None,
            },
            salvaged,
            writer_ended,
        })
    }
}

/// Starts the writer's thread; the receiver hears of its end.
fn start(
    writer: Writer,
    jobs: mpsc::Receiver<WriterMessage>,
    path: &Path,
) -> Result<(JoinHandle<()>, oneshot::Receiver<()>), OpenError> {
    let (alive, ended) = oneshot::channel();
    let work = move || {
        // Dropped when the thread ends, for whatever reason.
        let _alive: oneshot::Sender<()> = alive;
        writer.run(jobs);
    };
    Ok((thread("abide-writer", work, path)?, ended))
}

/// Opens the database; one that turns out to be damaged is salvaged first.
fn begin_or_salvage(
    path: &Path,
    clock: &Clock,
) -> Result<(OpenedDatabase, Option<Salvage>), OpenError> {
    let mut salvaged = prepare(path, clock)?;
    let begun = match begin(path, clock) {
        // Damage that no earlier check found.
        Err(MigrateError::Db(fault)) if fault.is_damage() && salvaged.is_none() => {
            salvaged = Some(save(path, None, &fault.message, clock)?);
            begin(path, clock)
        }
        begun => begun,
    };
    let begun = begun.map_err(|fault| OpenError::of_schema(path, fault))?;
    Ok((begun, salvaged))
}

/// The row of `meta` with the version of abide that first gave a store this schema. It stays, so that an
/// older program can name a version that reads the store.
fn schema_name(schema: i64) -> String {
    format!("schema_{schema}")
}

/// The writer's connection to an intact store, and the store's identity.
struct OpenedDatabase {
    db: Sqlite,
    id: String,
    digest_key: [u8; 32],
}

/// Once this returns, the store has this program's schema, and its outline is saved beside it. Before a
/// migration a copy was made.
fn begin(path: &Path, clock: &Clock) -> Result<OpenedDatabase, MigrateError> {
    let mut db = Sqlite::open(path, Use::Write)?;
    let copy = match migrate::is_needed(&db)? {
        Some(found) => {
            let copy = before_migration::copy(&mut db, path, found, clock)?;
            tracing::info!(
                from = found,
                to = migrate::SCHEMA,
                copy = %copy.display(),
                "migrating the store"
            );
            Some(copy)
        }
        None => None,
    };
    migrate::migrate(&mut db, copy.as_deref())?;
    boots::set_meta_once(&mut db, &schema_name(migrate::SCHEMA), version())?;
    Outline::of(&mut db)?.keep(path).map_err(DbError::from)?;
    let (id, digest_key) = identity(&mut db, clock)?;
    Ok(OpenedDatabase { db, id, digest_key })
}

/// Once this returns, `path` is an intact database: the existing one, a new one, or the salvaged
/// content of a damaged one, in which case the salvage report is returned.
fn prepare(path: &Path, clock: &Clock) -> Result<Option<Salvage>, OpenError> {
    let wrap = |source: DbError| OpenError::of(path, source);
    let io = |fault: std::io::Error| wrap(DbError::from(fault));
    files::finish(path).map_err(io)?;
    backup::clear_unfinished(path);
    let saved = files::saved(path);
    if path.exists() {
        files::clear_leftovers(path).map_err(io)?;
    } else if check::at_start(&saved).is_ok_and(|damage| damage.is_none()) {
        // The process was killed between copying a deleted store and switching to the copy.
        let aside = files::aside(path, "before-rescue", clock.now());
        files::switch(path, &aside).map_err(io)?;
    }
    if !path.exists() {
        let log = files::log(path);
        if log.metadata().is_ok_and(|log| log.len() > 0) {
            let advice = backup::advice(path);
            return Err(OpenError::OnlyLog { log, advice });
        }
        make(path, clock).map_err(|fault| OpenError::of_schema(path, fault))?;
        return Ok(None);
    }
    let mut redone = None;
    let damage = match header_version(path) {
        // A newer file is refused before it is touched.
        Ok(found) => {
            migrate::check_not_newer(found).map_err(|fault| OpenError::of_schema(path, fault))?;
            // First: what the engine reads beside a damaged WAL is not a state of the store.
            match check::lost_of_log(path).map_err(wrap)? {
                Some(lost) => {
                    redone = Some(redo::redo(path).map_err(io)?);
                    Some(lost)
                }
                None => check::at_start(path).map_err(wrap)?,
            }
        }
        Err(fault) if fault.is_damage() => Some(fault.message),
        Err(fault) => return Err(wrap(fault)),
    };
    let Some(why) = damage else {
        files::clear_suspect(path).map_err(io)?;
        return Ok(None);
    };
    let source = redone.as_ref().map(redo::Redone::path);
    save(path, source, &why, clock).map(Some)
}

/// Once this returns, the damaged file at `path` is set aside, and the data read from it, or from
/// `source` in its place, is the store. The error names the backup that can replace it.
fn save(
    path: &Path,
    source: Option<&Path>,
    why: &str,
    clock: &Clock,
) -> Result<Salvage, OpenError> {
    tracing::error!(path = %path.display(), why, "the store is damaged; salvaging what can be read");
    match salvage::salvage(path, source, why, clock) {
        Ok(report) => {
            let summary = report.summary();
            tracing::error!(set_aside = %report.set_aside.display(), summary, "the store was salvaged");
            Ok(report)
        }
        Err(Unsaved::Nothing) => Err(OpenError::damaged(path, why.to_owned())),
        Err(Unsaved::Db(fault)) if fault.kind == DbErrorKind::Other || fault.is_damage() => {
            let why = format!("{why}; salvaging what can be read failed: {fault}");
            Err(OpenError::damaged(path, why))
        }
        Err(Unsaved::Db(fault)) => Err(OpenError::of(path, fault)),
    }
}

/// Creates a new store under another name and renames it into place when complete, so that an
/// empty or partial file at `path` always means damage and never a new store.
fn make(path: &Path, clock: &Clock) -> Result<(), MigrateError> {
    let io = DbError::from;
    let aside = path.with_extension("db.new");
    for left in ["db.new", "db.new-wal", "db.new-shm"] {
        match std::fs::remove_file(path.with_extension(left)) {
            Err(fault) if fault.kind() != std::io::ErrorKind::NotFound => {
                return Err(io(fault).into());
            }
            _ => {}
        }
    }
    files::private(&aside).map_err(io)?;
    let mut db = Sqlite::open(&aside, Use::Make)?;
    migrate::migrate(&mut db, None)?;
    identity(&mut db, clock)?;
    db.checkpoint_truncate()?;
    drop(db);
    // One sync for all steps of the schema: the file is not in use before its rename.
    files::sync(&aside)
        .and_then(|()| std::fs::rename(&aside, path))
        .and_then(|()| files::sync_parent(path))
        .map_err(|fault| io(fault).into())
}

/// The store's id and digest key, created when the store is first opened.
fn identity(db: &mut Sqlite, clock: &Clock) -> Result<(String, [u8; 32]), DbError> {
    let fresh = clock.new_id().to_string();
    boots::set_meta_once(db, "store_id", &fresh)?;
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|fault| DbError {
        kind: DbErrorKind::Other,
        message: format!("the system gave no random bytes: {fault}"),
    })?;
    boots::set_meta_once(db, "digest_key", &blake3::Hash::from(seed).to_hex())?;
    let id = boots::meta(db, "store_id")?.unwrap_or(fresh);
    let key = boots::meta(db, "digest_key")?
        .and_then(|hex| blake3::Hash::from_hex(hex).ok())
        .ok_or_else(|| DbError {
            kind: DbErrorKind::Undecodable,
            message: "meta digest_key is not 32 bytes in hexadecimal".to_owned(),
        })?;
    Ok((id, *key.as_bytes()))
}
