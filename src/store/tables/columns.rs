//! Decodes typed values from rows, each by the name of its column.

use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::kernel::ids::{AgentId, SessionKey};
use crate::kernel::time::Timestamp;
use crate::store::tx::{BadRow, DbError, DbErrorKind, Row};

/// The index of a column in the calling file's `COLUMNS` list. An unknown name does not
/// compile.
macro_rules! at {
    ($name:ident) => {
        const { $crate::store::tables::columns::place(COLUMNS, stringify!($name)) }
    };
}
pub(crate) use at;

/// The index of `name` in a list of columns, counted from 0.
pub const fn place(columns: &str, name: &str) -> usize {
    let (list, name) = (columns.as_bytes(), name.as_bytes());
    let (mut at, mut column) = (0, 0);
    while at < list.len() {
        let mut same = 0;
        while same < name.len() && at + same < list.len() && list[at + same] == name[same] {
            same += 1;
        }
        let ends = at + same == list.len() || list[at + same] == b',';
        if same == name.len() && ends {
            return column;
        }
        while at < list.len() && list[at] != b',' {
            at += 1;
        }
        // Skip the comma and the space.
        at += 2;
        column += 1;
    }
    panic!("no such column");
}

/// The number of columns in a list: the index of a query's first further column.
pub const fn width(columns: &str) -> usize {
    let list = columns.as_bytes();
    let (mut at, mut width) = (0, 1);
    while at < list.len() {
        if list[at] == b',' {
            width += 1;
        }
        at += 1;
    }
    width
}

/// Decodes a row with `read`. If it does not decode, the error names the row by its table and the
/// values of its `key` columns (name and index in the result), so that it can be quarantined.
pub fn whole<T>(
    row: &dyn Row,
    table: &'static str,
    key: &[(&'static str, usize)],
    read: impl Fn(&dyn Row) -> Result<T, DbError>,
) -> Result<T, DbError> {
    let fault = match read(row) {
        Ok(read) => return Ok(read),
        Err(fault) => fault,
    };
    if !matches!(
        fault.kind,
        DbErrorKind::Column(_) | DbErrorKind::Undecodable
    ) {
        return Err(fault);
    }
    let key = key
        .iter()
        .map(|(name, at)| Ok((*name, row.raw(*at)?)))
        .collect::<Result<_, DbError>>()?;
    Err(DbError::unreadable(BadRow {
        table,
        key,
        why: fault.message,
    }))
}

/// A 16-byte id that may be NULL.
pub fn opt_uuid(row: &dyn Row, column: usize) -> Result<Option<Uuid>, DbError> {
    row.opt_bytes(column)?
        .map(|bytes| {
            Uuid::from_slice(bytes)
                .map_err(|_| DbError::undecodable(column, "bytes that are not an id"))
        })
        .transpose()
}

/// A 16-byte id.
pub fn uuid(row: &dyn Row, column: usize) -> Result<Uuid, DbError> {
    opt_uuid(row, column)?.ok_or_else(|| DbError::undecodable(column, "NULL"))
}

/// A timestamp.
pub fn time(row: &dyn Row, column: usize) -> Result<Timestamp, DbError> {
    row.int(column).map(Timestamp)
}

/// A timestamp that may be NULL.
pub fn opt_time(row: &dyn Row, column: usize) -> Result<Option<Timestamp>, DbError> {
    Ok(row.opt_int(column)?.map(Timestamp))
}

/// Text that may be NULL.
pub fn opt_string(row: &dyn Row, column: usize) -> Result<Option<String>, DbError> {
    Ok(row.opt_text(column)?.map(str::to_owned))
}

/// A count from 0 to `u32::MAX`.
pub fn count(row: &dyn Row, column: usize) -> Result<u32, DbError> {
    u32::try_from(row.int(column)?)
        .map_err(|_| DbError::undecodable(column, "a count out of range"))
}

/// A non-negative amount, such as milliseconds or tokens.
pub fn amount(row: &dyn Row, column: usize) -> Result<u64, DbError> {
    u64::try_from(row.int(column)?).map_err(|_| DbError::undecodable(column, "a negative amount"))
}

/// An enum value, decoded from its text form by `parse`.
pub fn named<T>(
    row: &dyn Row,
    column: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, DbError> {
    let text = row.text(column)?;
    parse(text).ok_or_else(|| DbError::undecodable(column, format!("{text:?}")))
}

/// An enum value that may be NULL.
pub fn opt_named<T>(
    row: &dyn Row,
    column: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, DbError> {
    row.opt_text(column)?
        .map(|_| named(row, column, parse))
        .transpose()
}

/// A JSON value.
pub fn json<T: DeserializeOwned>(row: &dyn Row, column: usize) -> Result<T, DbError> {
    json_by(row, column, |text| serde_json::from_str(text))
}

/// A JSON value, decoded by `read`.
pub fn json_by<T>(
    row: &dyn Row,
    column: usize,
    read: impl Fn(&str) -> serde_json::Result<T>,
) -> Result<T, DbError> {
    read(row.text(column)?).map_err(|fault| {
        DbError::undecodable(column, format!("JSON of an unexpected form: {fault}"))
    })
}

/// A JSON value that may be NULL.
pub fn opt_json<T: DeserializeOwned>(row: &dyn Row, column: usize) -> Result<Option<T>, DbError> {
    row.opt_text(column)?
        .map(serde_json::from_str)
        .transpose()
        .map_err(|fault| {
            DbError::undecodable(column, format!("JSON of an unexpected form: {fault}"))
        })
}

/// A session key.
pub fn key(row: &dyn Row, column: usize) -> Result<SessionKey, DbError> {
    named(row, column, |text| SessionKey::parse(text).ok())
}

/// An agent's name.
pub fn agent(row: &dyn Row, column: usize) -> Result<AgentId, DbError> {
    named(row, column, |text| AgentId::parse(text).ok())
}

/// An amount as a database integer; too large ones become `i64::MAX`.
pub fn to_int(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// A value as JSON text. JSON escapes U+0000, which a text column must not contain.
pub fn to_json<T: serde::Serialize>(value: &T) -> String {
    // These types contain only strings, numbers, lists and maps with text keys.
    serde_json::to_string(value).expect("plain data has a JSON form")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_found_by_its_whole_name() {
        let list = "id, id_of, of";
        assert_eq!(
            ["id", "id_of", "of"].map(|name| place(list, name)),
            [0, 1, 2]
        );
        assert_eq!(width(list), 3);
        for none in ["i", "d", "id_", "o", ""] {
            assert!(
                std::panic::catch_unwind(|| place(list, none)).is_err(),
                "{none}"
            );
        }
    }
}
