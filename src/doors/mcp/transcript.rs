//! Transcripts as text for models, and as places to search in.

use std::fmt::Write;

use crate::kernel::session::message::Block;
use crate::kernel::text;
use crate::wire::shapes::Message;

/// Maximum length of the arguments of a tool call in a transcript, in characters.
const ARGUMENTS_CHARS: usize = 300;

/// The readable text of an entry; empty if it has none.
pub(super) fn text_of(message: &Message) -> String {
    let mut out = String::new();
    for block in &message.content {
        let piece = match block {
            Block::Text { text } => text.clone(),
            Block::ToolCall {
                name, arguments, ..
            } => {
                let arguments = arguments.to_string();
                format!(
                    "[calls {name} {}]",
                    text::preview(&arguments, ARGUMENTS_CHARS)
                )
            }
            Block::ToolResult { text, is_error, .. } => match is_error {
                true => format!("[the call failed] {text}"),
                false => text.clone(),
            },
            Block::Native { .. } | Block::Note { .. } => continue,
        };
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&piece);
    }
    out
}

/// Entries as Markdown, one section each.
pub(super) fn markdown(messages: &[Message]) -> String {
    let mut out = String::new();
    for message in messages {
        let text = text_of(message);
        if text.is_empty() {
            continue;
        }
        let (role, seq, at) = (&message.role, message.seq, message.at);
        // Writing to a string cannot fail.
        let _ = write!(out, "## {seq} {role} ({at})\n\n{text}\n\n");
    }
    out
}
