//! The table of rows that could not be read: whole, with the reason.

use serde_json::{Map, Value, json};

use super::columns::time;
use super::tx::{DbError, Raw, Row, Tx, all, number};
use crate::kernel::time::Timestamp;

/// What became of a row in its own table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// What could be read of it stays there.
    Mended,
    /// It is there no more.
    Moved,
    /// It is there still, and cannot be read.
    Kept,
}

impl Fate {
    /// As it is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Fate::Mended => "mended",
            Fate::Moved => "moved",
            Fate::Kept => "kept",
        }
    }
}

/// A row in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place.
    pub seq: i64,
    /// The table that it was in.
    pub source: String,
    /// Its primary key there, JSON.
    pub key: String,
    /// What was wrong with it.
    pub reason: String,
    /// What became of it there.
    pub fate: String,
    /// When.
    pub at: Timestamp,
}

/// The row is in quarantine at `seq`, with every byte that it had.
pub fn insert(
    tx: &mut dyn Tx,
    seq: i64,
    source: &str,
    key: &str,
    row: &[(String, Raw)],
    (reason, fate): (&str, Fate),
    now: Timestamp,
) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO quarantine (seq, source, key, row, reason, fate, at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        &[
            seq.into(),
            source.into(),
            key.into(),
            (&to_text(row)).into(),
            reason.into(),
            fate.as_str().into(),
            now.0.into(),
        ],
    )
    .map(drop)
}

/// Does this row lie in quarantine as it is now?
pub fn holds(
    tx: &mut dyn Tx,
    source: &str,
    key: &str,
    row: &[(String, Raw)],
) -> Result<bool, DbError> {
    let found = number(
        tx,
        "SELECT count(*) FROM quarantine WHERE source = ?1 AND key = ?2 AND row = ?3",
        &[source.into(), key.into(), (&to_text(row)).into()],
    )?;
    Ok(found > 0)
}

/// The terminal run at this place may be mended in this transaction.
pub fn begin_mending(tx: &mut dyn Tx, seq: i64, run: i64) -> Result<(), DbError> {
    tx.execute(
        "UPDATE quarantine SET mending = ?2 WHERE seq = ?1",
        &[seq.into(), run.into()],
    )
    .map(drop)
}

/// The entry says what became of its row, and nothing is being mended.
pub fn settle(tx: &mut dyn Tx, seq: i64, fate: Fate) -> Result<(), DbError> {
    tx.execute(
        "UPDATE quarantine SET mending = NULL, fate = ?2 WHERE seq = ?1",
        &[seq.into(), fate.as_str().into()],
    )
    .map(drop)
}

/// The entries after `seq`, oldest first.
pub fn list(tx: &mut dyn Tx, after: i64, limit: u32) -> Result<Vec<Entry>, DbError> {
    all(
        tx,
        &format!(
            "SELECT seq, source, key, reason, fate, at FROM quarantine WHERE seq > ?1 \
             ORDER BY seq LIMIT {limit}"
        ),
        &[after.into()],
        read,
    )
}

/// How many rows there are, by table.
pub fn counts(tx: &mut dyn Tx) -> Result<Vec<(String, i64)>, DbError> {
    all(
        tx,
        "SELECT source, count(*) FROM quarantine GROUP BY source ORDER BY source",
        &[],
        |row| Ok((row.text(0)?.to_owned(), row.int(1)?)),
    )
}

fn read(row: &dyn Row) -> Result<Entry, DbError> {
    Ok(Entry {
        seq: row.int(0)?,
        source: row.text(1)?.to_owned(),
        key: row.text(2)?.to_owned(),
        reason: row.text(3)?.to_owned(),
        fate: row.text(4)?.to_owned(),
        at: time(row, 5)?,
    })
}

/// Columns as JSON that gives every byte back: text that is not UTF-8 or holds U+0000, bytes
/// and numbers without a JSON form are hexadecimal under a name that says what they were.
pub fn to_text(row: &[(String, Raw)]) -> String {
    let columns = row.iter().map(|(name, value)| (name.clone(), shown(value)));
    Value::Object(Map::from_iter(columns)).to_string()
}

fn shown(value: &Raw) -> Value {
    match value {
        Raw::Null => Value::Null,
        Raw::Int(value) => json!(value),
        Raw::Real(bits) => json!({ "real": hex(&bits.to_be_bytes()) }),
        Raw::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => json!(text),
            _ => json!({ "text": hex(bytes) }),
        },
        Raw::Bytes(bytes) => json!({ "bytes": hex(bytes) }),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value_can_be_told_from_its_text() {
        let row = [
            ("a", Raw::Null),
            ("b", Raw::Int(-7)),
            ("c", Raw::Real(1.5_f64.to_bits())),
            ("d", Raw::Text(b"plain".to_vec())),
            ("e", Raw::Text(vec![0xff, 0x41])),
            ("f", Raw::Text(b"a\0b".to_vec())),
            ("g", Raw::Bytes(vec![0, 1, 254])),
        ];
        let row = row.map(|(name, value)| (name.to_owned(), value));
        let text = to_text(&row);
        assert_eq!(
            text,
            r#"{"a":null,"b":-7,"c":{"real":"3ff8000000000000"},"d":"plain","e":{"text":"ff41"},"f":{"text":"610062"},"g":{"bytes":"0001fe"}}"#
        );
        assert!(!text.contains('\0'));
    }
}
