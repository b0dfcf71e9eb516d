//! The tables of long tool results, which did not fit into the transcript, in parts.

use super::columns::{at, count, time, to_int, uuid, whole};
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::text;
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Row, Tx, all, first, insert_row};

/// Maximum number of bytes kept of one result.
pub const KEPT: usize = 10 * 1024 * 1024;
/// Maximum size of one part in bytes.
const PART: usize = 16 * 1024;

/// The columns that [`read`] decodes.
pub const COLUMNS: &str = "run_id, step, session_id, tool_call, bytes, kept, kept_at";
/// The columns of a part that [`decode_part`] reads, in its order, and the key.
pub const PART_COLUMNS: &str = "place, body, run_id, step";

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

fn read(row: &dyn Row) -> Result<Output, DbError> {
    whole(
        row,
        "outputs",
        &[("run_id", at!(run_id)), ("step", at!(step))],
        decode,
    )
}

/// Decodes a long result from [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Output, DbError> {
    Ok(Output {
        run: RunId(uuid(row, at!(run_id))?),
        step: count(row, at!(step))?,
        session: SessionId(uuid(row, at!(session_id))?),
        tool_call: row.text(at!(tool_call))?.to_owned(),
        bytes: row.int(at!(bytes))?,
        kept: row.int(at!(kept))?,
        at: time(row, at!(kept_at))?,
    })
}

/// Decodes a part from [`PART_COLUMNS`]: its byte offset and its text.
pub fn decode_part(row: &dyn Row) -> Result<(i64, String), DbError> {
    Ok((row.int(0)?, row.text(1)?.to_owned()))
}

/// The result is stored; one from an earlier attempt of its step is replaced.
pub fn put(tx: &mut dyn Tx, output: &Output, body: &str) -> Result<(), DbError> {
    for table in ["output_parts", "outputs"] {
        tx.execute(
            &format!("DELETE FROM {table} WHERE run_id = ?1 AND step = ?2"),
            &[(&output.run.0).into(), output.step.into()],
        )?;
    }
    insert_row(
        tx,
        "outputs",
        &[
            ("run_id", (&output.run.0).into()),
            ("step", output.step.into()),
            ("session_id", (&output.session.0).into()),
            ("tool_call", (&output.tool_call).into()),
            ("bytes", output.bytes.into()),
            ("kept", output.kept.into()),
            ("kept_at", output.at.0.into()),
        ],
    )?;
    let mut place = 0;
    while place < body.len() {
        let part = text::prefix(&body[place..], PART);
        insert_row(
            tx,
            "output_parts",
            &[
                ("run_id", (&output.run.0).into()),
                ("step", output.step.into()),
                ("place", to_int(place as u64).into()),
                ("body", part.into()),
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
    let found = all(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM outputs WHERE session_id = ?1 AND tool_call = ?2 \
             ORDER BY kept_at DESC LIMIT 20"
        ),
        &[(&session.0).into(), tool_call.into()],
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
        "SELECT place, body, run_id, step FROM output_parts WHERE run_id = ?1 AND step = ?2 \
         AND place <= ?3 ORDER BY place DESC LIMIT 1",
        &[
            (&output.run.0).into(),
            output.step.into(),
            to_int(from as u64).into(),
        ],
        part,
    )?
    .map_or(0, |(place, _)| place);
    let parts = all(
        tx,
        &format!(
            "SELECT {PART_COLUMNS} FROM output_parts WHERE run_id = ?1 AND step = ?2 \
             AND place >= ?3 ORDER BY place LIMIT {}",
            most / PART * 2 + 3
        ),
        &[
            (&output.run.0).into(),
            output.step.into(),
            first_place.into(),
        ],
        part,
    )?;
    let start = usize::try_from(first_place).unwrap_or(0);
    let joined: String = parts.into_iter().map(|(_, body)| body).collect();
    let mut begin = from.saturating_sub(start).min(joined.len());
    while !joined.is_char_boundary(begin) {
        begin += 1;
    }
    let shown = text::prefix(&joined[begin..], most).to_owned();
    Ok((start + begin, shown))
}

fn part(row: &dyn Row) -> Result<(i64, String), DbError> {
    let key = [("run_id", 2), ("step", 3), ("place", 0)];
    whole(row, "output_parts", &key, decode_part)
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
        &[(&run.0).into()],
    )?;
    if gone < u64::from(limit) {
        tx.execute("DELETE FROM outputs WHERE run_id = ?1", &[(&run.0).into()])?;
    }
    Ok(gone)
}
