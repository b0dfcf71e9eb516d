//! Transcript entries and requests for the provider tests.

use std::sync::Arc;

use serde_json::value::RawValue;
use uuid::Uuid;

use super::{ModelRequest, ToolSchema};
use crate::kernel::ids::MessageId;
use crate::kernel::session::blocks::Blocks;
use crate::kernel::session::message::{Block, Message, MessageKind, Origin, Role};
use crate::kernel::time::Timestamp;

fn message(seq: i64, role: Role, kind: MessageKind, content: Vec<Block>) -> Message {
    Message {
        id: MessageId(Uuid::nil()),
        seq,
        generation: 1,
        at: Timestamp(0),
        role,
        kind,
        origin: Origin::User,
        run: None,
        content: content.into(),
        tool_call: None,
        child_run: None,
        announce: None,
        silent: false,
        metadata: None,
    }
}

fn text(text: &str) -> Vec<Block> {
    vec![Block::Text {
        text: text.to_owned(),
    }]
}

pub(super) fn user(seq: i64, said: &str) -> Message {
    message(seq, Role::User, MessageKind::Text, text(said))
}

pub(super) fn announce(seq: i64, said: &str) -> Message {
    message(seq, Role::User, MessageKind::Announce, text(said))
}

pub(super) fn assistant(seq: i64, said: &str) -> Message {
    message(seq, Role::Assistant, MessageKind::Text, text(said))
}

pub(super) fn calls(seq: i64, blocks: Vec<Block>) -> Message {
    message(seq, Role::Assistant, MessageKind::ToolCall, blocks)
}

pub(super) fn result(seq: i64, call: &str, said: &str, is_error: bool) -> Message {
    let block = Block::ToolResult {
        tool_call_id: call.to_owned(),
        text: said.to_owned(),
        is_error,
    };
    let mut message = message(seq, Role::Tool, MessageKind::ToolResult, vec![block]);
    message.tool_call = Some(call.to_owned());
    message
}

/// The same request with messages as loaded from the database.
pub(super) fn stored(request: &ModelRequest) -> ModelRequest {
    let of_store = |message: &Arc<Message>| {
        let text = serde_json::to_string(&message.content.to_vec()).unwrap();
        Arc::new(Message {
            content: Blocks::stored(&text).unwrap(),
            ..Message::clone(message)
        })
    };
    ModelRequest {
        messages: request.messages.iter().map(of_store).collect(),
        ..request.clone()
    }
}

/// A request with the four read-only tools.
pub(super) fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        options: serde_json::Map::new(),
        model: "test".to_owned(),
        system: String::new(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: ["read", "list", "glob", "grep"]
            .iter()
            .map(|name| {
                Arc::new(ToolSchema {
                    name: (*name).to_owned(),
                    description: String::new(),
                    parameters: RawValue::NULL.to_owned(),
                })
            })
            .collect(),
        empty_answers: 0,
        thinking: None,
        temperature: None,
        max_tokens: None,
        limit: std::time::Duration::from_secs(10),
        window: 0,
        is_fallback: false,
    }
}
