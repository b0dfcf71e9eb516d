//! The index by which memories are found by their words: the one place where SQL is SQLite's
//! own (FTS5), and where another engine has its full-text search. `memories` calls it with the
//! place of a row; scopes keep tenants and name spaces apart.

use std::fmt::Write;

use super::tx::{DbError, Tx};
use crate::kernel::memory::words;

/// Is it this index or a part of it? What lies there is made anew, never copied.
pub fn is_part(table: &str) -> bool {
    table.starts_with("memory_words")
}

/// The memory at place `seq` is found by the words of `text`, within the tenant and within the
/// name space.
pub fn add(tx: &mut dyn Tx, seq: i64, org: &str, space: &str, text: &str) -> Result<(), DbError> {
    let scopes = [scope(org, None), scope(org, Some(space))];
    let mut all = String::new();
    for word in words(text) {
        for scope in &scopes {
            // Writing to a text cannot fail.
            let _ = write!(all, "{scope}x{word} ");
        }
    }
    tx.execute(
        "INSERT INTO memory_words (rowid, words) VALUES (?1, ?2)",
        &[seq.into(), (&all).into()],
    )
    .map(drop)
}

/// The memory at place `seq` is not found any more.
pub fn remove(tx: &mut dyn Tx, seq: i64) -> Result<(), DbError> {
    tx.execute("DELETE FROM memory_words WHERE rowid = ?1", &[seq.into()])
        .map(drop)
}

/// Nothing is found any more.
pub fn clear(tx: &mut dyn Tx) -> Result<(), DbError> {
    let all = "INSERT INTO memory_words (memory_words) VALUES ('delete-all')";
    tx.execute(all, &[]).map(drop)
}

/// The statement that gives these columns of the memories that `?1`, a [`question`], finds, the
/// best match first.
pub fn search(columns: &str, limit: u32) -> String {
    format!(
        "SELECT {columns} FROM memory_words JOIN memories ON memories.seq = memory_words.rowid \
         WHERE memory_words MATCH ?1 ORDER BY memory_words.rank, memories.seq DESC LIMIT {limit}"
    )
}

/// What finds any of these words within any of these name spaces of a tenant; within all of
/// them if none is named.
pub fn question(org: &str, spaces: &[&str], words: &[String]) -> String {
    let scopes: Vec<String> = match spaces {
        [] => vec![scope(org, None)],
        spaces => {
            let scopes = spaces.iter().map(|space| scope(org, Some(space)));
            scopes.collect()
        }
    };
    let of = |word: &String| {
        let words = scopes
            .iter()
            .map(move |scope| format!("\"{scope}x{word}\""));
        words.collect::<Vec<_>>()
    };
    words.iter().flat_map(of).collect::<Vec<_>>().join(" OR ")
}

/// What stands in front of the words of a tenant, or of one of its name spaces.
fn scope(org: &str, space: Option<&str>) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(org.as_bytes());
    if let Some(space) = space {
        // No name has it in it.
        hasher.update(b"\0");
        hasher.update(space.as_bytes());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}
