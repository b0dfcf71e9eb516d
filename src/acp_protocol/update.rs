//! Updates of a session, the content of `session/update`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RpcError;
use super::answer::ConfigOption;
use super::request::{ContentBlock, lenient};

/// An update of a session.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(
    tag = "sessionUpdate",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[expect(
    clippy::enum_variant_names,
    reason = "the words of the protocol, which serde writes"
)]
pub(crate) enum Update {
    UserMessageChunk(Chunk),
    AgentMessageChunk(Chunk),
    AgentThoughtChunk(Chunk),
    ToolCall(ToolCall),
    ToolCallUpdate(ToolCallUpdate),
    Plan {
        entries: Vec<PlanEntry>,
    },
    #[serde(skip_deserializing)]
    AvailableCommandsUpdate {
        available_commands: Vec<Command>,
    },
    #[serde(skip_deserializing)]
    CurrentModeUpdate {
        current_mode_id: String,
    },
    #[serde(skip_deserializing)]
    ConfigOptionUpdate {
        config_options: Vec<ConfigOption>,
    },
    #[serde(skip_deserializing)]
    SessionInfoUpdate {
        title: Option<String>,
        updated_at: Value,
    },
    #[serde(skip_deserializing)]
    UsageUpdate {
        /// Tokens in the context.
        used: u64,
        /// Size of the context in tokens.
        size: u64,
    },
    /// Only for editors that can show it.
    #[serde(skip_deserializing)]
    Notice {
        severity: Cow<'static, str>,
        title: String,
    },
    /// A session of a subagent, on that of its requester. Only for editors that show such sessions;
    /// unstable in the protocol.
    #[serde(skip_deserializing)]
    SubagentUpdate {
        session_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        state: SubagentState,
    },
    /// An update that is not read.
    #[serde(other, skip_serializing)]
    Other,
}

/// What a subagent does now.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(
    tag = "state",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub(crate) enum SubagentState {
    Running {},
    Idle {
        /// `end_turn`, `cancelled` or `error`.
        stop_reason: &'static str,
        /// Why it has failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<RpcError>,
    },
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Chunk {
    pub(crate) content: ContentBlock,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message_id: Option<String>,
}

impl Chunk {
    pub(crate) fn new(message: impl ToString, text: impl Into<String>) -> Self {
        Chunk {
            content: ContentBlock::text(text),
            message_id: Some(message.to_string()),
        }
    }
}

/// A new tool call.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolCall {
    pub(crate) tool_call_id: String,
    pub(crate) title: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) name: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) kind: ToolKind,
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) status: ToolStatus,
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub(crate) content: Vec<ToolContent>,
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub(crate) locations: Vec<Location>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) raw_input: Option<Value>,
}

/// New values of a tool call; an absent one stays.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolCallUpdate {
    pub(crate) tool_call_id: String,
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) title: Option<String>,
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) kind: Option<ToolKind>,
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) status: Option<ToolStatus>,
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) content: Option<Vec<ToolContent>>,
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) locations: Option<Vec<Location>>,
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) raw_input: Option<Value>,
}

/// Category of a tool, which selects its icon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    /// The tools without a category, and those of categories that this program does not know.
    #[default]
    #[serde(other)]
    Other,
}

/// State of a tool call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolStatus {
    #[default]
    Pending,
    InProgress,
    Completed,
    Failed,
}

/// A part of what a tool call has produced.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub(crate) enum ToolContent {
    Content {
        content: ContentBlock,
    },
    Diff {
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        old_text: Option<String>,
        new_text: String,
    },
    /// Content that is not read, such as a terminal.
    #[serde(other, skip_serializing)]
    Other,
}

impl ToolContent {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        ToolContent::Content {
            content: ContentBlock::text(text),
        }
    }
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Location {
    /// Absolute path.
    pub(crate) path: String,
    /// Line, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u32>,
}

/// An entry of the agent's to-do list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct PlanEntry {
    pub(crate) content: String,
    /// `high`, `medium` or `low`.
    #[serde(default)]
    pub(crate) priority: Cow<'static, str>,
    /// `pending`, `in_progress` or `completed`.
    #[serde(default)]
    pub(crate) status: Cow<'static, str>,
}

/// A command that the user may type as `/name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Command {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) input: CommandInput,
}

/// What may follow the command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CommandInput {
    pub(crate) hint: String,
}
