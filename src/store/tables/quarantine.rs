//! The quarantine table: rows that did not decode, stored whole, with the reason.

use serde_json::{Map, Value, json};

use super::columns::{columns_of, values};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Raw, Tx, all, execute, number};

/// What happened to a quarantined row in its own table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The row was repaired: its decodable columns stay there.
    Repaired,
    /// The row was removed.
    Moved,
    /// The row is still there and does not decode.
    Kept,
}

impl Fate {
    /// The word that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Fate::Repaired => "mended",
            Fate::Moved => "moved",
            Fate::Kept => "kept",
        }
    }
}

/// A row in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantineEntry {
    /// Its sequence number.
    pub seq: i64,
    /// The table that it was in.
    pub source: String,
    /// Its primary key there, as JSON.
    pub key: String,
    /// The reason why it did not decode.
    pub reason: String,
    /// A word of [`Fate`]: what happened to it in its table.
    pub fate: String,
    /// When it was quarantined.
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
    execute(
        tx,
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
}

/// True if the row, with its current content, is already in quarantine.
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

/// The terminal run with list position `run` may be repaired in this transaction.
pub fn begin_repair(tx: &mut dyn Tx, seq: i64, run: i64) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE quarantine SET mending = ?2 WHERE seq = ?1",
        &[seq.into(), run.into()],
    )
}

/// The entry records what happened to its row, and the permission to repair has ended.
pub fn settle(tx: &mut dyn Tx, seq: i64, fate: Fate) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE quarantine SET mending = NULL, fate = ?2 WHERE seq = ?1",
        &[seq.into(), fate.as_str().into()],
    )
}

/// The entries after `seq`, oldest first.
pub fn list(tx: &mut dyn Tx, after: i64, limit: u32) -> Result<Vec<QuarantineEntry>, DbError> {
    all(
        tx,
        &format!(
            "SELECT seq, source, key, reason, fate, at FROM quarantine WHERE seq > ?1 \
             ORDER BY seq LIMIT {limit}"
        ),
        &[after.into()],
        values,
    )
}

/// The number of quarantined rows by table.
pub fn counts(tx: &mut dyn Tx) -> Result<Vec<(String, i64)>, DbError> {
    all(
        tx,
        "SELECT source, count(*) FROM quarantine GROUP BY source ORDER BY source",
        &[],
        values,
    )
}

columns_of!(QuarantineEntry {
    seq,
    source,
    key,
    reason,
    fate,
    at
});

/// Columns as lossless JSON: text that is not UTF-8 or contains U+0000, bytes, and floating-point
/// numbers are hexadecimal, in an object whose key names their type.
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
        // Writing to a String cannot fail.
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
