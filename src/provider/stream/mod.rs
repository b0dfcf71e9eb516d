//! Turns the stream of any server into text and tool calls. The adapters `openai` and
//! `anthropic` know the fields of their API; what these fields come to is decided here, alike
//! for both: whose piece is whose (`calls`), which calls are one (`same`), what arguments are taken
//! (`arguments`), which ends are good ones (`end`), and how text is read that servers cut in the
//! middle of a character (`json`, `surrogates`). `replay` reads recordings, for tests and the fuzz
//! target.
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

pub(super) use calls::{Calls, Piece};
pub(super) use end::Ends;
pub(super) use json::{read, settle, settle_fields};
pub use replay::{Replayed, replay, replay_whole};
pub(super) use same::Phase;
pub(super) use surrogates::Live;

use super::answer::object;
use crate::kernel::message::{Block, Note};
use calls::Call;
use surrogates::joined;

/// Reads one JSON value in which no object gives a key twice.
pub fn strict(text: &str) -> Result<serde_json::Value, String> {
    let mut read = read(text).map_err(|error| error.to_string())?;
    if let Some(name) = read.twice {
        return Err(format!("the key {name:?} is given twice"));
    }
    settle(&mut read.value);
    Ok(read.value)
}

/// A text that has come whole, with its halves of characters joined.
pub(super) fn settled(text: &str) -> String {
    joined(text).into_owned()
}

impl Call {
    /// The call as the conversation has it, and why it is not carried out, if it is not.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block> {
        let call = Block::ToolCall {
            id: self.id.clone(),
            name: self.name.clone(),
            arguments: self.arguments.clone(),
        };
        let note = self.refused.as_ref().map(|reason| Block::Note {
            note: Note::Refused {
                tool_call_id: self.id.clone(),
                reason: reason.clone(),
            },
        });
        std::iter::once(call).chain(note)
    }

    /// The arguments as JSON text that the provider takes back.
    pub(super) fn sent_back(&self) -> String {
        match &self.written {
            Some(written) => written.clone(),
            None => object(&self.arguments).to_string(),
        }
    }
}

#[cfg(test)]
mod properties;
