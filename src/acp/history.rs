//! Entries of a transcript as updates: for a replay, and for what is added while the editor is there.

use super::calls::Calls;
use super::children::call_id;
use crate::acp_protocol::update::{Chunk, ToolCall, ToolContent, ToolKind, ToolStatus, Update};
use crate::kernel::session::message::{Block, plain_text};
use crate::wire::shapes::Message;

/// The updates that show this entry. Text of an agent's answer is left to the caller, who knows what
/// was streamed of it.
pub(super) fn updates(message: &Message, calls: &mut Calls, notices: bool) -> Vec<Update> {
    // What a called agent does in its caller's session is content of the tool call.
    if message.child_run_id.is_some() {
        return Vec::new();
    }
    match (&*message.role, &*message.kind) {
        ("user", "text") => vec![Update::UserMessageChunk(Chunk::new(
            message.id,
            plain_text(&message.content),
        ))],
        ("assistant", _) => requests(message, calls),
        (_, "tool_result") => results(message, calls),
        (_, "announce") => vec![announce(message)],
        (_, "restart_notice") if notices => vec![Update::Notice {
            severity: "info".into(),
            title: plain_text(&message.content),
        }],
        _ => Vec::new(),
    }
}

/// The text of an agent's answer; `None` for another entry, or if it is not meant to be shown.
pub(super) fn answer(message: &Message) -> Option<String> {
    let is_answer = &*message.role == "assistant"
        && matches!(&*message.kind, "text" | "tool_call")
        && message.child_run_id.is_none();
    (is_answer && !message.silent).then(|| plain_text(&message.content))
}

/// Tokens of the context after an agent's answer, as its provider counted them.
pub(super) fn context_tokens(message: &Message) -> Option<u64> {
    let usage = message.metadata.as_ref()?.get("usage")?;
    let of = |name: &str| usage.get(name).and_then(serde_json::Value::as_u64);
    let input = of("inputTokens").filter(|tokens| *tokens > 0)?;
    Some(input.saturating_add(of("outputTokens").unwrap_or(0)))
}

fn requests(message: &Message, calls: &mut Calls) -> Vec<Update> {
    let Some(run) = message.run_id else {
        return Vec::new();
    };
    let blocks = message.content.iter();
    blocks
        .filter_map(|block| match block {
            Block::ToolCall {
                id,
                name,
                arguments,
            } => calls.requested(run, id, name, arguments),
            _ => None,
        })
        .collect()
}

fn results(message: &Message, calls: &mut Calls) -> Vec<Update> {
    let Some(run) = message.run_id else {
        return Vec::new();
    };
    let blocks = message.content.iter();
    blocks
        .filter_map(|block| match block {
            Block::ToolResult {
                tool_call_id,
                text,
                is_error,
            } => calls.result(run, tool_call_id, text, *is_error),
            _ => None,
        })
        .collect()
}

/// The result of a run that worked in the background, as a tool call of its own.
fn announce(message: &Message) -> Update {
    Update::ToolCall(ToolCall {
        tool_call_id: message.run_id.map(call_id).unwrap_or_default(),
        title: "Result of a subagent".to_owned(),
        name: "subagent".to_owned(),
        kind: ToolKind::Think,
        status: ToolStatus::Completed,
        content: vec![ToolContent::text(plain_text(&message.content))],
        locations: Vec::new(),
        raw_input: None,
    })
}
