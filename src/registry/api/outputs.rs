//! Tool results in parts: results that were too long to be shown whole, and all others.

use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::session::message::{Block, Message};
use crate::kernel::text;
use crate::registry::{Principal, Registry};
use crate::store::tables::{messages, outputs, runs, steps};
use crate::store::tx::{DbError, Tx};

/// A part of a tool result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPart {
    /// Byte offset of the part.
    pub offset: u64,
    /// The text of the part.
    pub text: String,
    /// Byte offset of the next part; `None` if this is the last.
    pub next: Option<u64>,
    /// Length of the original result in bytes.
    pub bytes: u64,
    /// Number of bytes that are kept of it.
    pub kept: u64,
}

impl Registry {
    /// Up to `most` bytes of the result of a run's tool call, from byte `offset` on.
    pub async fn output(
        &self,
        who: &Principal,
        run: RunId,
        tool_call: &str,
        offset: u64,
        most: usize,
    ) -> Result<OutputPart, Fault> {
        let call = tool_call.to_owned();
        let org = who.org.clone();
        let read = self.inner.store.read(move |tx| {
            match runs::get(tx, run)?.filter(|run| run.org == org) {
                Some(found) => part(tx, found.session, Some(run), &call, offset, most).map(Some),
                None => Ok(None),
            }
        });
        let found = read.await?.ok_or_else(|| Fault::not_found("run", run))?;
        found.ok_or_else(|| missing(tool_call))
    }

    /// The same for tools of the session itself, for a call of any of its runs.
    pub(crate) fn output_in(
        &self,
        session: SessionId,
        tool_call: &str,
        offset: u64,
        most: usize,
    ) -> Result<OutputPart, Fault> {
        let store = &self.inner.store;
        let found = store.read_now(|tx| part(tx, session, None, tool_call, offset, most))?;
        found.ok_or_else(|| missing(tool_call))
    }
}

fn missing(tool_call: &str) -> Fault {
    Fault::not_found("result of the call", tool_call)
        .hint("use the toolCallId of a call in this run; results are deleted with their runs")
}

fn part(
    tx: &mut dyn Tx,
    session: SessionId,
    run: Option<RunId>,
    tool_call: &str,
    offset: u64,
    most: usize,
) -> Result<Option<OutputPart>, DbError> {
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    if let Some(output) = outputs::of_call(tx, session, run, tool_call)? {
        let (at, text) = outputs::text(tx, &output, from, most)?;
        let kept = u64::try_from(output.kept).unwrap_or(0);
        let bytes = u64::try_from(output.bytes).unwrap_or(0);
        return Ok(Some(of(at, text, kept, bytes)));
    }
    // A result that was shown whole is in the transcript.
    let seq = match run {
        Some(run) => steps::result_of(tx, run, tool_call)?,
        None => None,
    };
    let entries = match seq {
        Some(seq) => messages::after(tx, session, seq - 1, 1, true)?,
        None => Vec::new(),
    };
    let blocks = entries
        .into_iter()
        .flat_map(|message: Message| message.content.into_vec());
    let mut texts = blocks.filter_map(|block| match block {
        Block::ToolResult { text, .. } => Some(text),
        _ => None,
    });
    Ok(texts.next().map(|whole| {
        let mut at = from.min(whole.len());
        while !whole.is_char_boundary(at) {
            at += 1;
        }
        let bytes = whole.len() as u64;
        let text = text::prefix(&whole[at..], most).to_owned();
        of(at, text, bytes, bytes)
    }))
}

fn of(at: usize, text: String, kept: u64, bytes: u64) -> OutputPart {
    let offset = at as u64;
    let end = offset + text.len() as u64;
    OutputPart {
        offset,
        text,
        next: (end < kept).then_some(end),
        bytes,
        kept,
    }
}
