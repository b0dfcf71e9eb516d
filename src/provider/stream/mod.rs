//! Turns the stream of any server into text and tool calls. The adapters `openai` and `anthropic`
//! know the fields of their API; this module interprets them, the same way for both: which piece
//! belongs to which call (`calls`), which calls are the same (`same`), which arguments are accepted
//! (`arguments`), which ends are good (`end`), and text that servers cut in the middle of a
//! character (`json`, `surrogates`). `replay` reads recordings, for tests and the fuzz target.
//!
//! ```text
//! bytes ─▶ http ─▶ openai | anthropic ─▶ stream: json ─▶ calls ─▶ arguments ─▶ same ─▶ answer
//!                                                └─▶ end
//! ```

mod arguments;
mod calls;
pub mod checks;
mod end;
mod json;
mod replay;
mod same;
mod surrogates;

pub(super) use calls::{CallPiece, Calls};
pub(super) use end::FinishReasons;
pub(super) use json::{read, settle, settle_fields};
pub use replay::{Replayed, replay, replay_whole};
pub(super) use same::FinishPhase;
pub(super) use surrogates::LiveText;

use super::answer::object;
use crate::kernel::session::message::{AnswerFinding, Block};
use calls::AssembledCall;
use surrogates::joined;

/// Parses one JSON value; fails if an object has a key twice.
pub fn strict(text: &str) -> Result<serde_json::Value, String> {
    let mut read = read(text).map_err(|error| error.to_string())?;
    if let Some(name) = read.duplicate_key {
        return Err(format!("the key {name:?} occurs twice"));
    }
    settle(&mut read.value);
    Ok(read.value)
}

/// A complete text with its surrogate marks joined.
pub(super) fn settled(text: &str) -> String {
    joined(text).into_owned()
}

impl AssembledCall {
    /// The call as a transcript block, followed by a note with the reason if it is refused.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block> {
        let call = Block::ToolCall {
            id: self.id.clone(),
            name: self.name.clone(),
            arguments: self.arguments.clone(),
        };
        let note = self.refused.as_ref().map(|reason| Block::Note {
            note: AnswerFinding::Refused {
                tool_call_id: self.id.clone(),
                reason: reason.clone(),
            },
        });
        std::iter::once(call).chain(note)
    }

    /// The arguments as JSON text that the provider accepts.
    pub(super) fn sent_back(&self) -> String {
        match &self.written {
            Some(written) => written.clone(),
            None => object(&self.arguments).to_string(),
        }
    }
}

#[cfg(test)]
mod properties;
