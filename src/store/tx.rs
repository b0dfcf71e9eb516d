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
    /// A value as it was read, whatever it is.
    Raw(&'a Raw),
}

/// A value as it lies in the database, before anybody asks what it means.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Raw {
    /// NULL.
    Null,
    /// An integer.
    Int(i64),
    /// A floating-point number, as its bits.
    Real(u64),
    /// What is called text; it may not be UTF-8.
    Text(Vec<u8>),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// A row that does not hold what rows of its table must hold, and how to find it again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BadRow {
    /// Its table.
    pub table: &'static str,
    /// Columns that find it, with what they hold.
    pub key: Vec<(&'static str, Raw)>,
    /// What is wrong with it.
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
    /// A column as it is.
    fn raw(&self, column: usize) -> Result<Raw, DbError>;
    /// The names of the columns.
    fn names(&self) -> Vec<String>;

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

    /// Takes note of a row that cannot be read, so that it is set aside. A list goes on
    /// without it; what is about to write fails, since it must not decide on half the rows.
    fn leave_out(&mut self, row: BadRow) -> Result<(), DbError>;
}

/// The first row of a query, read by `read`. One that cannot be read is an error.
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
        tx.leave_out((**row).clone())?;
    }
    asked.map(|()| found)
}

/// Every row of a query, read by `read`, but for those that cannot be read: where only reads
/// are done they are left out, and set aside soon after.
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
        tx.leave_out(bad)?;
    }
    Ok(rows)
}

/// The table has one more row, with these values in these columns.
pub fn insert_row(tx: &mut dyn Tx, table: &str, row: &[(&str, Param<'_>)]) -> Result<(), DbError> {
    let mut sql = statement("INSERT INTO ", table, row.len());
    let mut separator = " (";
    for (name, _) in row {
        sql.extend([separator, name]);
        separator = ", ";
    }
    separator = ") VALUES (";
    for place in 1..=row.len() {
        sql.push_str(separator);
        push_place(&mut sql, place);
        separator = ", ";
    }
    sql.push(')');
    let values: Vec<Param<'_>> = row.iter().map(|(_, value)| *value).collect();
    tx.execute(&sql, &values).map(|_| ())
}

/// The rows whose `key` columns hold those values have these; how many there were.
pub fn update_rows(
    tx: &mut dyn Tx,
    table: &str,
    key: &[(&str, Param<'_>)],
    values: &[(&str, Param<'_>)],
) -> Result<u64, DbError> {
    let all: Vec<Param<'_>> = key.iter().chain(values).map(|(_, value)| *value).collect();
    let mut sql = statement("UPDATE ", table, all.len());
    for (first, next, columns, before) in [
        (" SET ", ", ", values, key.len()),
        (" WHERE ", " AND ", key, 0),
    ] {
        let mut separator = first;
        for ((name, _), place) in columns.iter().zip(before + 1..) {
            sql.extend([separator, name, " = "]);
            push_place(&mut sql, place);
            separator = next;
        }
    }
    tx.execute(&sql, &all)
}

/// The beginning of a statement with so many columns, in a text that holds all of it: every
/// write makes one, as the key under which the engine keeps the prepared statement.
fn statement(verb: &str, table: &str, columns: usize) -> String {
    let mut sql = String::with_capacity(32 + table.len() + columns * 24);
    sql.extend([verb, table]);
    sql
}

fn push_place(sql: &mut String, place: usize) {
    // Digit by digit: the formatting of numbers would cost more than the rest of the text.
    sql.push('?');
    for unit in [100, 10, 1] {
        if place >= unit {
            sql.push(char::from(b'0' + (place / unit % 10) as u8));
        }
    }
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
    /// The file, or the folder around it, takes no writes.
    ReadOnly,
    /// This column of a row does not hold what it must hold.
    Column(usize),
    /// This row of a table does not hold what it must hold.
    Unreadable(Box<BadRow>),
    /// Something stored does not hold what it must hold.
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
            kind: DbErrorKind::Column(column),
            message: format!("column {column} holds {found}"),
        }
    }
}

impl DbError {
    /// Is the file damaged? Anything else is a matter of what is around it.
    pub fn is_damage(&self) -> bool {
        matches!(
            self.kind,
            DbErrorKind::Corrupt | DbErrorKind::Column(_) | DbErrorKind::Undecodable
        )
    }

    /// A row that does not hold what it must hold.
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
