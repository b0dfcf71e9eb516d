//! Parameters of a client's requests and notifications. Unknown fields are ignored, as the protocol
//! demands.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::kernel::secret::Secret;

/// Parameters of `initialize`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Initialize {
    pub(crate) protocol_version: u32,
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) client_capabilities: ClientCapabilities,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_info: Option<Value>,
}

/// What the client can do.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct ClientCapabilities {
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) fs: FileCapabilities,
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) terminal: bool,
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "ClientSessionCapabilities::is_empty"
    )]
    pub(crate) session: ClientSessionCapabilities,
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) elicitation: Option<Elicitation>,
    /// Unstable in the protocol.
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) subagents: Option<Map<String, Value>>,
}

/// How the client can ask its user.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Elicitation {
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) form: Option<Map<String, Value>>,
}

/// Files that the client reads and writes for the agent.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileCapabilities {
    #[serde(default)]
    pub(crate) read_text_file: bool,
    #[serde(default)]
    pub(crate) write_text_file: bool,
}

/// Updates that the client can show beyond the required ones.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct ClientSessionCapabilities {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) notices: Option<Value>,
}

impl ClientSessionCapabilities {
    fn is_empty(&self) -> bool {
        self.notices.is_none()
    }
}

/// A value of another shape counts as absent.
pub(super) fn lenient<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + for<'a> Deserialize<'a>,
{
    let value = Value::deserialize(from)?;
    Ok(T::deserialize(value).unwrap_or_default())
}

/// Parameters of `session/new`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewSession {
    pub(crate) cwd: String,
    #[serde(default)]
    pub(crate) mcp_servers: Option<Vec<McpServer>>,
}

/// Parameters of `session/load` and `session/resume`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OpenSession {
    pub(crate) session_id: String,
    pub(crate) cwd: String,
    #[serde(default)]
    pub(crate) mcp_servers: Option<Vec<McpServer>>,
}

/// An MCP server for one session. Debug output shows none of it but names.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct McpServer {
    /// `http` or `sse`; absent for a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) r#type: Option<String>,
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<HiddenText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) args: Option<Vec<HiddenText>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) env: Option<Vec<NamedText>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<HiddenText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) headers: Option<Vec<NamedText>>,
}

/// A variable or header.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct NamedText {
    pub(crate) name: String,
    pub(crate) value: HiddenText,
}

/// A text that debug output never shows.
#[derive(Debug)]
pub(crate) struct HiddenText(pub(crate) Secret);

impl<'de> Deserialize<'de> for HiddenText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(|text| HiddenText(Secret::new(text)))
    }
}

impl Serialize for HiddenText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0.expose())
    }
}

/// Parameters of `session/list`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ListSessions {
    #[serde(default)]
    pub(crate) cwd: Option<String>,
    #[serde(default)]
    pub(crate) cursor: Option<String>,
}

/// Parameters that name a session.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OfSession {
    pub(crate) session_id: String,
}

/// Parameters of `session/set_mode`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SetMode {
    pub(crate) session_id: String,
    pub(crate) mode_id: String,
}

/// Parameters of `session/set_config_option`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SetConfigOption {
    pub(crate) session_id: String,
    pub(crate) config_id: String,
    pub(crate) value: Value,
}

/// Parameters of `session/prompt`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Prompt {
    pub(crate) session_id: String,
    pub(crate) prompt: Vec<ContentBlock>,
}

/// A part of a prompt or of a message.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ContentBlock {
    Text { text: String },
    ResourceLink { name: String, uri: String },
    Resource { resource: EmbeddedResource },
    Image {},
    Audio {},
}

impl ContentBlock {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        ContentBlock::Text { text: text.into() }
    }
}

/// The content of a file that is included.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct EmbeddedResource {
    pub(crate) uri: String,
    /// Absent for binary content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

/// Parameters of `$/cancel_request`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CancelRequest {
    pub(crate) request_id: Value,
}

/// Result of `session/request_permission`.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct PermissionAnswer {
    pub(crate) outcome: PermissionOutcome,
}

/// What the user did.
#[derive(Debug, Deserialize, Serialize)]
#[serde(
    tag = "outcome",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub(crate) enum PermissionOutcome {
    Cancelled,
    Selected { option_id: String },
}

/// Parameters of `fs/read_text_file`, a request of the agent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadFile {
    pub(crate) session_id: String,
    /// Absolute path.
    pub(crate) path: String,
    /// First line, counted from 1.
    #[serde(default)]
    pub(crate) line: Option<u32>,
    /// Number of lines.
    #[serde(default)]
    pub(crate) limit: Option<u32>,
}

/// Parameters of `fs/write_text_file`, a request of the agent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WriteFile {
    pub(crate) session_id: String,
    /// Absolute path.
    pub(crate) path: String,
    pub(crate) content: String,
}

/// Result of `elicitation/create`.
#[derive(Debug, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub(crate) enum FormAnswer {
    Accept {
        /// By name of the field.
        #[serde(default)]
        content: Option<Map<String, Value>>,
    },
    /// The user declined, or closed the form.
    #[serde(other)]
    NoAnswer,
}
