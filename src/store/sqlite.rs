//! Implements [`Tx`] with SQLite: opening, pragmas, statements. The only file that names rusqlite.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::files;
use super::tx::{BadRow, DbError, DbErrorKind, Param, Raw, Row, Tx};
use crate::file_work::open_regular;

/// The oldest supported library: older ones can lose a write if a checkpoint meets a WAL reset.
const OLDEST: i32 = 3_051_003;
/// `ABDE`: marks the file as this program's.
const APPLICATION_ID: i64 = 0x4142_4445;
const STATEMENTS: usize = 256;

/// Writes rows into the schema table of a closed file, bypassing all checks.
pub fn write_schema(path: &Path, lines: &str) -> Result<(), DbError> {
    let connection = Connection::open(path).map_err(error)?;
    connection
        .execute_batch(&format!(
            "PRAGMA writable_schema = 1; BEGIN; {lines} COMMIT; PRAGMA writable_schema = 0"
        ))
        .map_err(error)
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The single writer.
    Write,
    /// Fills a new file that is not in use until complete. Its content is durable only after the
    /// creator syncs the file.
    Make,
    /// A read connection of the pool.
    Read,
    /// Copies the WAL into the database file, and does nothing else.
    Checkpoint,
    /// Reads as much as possible of a file that may be damaged. Changes neither the file nor its
    /// WAL.
    Examine,
}

impl Use {
    fn writes(self) -> bool {
        matches!(self, Use::Write | Use::Make)
    }
}

/// A connection to a database file.
pub struct Sqlite {
    connection: Connection,
    for_use: Use,
    bad: Vec<BadRow>,
    corrupt: bool,
}

/// Interrupts a statement from another thread.
pub struct Interrupt(rusqlite::InterruptHandle);

impl Interrupt {
    /// The statement that is running fails with an error.
    pub fn interrupt(&self) {
        self.0.interrupt();
    }
}

/// The version of the built-in SQLite library.
pub fn library_version() -> &'static str {
    rusqlite::version()
}

/// The first bytes of every database file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Offset of `user_version` in the header; four bytes, big-endian.
const USER_VERSION_AT: usize = 60;

/// The `user_version` in the header of the file at `path`, read as plain bytes. A connection, even
/// a read-only one, would create files beside it and would recover what a kill during a checkpoint
/// left. Changes that are only in the WAL are not seen.
pub fn header_version(path: &Path) -> Result<i64, DbError> {
    let mut header = Vec::new();
    // Opening a pipe would block.
    open_regular(path)
        .and_then(|file| file.take(64).read_to_end(&mut header))
        .map_err(|fault| other(fault.to_string()))?;
    let version = header
        .get(USER_VERSION_AT..)
        .and_then(|at| <[u8; 4]>::try_from(at).ok());
    let corrupt = |message: &str| DbError {
        kind: DbErrorKind::Corrupt,
        message: message.to_owned(),
    };
    match version {
        Some(version) if header.starts_with(MAGIC) => {
            // Pages of 4096 bytes without reserved space, in a format that this library writes.
            let is_ours = header[16..18] == [0x10, 0]
                && header[18..20].iter().all(|format| matches!(format, 1 | 2))
                && header[20..24] == [0, 64, 32, 32];
            match is_ours {
                true => Ok(i64::from(i32::from_be_bytes(version))),
                false => Err(corrupt("its header is damaged")),
            }
        }
        _ => Err(corrupt("file is not a database")),
    }
}

impl Sqlite {
    /// Opens the file at `path`, creates it for [`Use::Write`] or [`Use::Make`], and sets and
    /// verifies every pragma.
    pub fn open(path: &Path, for_use: Use) -> Result<Self, DbError> {
        if rusqlite::version_number() < OLDEST {
            return Err(other(format!(
                "SQLite {} is too old: 3.51.3 is the oldest that is safe here",
                rusqlite::version()
            )));
        }
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if for_use.writes() {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        let connection = Connection::open_with_flags(path, flags).map_err(error)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let mut sqlite = Sqlite {
            connection,
            for_use,
            bad: Vec::new(),
            corrupt: false,
        };
        sqlite.set_pragmas(for_use)?;
        Ok(sqlite)
    }

    /// Reads the database file at `path` alone and as it is: no WAL, no lock, and no file is made beside
    /// it. No process may write to it.
    pub fn open_unchanged(path: &Path) -> Result<Self, DbError> {
        let text = path
            .to_str()
            .ok_or_else(|| other(format!("{} is not UTF-8", path.display())))?;
        let encoded = text
            .replace('%', "%25")
            .replace('?', "%3f")
            .replace('#', "%23");
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI;
        let name = format!("file:{encoded}?immutable=1");
        let connection = Connection::open_with_flags(name, flags).map_err(error)?;
        Ok(Sqlite {
            connection,
            for_use: Use::Examine,
            bad: Vec::new(),
            corrupt: false,
        })
    }

    fn set_pragmas(&mut self, for_use: Use) -> Result<(), DbError> {
        let connection = &self.connection;
        connection
            .busy_timeout(Duration::from_secs(5))
            .map_err(error)?;
        // Query plans do not depend on bound values. Otherwise a statement with a range or a
        // constant comparison is recompiled at every use.
        let stable = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true);
        if !stable.map_err(error)? {
            return Err(other(
                "SQLite does not support stable query plans".to_owned(),
            ));
        }
        if for_use == Use::Examine {
            // The last connection to close would otherwise checkpoint the WAL.
            let kept = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            if !kept.map_err(error)? {
                return Err(other("SQLite would checkpoint the WAL on close".to_owned()));
            }
            // Also opens a file that is shorter than its header says, or has a broken schema.
            self.pragma("writable_schema", 1)?;
        }
        // FULL: an answered commit survives a power loss, not only a kill. Set first, so that the
        // following pragmas are not more careful than needed.
        self.pragma("synchronous", if for_use == Use::Make { 0 } else { 2 })?;
        if for_use.writes() {
            let mode: String = connection
                .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
                .map_err(error)?;
            if mode != "wal" {
                return Err(other(format!(
                    "the state folder's file system does not allow a write-ahead log (journal_mode is {mode})"
                )));
            }
            // Setting it is a write, which must not happen to a store that is refused.
            if self.read_pragma("application_id")? != APPLICATION_ID {
                self.pragma("application_id", APPLICATION_ID)?;
            }
            self.pragma("journal_size_limit", 64 << 20)?;
        }
        self.pragma("foreign_keys", 1)?;
        self.pragma("trusted_schema", 0)?;
        self.pragma("cell_size_check", i64::from(for_use != Use::Examine))?;
        // With a memory map, a read error would be a signal instead of an error.
        self.pragma("mmap_size", 0)?;
        // Checkpoints are the checkpoint thread's task and never part of a commit.
        self.pragma("wal_autocheckpoint", 0)?;
        self.pragma("temp_store", 2)?;
        let cache_kib = if for_use.writes() { 8 << 10 } else { 2 << 10 };
        self.pragma("cache_size", -cache_kib)?;
        if matches!(for_use, Use::Read | Use::Examine) {
            self.pragma("query_only", 1)?;
        }
        Ok(())
    }

    /// Sets a pragma and reads it back: a value that SQLite did not accept is an error, not a
    /// silent difference.
    fn pragma(&self, name: &str, value: i64) -> Result<(), DbError> {
        self.connection
            .execute_batch(&format!("PRAGMA {name} = {value}"))
            .map_err(error)?;
        // A build without memory maps has no mmap_size: it returns no row, which counts as 0.
        let read: Option<i64> = self
            .connection
            .query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
            .map(Some)
            .or_else(|fault| match fault {
                rusqlite::Error::QueryReturnedNoRows => Ok(None),
                fault => Err(fault),
            })
            .map_err(error)?;
        if read.unwrap_or(0) == value {
            Ok(())
        } else {
            Err(other(format!(
                "PRAGMA {name} = {value} reads back as {read:?}"
            )))
        }
    }

    /// The value of an integer pragma.
    pub fn read_pragma(&self, name: &str) -> Result<i64, DbError> {
        self.connection
            .query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
            .map_err(error)
    }

    /// The number of rows that this connection has changed since it was opened.
    pub fn changes(&self) -> u64 {
        self.connection.total_changes()
    }

    /// True if a transaction is open. Some errors, such as a full disk, roll it back.
    pub fn in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    /// True if a statement found the file to be damaged.
    pub fn is_corrupt(&self) -> bool {
        self.corrupt
    }

    /// A handle that interrupts this connection's statement from another thread.
    pub fn interrupt_handle(&self) -> Interrupt {
        Interrupt(self.connection.get_interrupt_handle())
    }

    /// The findings of the engine's integrity checks for a table and its indexes, or for the whole
    /// file, and dangling references; at most `most` findings. Reads everything that it checks.
    pub fn check(&mut self, table: Option<&str>, most: u32) -> Result<Vec<String>, DbError> {
        let most = most as usize;
        let mut findings = Vec::new();
        // Table names come from this program, so they need no quoting.
        let pages = match table {
            Some(table) => format!("PRAGMA integrity_check('{table}')"),
            None => format!("PRAGMA integrity_check({most})"),
        };
        let mut looked = self.query(&pages, &[], &mut |row| {
            let text = row.text(0)?;
            if text != "ok" {
                findings.push(text.to_owned());
            }
            Ok(())
        });
        // A flipped bit in an id leaves an intact page.
        if findings.is_empty() && looked.is_ok() {
            let references = match table {
                Some(table) => format!("PRAGMA foreign_key_check('{table}')"),
                None => "PRAGMA foreign_key_check".to_owned(),
            };
            looked = self.query(&references, &[], &mut |row| {
                if findings.len() < most {
                    let (table, other) = (row.text(0)?, row.text(2)?);
                    findings.push(format!(
                        "a row of {table} refers to a missing row of {other}"
                    ));
                }
                Ok(())
            });
        }
        match looked {
            // An error that stops the check is a finding, too.
            Err(fault) if fault.kind == DbErrorKind::Corrupt => findings.push(fault.message),
            looked => looked?,
        }
        findings.truncate(most);
        Ok(findings)
    }

    /// The number of valid WAL frames.
    pub fn frames(&mut self) -> Result<i64, DbError> {
        self.copied().map(|(frames, _)| frames.max(0))
    }

    /// As [`Sqlite::checkpoint_passive`], but copies nothing.
    pub fn copied(&mut self) -> Result<(i64, i64), DbError> {
        self.checkpoint("NOOP")
    }

    fn seen(&mut self, fault: rusqlite::Error) -> DbError {
        let mut fault = error(fault);
        // SQLite reports a file at its size limit as an I/O error.
        let path = self.connection.path().map(Path::new);
        if fault.kind == DbErrorKind::Io && path.is_some_and(files::is_at_size_limit) {
            fault.kind = DbErrorKind::Full;
        }
        self.corrupt |= fault.kind == DbErrorKind::Corrupt;
        fault
    }

    /// Takes the rows that did not decode since the last call.
    pub fn take_bad(&mut self) -> Vec<BadRow> {
        std::mem::take(&mut self.bad)
    }

    /// Runs several statements, such as a migration.
    pub fn batch(&mut self, sql: &str) -> Result<(), DbError> {
        self.connection.execute_batch(sql).map_err(error)
    }

    /// Copies the whole database, as of now, into a new file.
    pub fn copy_to(&mut self, path: &Path) -> Result<(), DbError> {
        let text = path
            .to_str()
            .ok_or_else(|| other(format!("{} is not UTF-8", path.display())))?;
        self.connection
            .execute("VACUUM INTO ?1", [text])
            .map(|_| ())
            .map_err(error)
    }

    /// Copies as many WAL frames as possible without waiting. Returns the number of frames in the
    /// WAL, and how many of them are copied.
    pub fn checkpoint_passive(&mut self) -> Result<(i64, i64), DbError> {
        self.checkpoint("PASSIVE")
    }

    /// Copies the whole WAL and waits for readers, so that the WAL restarts.
    pub fn checkpoint_restart(&mut self) -> Result<(i64, i64), DbError> {
        self.checkpoint("RESTART")
    }

    /// Truncates the WAL at a clean stop. Returns `false` if a reader used it until the busy
    /// timeout.
    pub fn checkpoint_truncate(&mut self) -> Result<bool, DbError> {
        self.connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                Ok(row.get::<_, i64>(0)? == 0)
            })
            .map_err(error)
    }

    fn checkpoint(&mut self, mode: &str) -> Result<(i64, i64), DbError> {
        self.connection
            .query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
                Ok((row.get(1)?, row.get(2)?))
            })
            .map_err(error)
    }
}

impl Tx for Sqlite {
    fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, DbError> {
        let done = execute(&self.connection, sql, params);
        done.map_err(|fault| self.seen(fault))
    }

    fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        match query(&self.connection, sql, params, each) {
            Ok(done) => done,
            Err(fault) => Err(self.seen(fault)),
        }
    }

    fn report_undecodable(&mut self, row: BadRow) -> Result<(), DbError> {
        let fault = DbError::unreadable(row.clone());
        self.bad.push(row);
        if self.for_use.writes() {
            return Err(fault);
        }
        Ok(())
    }
}

fn execute(connection: &Connection, sql: &str, params: &[Param<'_>]) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached(sql)?;
    bind(&mut statement, params)?;
    statement.raw_execute().map(|changed| changed as u64)
}

/// The outer error is the engine's, the inner one is from `each`.
fn query(
    connection: &Connection,
    sql: &str,
    params: &[Param<'_>],
    each: &mut dyn FnMut(&dyn Row) -> Result<(), DbError>,
) -> rusqlite::Result<Result<(), DbError>> {
    let mut statement = connection.prepare_cached(sql)?;
    bind(&mut statement, params)?;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        if let Err(fault) = each(&SqliteRow(row)) {
            return Ok(Err(fault));
        }
    }
    Ok(Ok(()))
}

fn bind(
    statement: &mut rusqlite::CachedStatement<'_>,
    params: &[Param<'_>],
) -> rusqlite::Result<()> {
    for (at, param) in params.iter().enumerate() {
        statement.raw_bind_parameter(at + 1, Bound(param))?;
    }
    Ok(())
}

struct Bound<'a>(&'a Param<'a>);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Param::Null => ValueRef::Null,
            Param::Int(value) => ValueRef::Integer(*value),
            Param::Text(text) => ValueRef::Text(text.as_bytes()),
            Param::Owned(text) => ValueRef::Text(text.as_bytes()),
            Param::Bytes(bytes) => ValueRef::Blob(bytes),
            Param::Raw(Raw::Bytes(bytes)) => ValueRef::Blob(bytes),
            Param::Raw(Raw::Null) => ValueRef::Null,
            Param::Raw(Raw::Int(value)) => ValueRef::Integer(*value),
            Param::Raw(Raw::Real(bits)) => ValueRef::Real(f64::from_bits(*bits)),
            Param::Raw(Raw::Text(bytes)) => ValueRef::Text(bytes),
        }))
    }
}

struct SqliteRow<'a, 'b>(&'a rusqlite::Row<'b>);

impl Row for SqliteRow<'_, '_> {
    fn is_null(&self, column: usize) -> Result<bool, DbError> {
        let value = self.0.get_ref(column).map_err(error)?;
        Ok(matches!(value, ValueRef::Null))
    }

    fn int(&self, column: usize) -> Result<i64, DbError> {
        match self.0.get_ref(column).map_err(error)? {
            ValueRef::Integer(value) => Ok(value),
            found => Err(undecodable(column, found)),
        }
    }

    fn opt_int(&self, column: usize) -> Result<Option<i64>, DbError> {
        match self.0.get_ref(column).map_err(error)? {
            ValueRef::Integer(value) => Ok(Some(value)),
            ValueRef::Null => Ok(None),
            found => Err(undecodable(column, found)),
        }
    }

    fn opt_text(&self, column: usize) -> Result<Option<&str>, DbError> {
        match self.0.get_ref(column).map_err(error)? {
            ValueRef::Text(bytes) => std::str::from_utf8(bytes)
                .map(Some)
                .map_err(|_| DbError::undecodable(column, "text that is not UTF-8")),
            ValueRef::Null => Ok(None),
            found => Err(undecodable(column, found)),
        }
    }

    fn opt_bytes(&self, column: usize) -> Result<Option<&[u8]>, DbError> {
        match self.0.get_ref(column).map_err(error)? {
            ValueRef::Blob(bytes) => Ok(Some(bytes)),
            ValueRef::Null => Ok(None),
            found => Err(undecodable(column, found)),
        }
    }

    fn raw(&self, column: usize) -> Result<Raw, DbError> {
        self.0.get_ref(column).map(raw).map_err(error)
    }

    fn names(&self) -> Vec<String> {
        let names = self.0.as_ref().column_names();
        names.into_iter().map(str::to_owned).collect()
    }
}

fn raw(value: ValueRef<'_>) -> Raw {
    match value {
        ValueRef::Null => Raw::Null,
        ValueRef::Integer(value) => Raw::Int(value),
        ValueRef::Real(value) => Raw::Real(value.to_bits()),
        ValueRef::Text(bytes) => Raw::Text(bytes.to_vec()),
        ValueRef::Blob(bytes) => Raw::Bytes(bytes.to_vec()),
    }
}

fn undecodable(column: usize, found: ValueRef<'_>) -> DbError {
    DbError::undecodable(column, found.data_type())
}

fn other(message: String) -> DbError {
    DbError {
        kind: DbErrorKind::Other,
        message,
    }
}

/// True for an inconsistent full-text index or file header. The engine has no error code of its
/// own for this.
fn cannot_be_read(fault: &rusqlite::Error) -> bool {
    let text = fault.to_string();
    [
        "vtable constructor failed",
        "invalid fts5 file format",
        "unsupported file format",
        "must use the same text encoding",
    ]
    .iter()
    .any(|says| text.contains(says))
}

fn error(fault: rusqlite::Error) -> DbError {
    let kind = match &fault {
        rusqlite::Error::SqliteFailure(code, _) => match code.code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => DbErrorKind::Busy,
            ErrorCode::DiskFull => DbErrorKind::Full,
            ErrorCode::ReadOnly => DbErrorKind::ReadOnly,
            // The WAL index (shared memory of all connections) could not grow.
            ErrorCode::SystemIoFailure
                if code.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE =>
            {
                DbErrorKind::Full
            }
            ErrorCode::SystemIoFailure => DbErrorKind::Io,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => DbErrorKind::Corrupt,
            ErrorCode::ConstraintViolation => DbErrorKind::Constraint,
            _ if cannot_be_read(&fault) => DbErrorKind::Corrupt,
            _ => DbErrorKind::Other,
        },
        _ => DbErrorKind::Other,
    };
    DbError {
        kind,
        message: fault.to_string(),
    }
}
