//! The tables of long tool results, which did not fit into the transcript, in parts.

use super::columns::to_int;
use super::table::{self, read, table};
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::text;
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Tx, all, first, sql};

/// Maximum number of bytes kept of one result.
pub const KEPT: usize = 10 * 1024 * 1024;
/// Maximum size of one part in bytes.
const PART: usize = 16 * 1024;

/// A long result, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The run that made the tool call.
    pub run: RunId,
    /// Seq of the step of the call.
    pub step: u32,
    /// The run's session.
    pub session: SessionId,
    /// The model's id of the call.
    pub tool_call: String,
    /// Full length of the result in bytes.
    pub bytes: i64,
    /// Number of bytes that are kept.
    pub kept: i64,
    /// When it was stored.
    pub at: Timestamp,
}

table! {
    outputs: Output;
    key { run(run_id), step }
    insert { session(session_id), tool_call, bytes, kept, at(kept_at) }
    // The excerpt in the transcript remains.
    undecodable Moved { "kept_at" => "kept_at = 0" }
}

/// A part of a long result.
struct Part {
    /// Its offset in bytes.
    place: i64,
    body: String,
}

/// The table of the parts.
pub(crate) mod parts {
    use super::Part;
    use crate::kernel::ids::RunId;
    use crate::store::tables::table::{self, table};

    table! {
        output_parts: Part;
        key { place } of { run_id: RunId, step: u32 }
        insert { body }
        primary { run_id, step, place }
        undecodable Moved { "body" => "body = '[damaged]'" }
    }
}

/// The result is stored; one from an earlier attempt of its step is replaced.
pub fn put(tx: &mut dyn Tx, output: &Output, body: &str) -> Result<(), DbError> {
    for table in ["output_parts", "outputs"] {
        tx.execute(
            &format!("DELETE FROM {table} WHERE run_id = ?1 AND step = ?2"),
            &[(&output.run).into(), output.step.into()],
        )?;
    }
    table::insert(tx, output, [])?;
    let mut place = 0;
    while place < body.len() {
        let part = text::prefix(&body[place..], PART);
        tx.execute(
            "INSERT INTO output_parts (run_id, step, place, body) VALUES (?1, ?2, ?3, ?4)",
            &[
                (&output.run).into(),
                output.step.into(),
                to_int(place as u64).into(),
                part.into(),
            ],
        )?;
        place += part.len();
    }
    Ok(())
}

/// The newest long result for this tool call id, in this run or in any run of the session.
pub fn of_call(
    tx: &mut dyn Tx,
    session: SessionId,
    run: Option<RunId>,
    tool_call: &str,
) -> Result<Option<Output>, DbError> {
    let found: Vec<Output> = all(
        tx,
        sql!(
            "SELECT {COLUMNS} FROM outputs WHERE session_id = ?1 AND tool_call = ?2 \
             ORDER BY kept_at DESC LIMIT 20"
        ),
        &[(&session).into(), tool_call.into()],
        read,
    )?;
    let mut found = found.into_iter();
    Ok(found.find(|output| run.is_none_or(|run| output.run == run)))
}

/// At most `most` bytes of the kept text from byte `from` on, cut at character boundaries, and
/// the offset at which it begins.
pub fn text(
    tx: &mut dyn Tx,
    output: &Output,
    from: usize,
    most: usize,
) -> Result<(usize, String), DbError> {
    let first_place = first(
        tx,
        sql!(
            "SELECT {} FROM output_parts WHERE run_id = ?1 AND step = ?2 \
             AND place <= ?3 ORDER BY place DESC LIMIT 1",
            parts::COLUMNS
        ),
        &[
            (&output.run).into(),
            output.step.into(),
            to_int(from as u64).into(),
        ],
        read::<Part>,
    )?
    .map_or(0, |part| part.place);
    let parts = all(
        tx,
        &format!(
            "SELECT {} FROM output_parts WHERE run_id = ?1 AND step = ?2 \
             AND place >= ?3 ORDER BY place LIMIT {}",
            parts::COLUMNS,
            most / PART * 2 + 3
        ),
        &[(&output.run).into(), output.step.into(), first_place.into()],
        read::<Part>,
    )?;
    let start = usize::try_from(first_place).unwrap_or(0);
    let joined: String = parts.into_iter().map(|part| part.body).collect();
    let mut begin = from.saturating_sub(start).min(joined.len());
    while !joined.is_char_boundary(begin) {
        begin += 1;
    }
    let shown = text::prefix(&joined[begin..], most).to_owned();
    Ok((start + begin, shown))
}

/// At most `limit` parts of a run's results are deleted, and the results when no part is left;
/// returns the number of deleted parts.
pub fn remove_some(tx: &mut dyn Tx, run: RunId, limit: u32) -> Result<u64, DbError> {
    let gone = tx.execute(
        &format!(
            "DELETE FROM output_parts WHERE run_id = ?1 AND (step, place) IN \
             (SELECT step, place FROM output_parts WHERE run_id = ?1 ORDER BY step, place \
             LIMIT {limit})"
        ),
        &[(&run).into()],
    )?;
    if gone < u64::from(limit) {
        tx.execute("DELETE FROM outputs WHERE run_id = ?1", &[(&run).into()])?;
    }
    Ok(gone)
}
