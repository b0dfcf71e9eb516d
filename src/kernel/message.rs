//! Entries of a transcript.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ids::{AnnounceId, MessageId, RunId};
use super::text_enum::text_enum;
use super::time::Timestamp;

text_enum! {
    /// Who speaks, as a model provider sees it.
    Role {
        /// The other side of the conversation.
        User = "user",
        /// The agent.
        Assistant = "assistant",
        /// The outcome of a tool call.
        Tool = "tool",
        /// The daemon.
        System = "system",
    }
}

text_enum! {
    /// What an entry is.
    MessageKind {
        /// Plain text.
        Text = "text",
        /// An answer of the model that calls tools.
        ToolCall = "tool_call",
        /// The outcome of one tool call.
        ToolResult = "tool_result",
        /// How a run ended, told to its requester.
        Announce = "announce",
        /// The daemon was restarted while a turn was going on; for people only.
        RestartNotice = "restart_notice",
    }
}

text_enum! {
    /// Where an entry comes from.
    Origin {
        /// A person or a bot.
        User = "user",
        /// The session's agent.
        Agent = "agent",
        /// Another session.
        Session = "session",
        /// The daemon itself.
        Internal = "internal",
    }
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase",
    try_from = "AnyBlock"
)]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// The model asks for a tool.
    ToolCall {
        /// The model's name for this call, unique in its run.
        id: String,
        /// Which tool.
        name: String,
        /// Its arguments, as the model gave them.
        arguments: Value,
    },
    /// What a tool answered.
    ToolResult {
        /// The call that this answers.
        tool_call_id: String,
        /// What came out.
        text: String,
        /// The tool says that it failed.
        is_error: bool,
    },
}

/// What a piece may hold, of whatever type: read in one pass. A tagged enum would be read into
/// a copy of everything first, to know its tag, and transcripts are read more than all else.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnyBlock {
    r#type: BlockType,
    text: Option<String>,
    id: Option<String>,
    name: Option<String>,
    arguments: Option<Value>,
    tool_call_id: Option<String>,
    is_error: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum BlockType {
    Text,
    ToolCall,
    ToolResult,
}

impl TryFrom<AnyBlock> for Block {
    type Error = &'static str;

    fn try_from(any: AnyBlock) -> Result<Self, Self::Error> {
        Ok(match any.r#type {
            BlockType::Text => Block::Text {
                text: any.text.ok_or("a text without its text")?,
            },
            BlockType::ToolCall => Block::ToolCall {
                id: any.id.ok_or("a tool call without its id")?,
                name: any.name.ok_or("a tool call without a name")?,
                arguments: any.arguments.unwrap_or_default(),
            },
            BlockType::ToolResult => Block::ToolResult {
                tool_call_id: any.tool_call_id.ok_or("a tool result without its call")?,
                text: any.text.ok_or("a tool result without its text")?,
                is_error: any
                    .is_error
                    .ok_or("a tool result that says not if it failed")?,
            },
        })
    }
}

/// One entry of a transcript.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// Its place in the session: 1, 2, 3 … without gaps.
    pub seq: i64,
    /// The session's generation when it was appended: a reset begins a new one, and no model
    /// sees the ones before.
    pub generation: i64,
    /// When it was appended.
    pub at: Timestamp,
    /// Who speaks.
    pub role: Role,
    /// What it is.
    pub kind: MessageKind,
    /// Where it comes from.
    pub origin: Origin,
    /// The run that appended it; for an announce, the run that ended.
    pub run: Option<RunId>,
    /// What it says.
    pub content: Vec<Block>,
    /// For a tool result, the call that it answers.
    pub tool_call: Option<String>,
    /// For an announce, its id.
    pub announce: Option<AnnounceId>,
    /// The answer was `NO_REPLY`: stored, and nobody is told.
    pub silent: bool,
    /// Anything else that belongs to this entry.
    pub metadata: Option<Value>,
}

impl Message {
    /// Is it something that the agent is to answer: what a person, a bot or another session
    /// said, or how a run ended?
    pub fn is_input(&self) -> bool {
        self.kind == MessageKind::Announce
            || (self.kind == MessageKind::Text && self.role == Role::User)
    }

    /// Its text, paragraphs parted by an empty line.
    pub fn text(&self) -> String {
        plain_text(&self.content)
    }
}

/// A message that has no place yet; the store gives it one.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMessage {
    /// Its id.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// What it is.
    pub kind: MessageKind,
    /// Where it comes from.
    pub origin: Origin,
    /// The run that appends it.
    pub run: Option<RunId>,
    /// What it says.
    pub content: Vec<Block>,
    /// For a tool result, the call that it answers.
    pub tool_call: Option<String>,
    /// For an announce, its id.
    pub announce: Option<AnnounceId>,
    /// The answer was `NO_REPLY`.
    pub silent: bool,
    /// Anything else that belongs to this entry.
    pub metadata: Option<Value>,
}

impl NewMessage {
    /// A plain message with one block.
    pub fn new(id: MessageId, role: Role, kind: MessageKind, origin: Origin, block: Block) -> Self {
        NewMessage {
            id,
            role,
            kind,
            origin,
            run: None,
            content: vec![block],
            tool_call: None,
            announce: None,
            silent: false,
            metadata: None,
        }
    }

    /// What a person or a bot says.
    pub fn user(id: MessageId, text: &str) -> Self {
        let text = super::text::storable(text);
        Self::new(
            id,
            Role::User,
            MessageKind::Text,
            Origin::User,
            Block::Text { text },
        )
    }
}

impl NewMessage {
    /// What a model answers.
    pub fn answer(id: MessageId, run: RunId, blocks: Vec<Block>) -> Self {
        let calls = blocks
            .iter()
            .any(|block| matches!(block, Block::ToolCall { .. }));
        let content = blocks
            .into_iter()
            .map(|block| match block {
                Block::Text { text } => Block::Text {
                    text: super::text::storable(&text),
                },
                other => other,
            })
            .collect();
        NewMessage {
            id,
            role: Role::Assistant,
            kind: if calls {
                MessageKind::ToolCall
            } else {
                MessageKind::Text
            },
            origin: Origin::Agent,
            run: Some(run),
            content,
            tool_call: None,
            announce: None,
            silent: false,
            metadata: None,
        }
    }

    /// What a tool answers to `call`.
    pub fn tool_result(id: MessageId, run: RunId, call: &str, text: &str, is_error: bool) -> Self {
        let block = Block::ToolResult {
            tool_call_id: call.to_owned(),
            text: super::text::storable(text),
            is_error,
        };
        let mut message = NewMessage::new(
            id,
            Role::Tool,
            MessageKind::ToolResult,
            Origin::Internal,
            block,
        );
        message.run = Some(run);
        message.tool_call = Some(call.to_owned());
        message
    }

    /// This message at its place in a generation of its session.
    pub fn at(self, seq: i64, generation: i64, at: Timestamp) -> Message {
        Message {
            id: self.id,
            seq,
            generation,
            at,
            role: self.role,
            kind: self.kind,
            origin: self.origin,
            run: self.run,
            content: self.content,
            tool_call: self.tool_call,
            announce: self.announce,
            silent: self.silent,
            metadata: self.metadata,
        }
    }
}

/// The text of a list of blocks, paragraphs parted by an empty line.
pub fn plain_text(content: &[Block]) -> String {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|block| match block {
            Block::Text { text } if !text.is_empty() => Some(text.as_str()),
            _ => None,
        })
        .collect();
    texts.join("\n\n")
}
