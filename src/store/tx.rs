//! The small synchronous database interface that all SQL of the store is written against. SQLite
//! is the only implementation today; another engine would implement [`Tx`] and keep the SQL.

use std::fmt;

/// A statement that is formatted once, with constants only; later calls get the same text, which is
/// also its key in the engine's cache of prepared statements.
macro_rules! sql {
    ($($text:tt)+) => {{
        static SQL: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| format!($($text)+));
        SQL.as_str()
    }};
}
pub(crate) use sql;

/// A value bound to `?1`, `?2`, ….
#[derive(Clone, Debug, PartialEq)]
pub enum Param<'a> {
    /// NULL.
    Null,
    /// An integer.
    Int(i64),
    /// Text without U+0000.
    Text(&'a str),
    /// The same, made for the statement, such as JSON.
    Owned(String),
    /// Bytes; an id has 16.
    Bytes(&'a [u8]),
    /// A value written back exactly as it was read.
    Raw(&'a Raw),
}

/// A value as it is stored in the database, not yet decoded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Raw {
    /// NULL.
    Null,
    /// An integer.
    Int(i64),
    /// A floating-point number, as its bits.
    Real(u64),
    /// A value of storage class text; it may not be valid UTF-8.
    Text(Vec<u8>),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// A row that does not decode as rows of its table must, with the key that finds it again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BadRow {
    /// The table of the row.
    pub table: &'static str,
    /// Key columns that identify the row, with their stored values.
    pub key: Vec<(&'static str, Raw)>,
    /// The reason why the row does not decode.
    pub why: String,
}

impl From<i64> for Param<'_> {
    fn from(value: i64) -> Self {
        Param::Int(value)
    }
}

impl From<u32> for Param<'_> {
    fn from(value: u32) -> Self {
        Param::Int(i64::from(value))
    }
}

impl From<bool> for Param<'_> {
    fn from(value: bool) -> Self {
        Param::Int(i64::from(value))
    }
}

impl<'a> From<&'a str> for Param<'a> {
    fn from(value: &'a str) -> Self {
        Param::Text(value)
    }
}

impl<'a> From<&'a String> for Param<'a> {
    fn from(value: &'a String) -> Self {
        Param::Text(value)
    }
}

impl From<String> for Param<'_> {
    fn from(value: String) -> Self {
        Param::Owned(value)
    }
}

impl<'a> From<&'a uuid::Uuid> for Param<'a> {
    fn from(value: &'a uuid::Uuid) -> Self {
        Param::Bytes(value.as_bytes())
    }
}

impl<'a> From<&'a Raw> for Param<'a> {
    fn from(value: &'a Raw) -> Self {
        Param::Raw(value)
    }
}

impl<'a, T> From<Option<T>> for Param<'a>
where
    T: Into<Param<'a>>,
{
    fn from(value: Option<T>) -> Self {
        value.map_or(Param::Null, Into::into)
    }
}

/// One row of a query result. Columns count from 0.
pub trait Row {
    /// True if the column is NULL.
    fn is_null(&self, column: usize) -> Result<bool, DbError>;
    /// An integer column.
    fn int(&self, column: usize) -> Result<i64, DbError>;
    /// An integer column that may be NULL.
    fn opt_int(&self, column: usize) -> Result<Option<i64>, DbError>;
    /// A text column that may be NULL.
    fn opt_text(&self, column: usize) -> Result<Option<&str>, DbError>;
    /// A bytes column that may be NULL.
    fn opt_bytes(&self, column: usize) -> Result<Option<&[u8]>, DbError>;
    /// A column of any type, not decoded.
    fn raw(&self, column: usize) -> Result<Raw, DbError>;
    /// The names of the columns, in order.
    fn names(&self) -> Vec<String>;

    /// A text column.
    fn text(&self, column: usize) -> Result<&str, DbError> {
        self.opt_text(column)?
            .ok_or_else(|| DbError::undecodable(column, "NULL"))
    }
}

/// A connection, or an open transaction, that runs statements.
pub trait Tx {
    /// Runs a statement; returns the number of rows it changed.
    fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, DbError>;

    /// Runs a query and passes each row to `each`; an error of `each` stops it and is returned.
    fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<(), DbError>,
    ) -> Result<(), DbError>;

    /// Records a row that cannot be decoded, so that it is quarantined later. A read-only list
    /// continues without the row; a write fails, because it must not decide on incomplete data.
    fn report_undecodable(&mut self, row: BadRow) -> Result<(), DbError>;
}

/// Runs a statement, whatever number of rows it changes.
pub fn execute(tx: &mut dyn Tx, sql: &str, params: &[Param<'_>]) -> Result<(), DbError> {
    tx.execute(sql, params).map(drop)
}

/// The first row of a query, decoded by `read`. A row that cannot be decoded is an error.
pub fn first<T>(
    tx: &mut dyn Tx,
    sql: &str,
    params: &[Param<'_>],
    read: impl Fn(&dyn Row) -> Result<T, DbError>,
) -> Result<Option<T>, DbError> {
    let mut found = None;
    let asked = tx.query(sql, params, &mut |row| {
        if found.is_none() {
            found = Some(read(row)?);
        }
        Ok(())
    });
    if let Err(DbError {
        kind: DbErrorKind::Unreadable(row),
        ..
    }) = &asked
    {
        tx.report_undecodable((**row).clone())?;
    }
    asked.map(|()| found)
}

/// Every row of a query, decoded by `read`. In read-only use, rows that cannot be decoded are
/// skipped and quarantined soon after.
pub fn all<T>(
    tx: &mut dyn Tx,
    sql: &str,
    params: &[Param<'_>],
    read: impl Fn(&dyn Row) -> Result<T, DbError>,
) -> Result<Vec<T>, DbError> {
    let mut rows = Vec::new();
    let mut left_out = Vec::new();
    tx.query(sql, params, &mut |row| {
        match read(row) {
            Ok(read) => rows.push(read),
            Err(DbError {
                kind: DbErrorKind::Unreadable(bad),
                ..
            }) => left_out.push(*bad),
            Err(fault) => return Err(fault),
        }
        Ok(())
    })?;
    for bad in left_out {
        tx.report_undecodable(bad)?;
    }
    Ok(rows)
}

/// The integer in the first row of a query; 0 if the query has no row.
pub fn number(tx: &mut dyn Tx, sql: &str, params: &[Param<'_>]) -> Result<i64, DbError> {
    Ok(first(tx, sql, params, |row| row.int(0))?.unwrap_or(0))
}

/// The category of a database error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DbErrorKind {
    /// Another connection holds a lock; a retry may succeed.
    Busy,
    /// The disk is full or the file has reached its size limit.
    Full,
    /// No more files can be opened.
    NoDescriptor,
    /// A read or a sync failed; nothing after it can be trusted.
    Io,
    /// The file is damaged or is not a database.
    Corrupt,
    /// The statement violates a constraint of the schema.
    Constraint,
    /// The file or its folder is not writable.
    ReadOnly,
    /// The column with this index does not decode.
    Column(usize),
    /// This row of a table does not decode.
    Unreadable(Box<BadRow>),
    /// A stored value does not decode.
    Undecodable,
    /// Any other error.
    Other,
}

/// A database error with the engine's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbError {
    /// The category of the error.
    pub kind: DbErrorKind,
    /// The engine's message, or one that describes the value that does not decode.
    pub message: String,
}

impl DbError {
    /// An error for a column that does not decode; `found` describes its value.
    pub fn undecodable(column: usize, found: impl fmt::Display) -> Self {
        DbError {
            kind: DbErrorKind::Column(column),
            message: format!("column {column} holds {found}"),
        }
    }
}

impl DbError {
    /// True if the file itself is damaged; other errors come from its environment.
    pub fn is_damage(&self) -> bool {
        matches!(
            self.kind,
            DbErrorKind::Corrupt | DbErrorKind::Column(_) | DbErrorKind::Undecodable
        )
    }

    /// An error for a row that does not decode.
    pub fn unreadable(row: BadRow) -> Self {
        DbError {
            message: format!("a row of {} cannot be read: {}", row.table, row.why),
            kind: DbErrorKind::Unreadable(Box::new(row)),
        }
    }
}

impl From<std::io::Error> for DbError {
    fn from(fault: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let kind = match fault.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                DbErrorKind::Full
            }
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => DbErrorKind::ReadOnly,
            _ => DbErrorKind::Other,
        };
        DbError {
            kind,
            message: fault.to_string(),
        }
    }
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DbError {}
