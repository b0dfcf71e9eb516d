//! The full-text index of memories. Only here is the SQL specific to SQLite (FTS5); another engine
//! would use its own full-text search. `memories` calls it with the seq of a row. Scopes separate
//! tenants and namespaces.

use std::fmt::Write;

use crate::kernel::memory::words;
use crate::store::tx::{DbError, Tx, execute};

/// True for the index table and its parts. Their content is rebuilt, never copied.
pub fn is_part(table: &str) -> bool {
    table.starts_with("memory_words")
}

/// The memory with this seq can be found by the words of `text`, within the tenant and within
/// the namespace.
pub fn add(tx: &mut dyn Tx, seq: i64, org: &str, space: &str, text: &str) -> Result<(), DbError> {
    let scopes = [scope(org, None), scope(org, Some(space))];
    let mut all = String::new();
    for word in words(text) {
        for scope in &scopes {
            // Writing to a String cannot fail.
            let _ = write!(all, "{scope}x{word} ");
        }
    }
    execute(
        tx,
        "INSERT INTO memory_words (rowid, words) VALUES (?1, ?2)",
        &[seq.into(), (&all).into()],
    )
}

/// The memory with this seq cannot be found any more.
pub fn remove(tx: &mut dyn Tx, seq: i64) -> Result<(), DbError> {
    execute(
        tx,
        "DELETE FROM memory_words WHERE rowid = ?1",
        &[seq.into()],
    )
}

/// The index is empty.
pub fn clear(tx: &mut dyn Tx) -> Result<(), DbError> {
    let all = "INSERT INTO memory_words (memory_words) VALUES ('delete-all')";
    execute(tx, all, &[])
}

/// The statement that returns these columns of the memories that match `?1`, a [`question`], best
/// match first.
pub fn search(columns: &str, limit: u32) -> String {
    format!(
        "SELECT {columns} FROM memory_words JOIN memories ON memories.seq = memory_words.rowid \
         WHERE memory_words MATCH ?1 ORDER BY memory_words.rank, memories.seq DESC LIMIT {limit}"
    )
}

/// The match expression for any of these words within any of these namespaces of a tenant, or
/// within all of them if none is given.
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

/// The prefix for words of a tenant, or of one of its namespaces.
fn scope(org: &str, space: Option<&str>) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(org.as_bytes());
    if let Some(space) = space {
        // No name contains this separator.
        hasher.update(b"\0");
        hasher.update(space.as_bytes());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}
