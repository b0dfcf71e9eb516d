//! Entries of a transcript.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::blocks::Blocks;
use super::ids::{AgentId, AnnounceId, MessageId, RunId};
use super::noted::Noted;
use super::run::Usage;
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
        /// Stands for the entries before it, where a model is shown the transcript.
        Compaction = "compaction",
        /// What another agent was called for, in the session of its caller.
        SubAgentUser = "sub_agent_user",
        /// What that agent answered in the end.
        SubAgentAi = "sub_agent_ai",
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
        /// Its arguments, as the model gave them. A text stands for what is no JSON object:
        /// no tool is run with it.
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
    /// A model's answer as its provider gave it, beside what was read out of it. It goes back
    /// to that provider as it came, since some refuse thinking that was changed; nobody else
    /// is shown it.
    Native {
        /// The provider's name.
        provider: String,
        /// What it speaks.
        api: String,
        /// The model that answered, `provider/name`.
        model: String,
        /// The JSON, as text.
        json: String,
    },
    /// What the daemon found out about an answer when it read it. Neither models nor clients
    /// are shown it.
    Note {
        /// What.
        note: Note,
    },
}

/// A finding about the answer that holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum Note {
    /// A tool call of the answer is not carried out.
    Refused {
        /// Which.
        tool_call_id: String,
        /// Why, for the model.
        reason: String,
    },
    /// The provider has paused: it goes on with the answer when it gets it back.
    Paused,
    /// The provider refused earlier answers in the form in which it gave them. It gets all
    /// answers of the conversation as text and calls.
    Plain {
        /// The provider's name.
        provider: String,
    },
    /// The provider refused answers as text and calls, and took those since the last
    /// [`Note::Plain`] in the form in which it gave them. It gets them so.
    Own {
        /// The provider's name.
        provider: String,
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
    provider: Option<String>,
    api: Option<String>,
    model: Option<String>,
    json: Option<String>,
    note: Option<Note>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum BlockType {
    Text,
    ToolCall,
    ToolResult,
    Native,
    Note,
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
            BlockType::Native => Block::Native {
                provider: any
                    .provider
                    .ok_or("an answer as it came without its provider")?,
                api: any.api.ok_or("an answer as it came without its API")?,
                model: any.model.ok_or("an answer as it came without its model")?,
                json: any.json.ok_or("an answer as it came without what came")?,
            },
            BlockType::Note => Block::Note {
                note: any.note.ok_or("a note without its content")?,
            },
        })
    }
}

/// One entry of a transcript.
#[derive(Clone, Debug, PartialEq)]
pub struct Message<Content = Blocks, Metadata = Noted> {
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
    pub content: Content,
    /// For a tool result, the call that it answers; of a called agent's two sides, the call that
    /// it carries out.
    pub tool_call: Option<String>,
    /// The run of the called agent that the entry belongs to; nobody else's model is shown it.
    pub child_run: Option<RunId>,
    /// For an announce, its id.
    pub announce: Option<AnnounceId>,
    /// The answer was `NO_REPLY`: stored, and nobody is told.
    pub silent: bool,
    /// Anything else that belongs to this entry.
    pub metadata: Option<Metadata>,
}

impl Message {
    /// Is it something that the agent is to answer: what a person, a bot, a caller or another
    /// session said, or how a run ended?
    pub fn is_input(&self) -> bool {
        matches!(self.kind, MessageKind::Announce | MessageKind::SubAgentUser)
            || (self.kind == MessageKind::Text && self.role == Role::User)
    }

    /// For an entry that stands for others, which.
    pub fn compaction(&self) -> Option<Compacted> {
        let metadata = self.metadata.as_ref()?;
        match self.kind {
            MessageKind::Compaction => metadata.read(),
            _ => None,
        }
    }

    /// The tokens of the request that this entry answers, and its own, as its provider has
    /// counted them.
    pub fn counted_tokens(&self) -> Option<u64> {
        let usage = self.metadata.as_ref()?.get("usage")?;
        let of = |name: &str| usage.get(name).and_then(Value::as_u64);
        let input = of("inputTokens").filter(|tokens| *tokens > 0)?;
        Some(input.saturating_add(of("outputTokens").unwrap_or(0)))
    }

    /// Its text, paragraphs parted by an empty line.
    pub fn text(&self) -> String {
        self.content.text()
    }
}

/// What an entry of kind [`MessageKind::Compaction`] stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compacted {
    /// All entries up to this one.
    pub up_to: i64,
    /// But for these, which the model is shown as they are.
    #[serde(default)]
    pub keep: Vec<i64>,
    /// Runs that the session had asked for and that were open then: of those the summary may say
    /// nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<OpenRun>,
}

/// A run that was open when its requester's transcript was shortened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRun {
    /// Which.
    pub run: RunId,
    /// Who carries it out.
    pub agent: AgentId,
    /// Its name, or else the beginning of its task.
    pub about: String,
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
    /// For a tool result, the call that it answers; of a called agent's two sides, the call that
    /// it carries out.
    pub tool_call: Option<String>,
    /// The run of the called agent that the entry belongs to.
    pub child_run: Option<RunId>,
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
            child_run: None,
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
            child_run: None,
            announce: None,
            silent: false,
            metadata: None,
        }
    }

    /// The same with the tokens that its provider has counted, if it has.
    pub fn counted(mut self, usage: &Usage) -> Self {
        if usage.input_tokens > 0 {
            self.metadata = Some(serde_json::json!({ "usage": {
                "inputTokens": usage.input_tokens,
                "outputTokens": usage.output_tokens,
            }}));
        }
        self
    }

    /// The same with this below `name` of its metadata.
    pub fn noted(mut self, name: &str, value: Value) -> Self {
        let mut metadata = self
            .metadata
            .take()
            .unwrap_or_else(|| serde_json::json!({}));
        metadata[name] = value;
        self.metadata = Some(metadata);
        self
    }

    /// What stands for the entries that `compacted` names.
    pub fn compaction(id: MessageId, run: RunId, text: &str, compacted: &Compacted) -> Self {
        let text = super::text::storable(text);
        NewMessage {
            run: Some(run),
            metadata: serde_json::to_value(compacted).ok(),
            ..NewMessage::new(
                id,
                Role::User,
                MessageKind::Compaction,
                Origin::Internal,
                Block::Text { text },
            )
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
            content: self.content.into(),
            tool_call: self.tool_call,
            child_run: self.child_run,
            announce: self.announce,
            silent: self.silent,
            metadata: self.metadata.as_ref().and_then(Noted::of),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_piece_is_read_as_it_was_written() {
        let blocks = vec![
            Block::Text {
                text: "a".to_owned(),
            },
            Block::ToolCall {
                id: "1".to_owned(),
                name: "read".to_owned(),
                arguments: serde_json::json!({ "path": "x" }),
            },
            Block::ToolResult {
                tool_call_id: "1".to_owned(),
                text: "b".to_owned(),
                is_error: true,
            },
            Block::Native {
                provider: "p".to_owned(),
                api: "openai".to_owned(),
                model: "p/m".to_owned(),
                json: r#"{"n": 1.0}"#.to_owned(),
            },
            Block::Note {
                note: Note::Refused {
                    tool_call_id: "1".to_owned(),
                    reason: "because".to_owned(),
                },
            },
            Block::Note { note: Note::Paused },
            Block::Note {
                note: Note::Plain {
                    provider: "p".to_owned(),
                },
            },
            Block::Note {
                note: Note::Own {
                    provider: "p".to_owned(),
                },
            },
        ];
        let text = serde_json::to_string(&blocks).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Block>>(&text).unwrap(), blocks);
    }
}
