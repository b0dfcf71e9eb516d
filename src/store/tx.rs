//! The small synchronous view of a database that all SQL here is written against. SQLite
//! stands behind it today; another engine is another implementation, not another SQL.

use std::fmt;

/// A value bound to `?1`, `?2`, ….
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Param<'a> {
    /// NULL.
    Null,
    /// An integer.
    Int(i64),
    /// Text without U+0000.
    Text(&'a str),
    /// Bytes; ids are 16 of them.
    Bytes(&'a [u8]),
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

impl<'a> From<&'a uuid::Uuid> for Param<'a> {
    fn from(value: &'a uuid::Uuid) -> Self {
        Param::Bytes(value.as_bytes())
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

/// One row of an answer. Columns count from 0.
pub trait Row {
    /// An integer column.
    fn int(&self, column: usize) -> Result<i64, DbError>;
    /// An integer column that may be NULL.
    fn opt_int(&self, column: usize) -> Result<Option<i64>, DbError>;
    /// A text column that may be NULL.
    fn opt_text(&self, column: usize) -> Result<Option<&str>, DbError>;
    /// A bytes column that may be NULL.
    fn opt_bytes(&self, column: usize) -> Result<Option<&[u8]>, DbError>;

    /// A text column.
    fn text(&self, column: usize) -> Result<&str, DbError> {
        self.opt_text(column)?
            .ok_or_else(|| DbError::undecodable(column, "NULL"))
    }
}

/// What a statement is run in.
pub trait Tx {
    /// Runs a statement; the number of rows it changed.
    fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, DbError>;

    /// Runs a query and hands each row to `each`.
    fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<(), DbError>,
    ) -> Result<(), DbError>;
}

/// The first row of a query, read by `read`.
pub fn first<T>(
    tx: &mut dyn Tx,
    sql: &str,
    params: &[Param<'_>],
    read: impl Fn(&dyn Row) -> Result<T, DbError>,
) -> Result<Option<T>, DbError> {
    let mut found = None;
    tx.query(sql, params, &mut |row| {
        if found.is_none() {
            found = Some(read(row)?);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Every row of a query, read by `read`.
pub fn all<T>(
    tx: &mut dyn Tx,
    sql: &str,
    params: &[Param<'_>],
    read: impl Fn(&dyn Row) -> Result<T, DbError>,
) -> Result<Vec<T>, DbError> {
    let mut rows = Vec::new();
    tx.query(sql, params, &mut |row| {
        rows.push(read(row)?);
        Ok(())
    })?;
    Ok(rows)
}

/// The one integer of a query's one row; 0 where there is none.
pub fn number(tx: &mut dyn Tx, sql: &str, params: &[Param<'_>]) -> Result<i64, DbError> {
    Ok(first(tx, sql, params, |row| row.int(0))?.unwrap_or(0))
}

/// What went wrong in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DbErrorKind {
    /// Another connection holds a lock; trying again may help.
    Busy,
    /// No space is left.
    Full,
    /// Reading or syncing failed; nothing after it can be trusted.
    Io,
    /// The file is damaged or no database.
    Corrupt,
    /// The schema forbids it.
    Constraint,
    /// A row does not hold what it must hold.
    Undecodable,
    /// Anything else.
    Other,
}

/// An error of the database, in its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbError {
    /// What kind.
    pub kind: DbErrorKind,
    /// The engine's message.
    pub message: String,
}

impl DbError {
    /// A column that does not hold what it must hold.
    pub fn undecodable(column: usize, found: impl fmt::Display) -> Self {
        DbError {
            kind: DbErrorKind::Undecodable,
            message: format!("column {column} holds {found}"),
        }
    }
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DbError {}
