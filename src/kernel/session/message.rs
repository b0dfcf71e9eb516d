//! Entries of a transcript and their content blocks.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::blocks::Blocks;
use super::raw_metadata::RawMetadata;
use crate::kernel::ids::{AgentId, AnnounceId, MessageId, RunId};
use crate::kernel::run::Usage;
use crate::kernel::text::text_enum::text_enum;
use crate::kernel::time::Timestamp;

text_enum! {
    /// The speaker, as a model provider sees it.
    Role {
        /// The other side of the conversation.
        User = "user",
        /// The agent.
        Assistant = "assistant",
        /// The result of a tool call.
        Tool = "tool",
        /// The daemon.
        System = "system",
    }
}

text_enum! {
    /// The kind of a transcript entry.
    MessageKind {
        /// Plain text.
        Text = "text",
        /// A model answer that requests tool calls.
        ToolCall = "tool_call",
        /// The result of one tool call.
        ToolResult = "tool_result",
        /// How a run ended, announced to its requester.
        Announce = "announce",
        /// The daemon was restarted during a turn; shown to people, not to models.
        RestartNotice = "restart_notice",
        /// A summary that replaces the entries before it in the model's view.
        Compaction = "compaction",
        /// The request to a called agent, in the session of its caller.
        SubAgentUser = "sub_agent_user",
        /// The final answer of a called agent.
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

/// A content block of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase",
    try_from = "AnyBlock"
)]
pub enum Block {
    /// A piece of text.
    Text {
        /// The text itself.
        text: String,
    },
    /// A tool call that the model requests.
    ToolCall {
        /// The model's id for this call, unique in its run.
        id: String,
        /// Name of the tool.
        name: String,
        /// The arguments, as the model gave them. A string holds arguments that are not a JSON
        /// object; no tool is run with it.
        arguments: Value,
    },
    /// The result of a tool call.
    ToolResult {
        /// The id of the call that this answers.
        tool_call_id: String,
        /// The output of the tool.
        text: String,
        /// True if the tool reported a failure.
        is_error: bool,
    },
    /// A model's raw answer as its provider sent it, in addition to the blocks parsed from it. It
    /// is sent back unchanged, since some providers refuse thinking that was modified, and only to
    /// that provider.
    Native {
        /// Name of the provider.
        provider: String,
        /// Name of the API that it was requested with.
        api: String,
        /// The model that answered, as `provider/name`.
        model: String,
        /// The answer's JSON, as text.
        json: String,
    },
    /// A finding of the daemon about an answer, from when it was parsed. It is shown to neither
    /// models nor clients.
    Note {
        /// The finding.
        note: AnswerFinding,
    },
}

/// A finding about the answer that contains it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum AnswerFinding {
    /// A tool call of the answer is not carried out.
    Refused {
        /// The id of the refused call.
        tool_call_id: String,
        /// The reason, for the model.
        reason: String,
    },
    /// The provider paused its answer and continues it when the answer is sent back.
    Paused,
    /// The provider refused earlier answers in their raw form. It is sent all answers of the
    /// conversation as text and calls.
    Plain {
        /// Name of the provider.
        provider: String,
    },
    /// The provider refused answers as text and calls, and accepted those since the last
    /// [`Note::Plain`] in their raw form. It is sent them in raw form.
    Own {
        /// Name of the provider.
        provider: String,
    },
}

/// All fields that a block of any type may have, parsed in one pass. A tagged enum would first
/// buffer everything to find its tag, and transcripts are read more often than all else.
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
    note: Option<AnswerFinding>,
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
                text: any.text.ok_or("a text block without text")?,
            },
            BlockType::ToolCall => Block::ToolCall {
                id: any.id.ok_or("a tool call without its id")?,
                name: any.name.ok_or("a tool call without a name")?,
                arguments: any.arguments.unwrap_or_default(),
            },
            BlockType::ToolResult => Block::ToolResult {
                tool_call_id: any.tool_call_id.ok_or("a tool result without its call")?,
                text: any.text.ok_or("a tool result without its text")?,
                is_error: any.is_error.ok_or("a tool result without isError")?,
            },
            BlockType::Native => Block::Native {
                provider: any.provider.ok_or("a native answer without its provider")?,
                api: any.api.ok_or("a native answer without its API")?,
                model: any.model.ok_or("a native answer without its model")?,
                json: any.json.ok_or("a native answer without its JSON")?,
            },
            BlockType::Note => Block::Note {
                note: any.note.ok_or("a note without its content")?,
            },
        })
    }
}

/// One entry of a transcript.
#[derive(Clone, Debug, PartialEq)]
pub struct Message<Content = Blocks, Metadata = RawMetadata> {
    /// The unique id of the entry.
    pub id: MessageId,
    /// Its position in the session: 1, 2, 3 … without gaps.
    pub seq: i64,
    /// The session's generation when it was appended. A reset starts a new one, and models do not
    /// see the entries of earlier ones.
    pub generation: i64,
    /// When it was appended.
    pub at: Timestamp,
    /// The speaker.
    pub role: Role,
    /// The kind of the entry.
    pub kind: MessageKind,
    /// Where it comes from.
    pub origin: Origin,
    /// The run that appended it; for an announce, the run that ended.
    pub run: Option<RunId>,
    /// The content blocks.
    pub content: Content,
    /// For a tool result, the call that it answers; for the request and answer of a called agent,
    /// the call that it carries out.
    pub tool_call: Option<String>,
    /// The run of the called agent that the entry belongs to; only that agent's model sees it.
    pub child_run: Option<RunId>,
    /// For an announce, its id.
    pub announce: Option<AnnounceId>,
    /// The answer was `NO_REPLY`: it is stored but not delivered.
    pub silent: bool,
    /// Further JSON metadata of the entry.
    pub metadata: Option<Metadata>,
}

impl Message {
    /// True for input that the agent must answer: content from a person, a bot, a caller or another
    /// session, or the announce of a run's end.
    pub fn is_input(&self) -> bool {
        matches!(self.kind, MessageKind::Announce | MessageKind::SubAgentUser)
            || (self.kind == MessageKind::Text && self.role == Role::User)
    }

    /// For a compaction entry, the entries that it replaces.
    pub fn compaction(&self) -> Option<Compacted> {
        let metadata = self.metadata.as_ref()?;
        match self.kind {
            MessageKind::Compaction => metadata.read(),
            _ => None,
        }
    }

    /// The tokens of the request that this entry answers plus those of the answer, as counted by
    /// the provider; `None` if it reported none.
    pub fn counted_tokens(&self) -> Option<u64> {
        let usage = self.metadata.as_ref()?.get("usage")?;
        let of = |name: &str| usage.get(name).and_then(Value::as_u64);
        let input = of("inputTokens").filter(|tokens| *tokens > 0)?;
        Some(input.saturating_add(of("outputTokens").unwrap_or(0)))
    }

    /// All its text blocks, joined by an empty line.
    pub fn text(&self) -> String {
        self.content.text()
    }
}

/// The entries that a [`MessageKind::Compaction`] entry replaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compacted {
    /// Seq of the last replaced entry; all entries up to it are replaced.
    pub up_to: i64,
    /// Seqs of entries that are exempt and still shown to the model.
    #[serde(default)]
    pub keep: Vec<i64>,
    /// Runs requested by the session that were open then; the summary may not mention them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<OpenRun>,
}

/// A run that was open when its requester's transcript was compacted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRun {
    /// The id of the run.
    pub run: RunId,
    /// The agent that carries it out.
    pub agent: AgentId,
    /// Its label or, without one, the beginning of its task.
    pub about: String,
}

/// A message without a position; the store assigns one.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMessage {
    /// The unique id of the entry.
    pub id: MessageId,
    /// The speaker.
    pub role: Role,
    /// The kind of the entry.
    pub kind: MessageKind,
    /// Where it comes from.
    pub origin: Origin,
    /// The run that appends it.
    pub run: Option<RunId>,
    /// The content blocks.
    pub content: Vec<Block>,
    /// For a tool result, the call that it answers; for the request and answer of a called agent,
    /// the call that it carries out.
    pub tool_call: Option<String>,
    /// The run of the called agent that the entry belongs to.
    pub child_run: Option<RunId>,
    /// For an announce, its id.
    pub announce: Option<AnnounceId>,
    /// The answer was `NO_REPLY`.
    pub silent: bool,
    /// Further JSON metadata of the entry.
    pub metadata: Option<Value>,
}

impl NewMessage {
    /// A message with one block and no run.
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

    /// A text message from a person or a bot.
    pub fn user(id: MessageId, text: &str) -> Self {
        let text = crate::kernel::text::storable(text);
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
    /// A model's answer; its kind follows from whether it requests tool calls.
    pub fn answer(id: MessageId, run: RunId, blocks: Vec<Block>) -> Self {
        let calls = blocks
            .iter()
            .any(|block| matches!(block, Block::ToolCall { .. }));
        let content = blocks
            .into_iter()
            .map(|block| match block {
                Block::Text { text } => Block::Text {
                    text: crate::kernel::text::storable(&text),
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

    /// The same with the tokens that the provider counted, if it reported any.
    pub fn counted(mut self, usage: &Usage) -> Self {
        if usage.input_tokens > 0 {
            self.metadata = Some(serde_json::json!({ "usage": {
                "inputTokens": usage.input_tokens,
                "outputTokens": usage.output_tokens,
            }}));
        }
        self
    }

    /// The same with `value` under `name` in its metadata.
    pub fn with_metadata(mut self, name: &str, value: Value) -> Self {
        let mut metadata = self
            .metadata
            .take()
            .unwrap_or_else(|| serde_json::json!({}));
        metadata[name] = value;
        self.metadata = Some(metadata);
        self
    }

    /// The summary that replaces the entries in `compacted`.
    pub fn compaction(id: MessageId, run: RunId, text: &str, compacted: &Compacted) -> Self {
        let text = crate::kernel::text::storable(text);
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

    /// The result of the tool call `call`.
    pub fn tool_result(id: MessageId, run: RunId, call: &str, text: &str, is_error: bool) -> Self {
        let block = Block::ToolResult {
            tool_call_id: call.to_owned(),
            text: crate::kernel::text::storable(text),
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

    /// The stored message, at its position in a generation of its session.
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
            metadata: self.metadata.as_ref().and_then(RawMetadata::of),
        }
    }
}

/// The text blocks of a list, joined by an empty line.
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
                note: AnswerFinding::Refused {
                    tool_call_id: "1".to_owned(),
                    reason: "because".to_owned(),
                },
            },
            Block::Note {
                note: AnswerFinding::Paused,
            },
            Block::Note {
                note: AnswerFinding::Plain {
                    provider: "p".to_owned(),
                },
            },
            Block::Note {
                note: AnswerFinding::Own {
                    provider: "p".to_owned(),
                },
            },
        ];
        let text = serde_json::to_string(&blocks).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Block>>(&text).unwrap(), blocks);
    }
}
