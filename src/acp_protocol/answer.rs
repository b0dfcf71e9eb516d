//! Results of a client's requests, and the request for a permission.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::VERSION;
use super::request::lenient;
use super::update::ToolCallUpdate;
use crate::version::version;

/// Result of `initialize`.
pub(crate) fn initialized() -> Value {
    json!({
        "protocolVersion": VERSION,
        "agentInfo": { "name": "abide", "title": "abide", "version": version() },
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": { "image": false, "audio": false, "embeddedContext": true },
            "mcpCapabilities": { "http": true, "sse": false },
            "sessionCapabilities": { "list": {}, "resume": {}, "close": {}, "delete": {} },
        },
        "authMethods": [],
    })
}

/// What an agent says of itself in the result of `initialize`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Introduced {
    pub(crate) protocol_version: u32,
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) agent_capabilities: AgentCapabilities,
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) auth_methods: Vec<AuthMethod>,
}

/// What an agent can do.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentCapabilities {
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) load_session: bool,
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) session_capabilities: SessionCapabilities,
}

/// What an agent can do with sessions besides the required.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct SessionCapabilities {
    #[serde(default)]
    pub(crate) resume: Option<Value>,
}

/// A way to sign in.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AuthMethod {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: Option<String>,
}

/// Result of `session/new` as a client needs it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewSessionId {
    pub(crate) session_id: String,
}

/// An empty result.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Done(Map<String, Value>);

/// Result of `session/new`, `session/load` and `session/resume`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OpenedSession {
    /// Only in the result of `session/new`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<String>,
    pub(crate) modes: Modes,
    pub(crate) config_options: Vec<ConfigOption>,
}

/// The agents that may answer in a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Modes {
    pub(crate) current_mode_id: String,
    pub(crate) available_modes: Vec<Mode>,
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Mode {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) description: String,
}

/// A choice of a session, with its present value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConfigOption {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) category: &'static str,
    /// Always `select`.
    pub(crate) r#type: &'static str,
    pub(crate) current_value: String,
    pub(crate) options: Vec<ConfigValue>,
}

/// A value of a choice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ConfigValue {
    pub(crate) value: String,
    pub(crate) name: String,
}

/// Result of `session/set_config_option`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConfigOptionSet {
    pub(crate) config_options: Vec<ConfigOption>,
}

/// Result of `session/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionPage {
    pub(crate) sessions: Vec<SessionInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// A session in a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionInfo {
    pub(crate) session_id: String,
    pub(crate) cwd: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    /// RFC 3339.
    pub(crate) updated_at: Value,
}

/// Why a turn has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StopReason {
    EndTurn,
    MaxTokens,
    MaxTurnRequests,
    Refusal,
    Cancelled,
}

/// Result of `session/prompt`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Prompted {
    pub(crate) stop_reason: StopReason,
    /// The tokens of the turn, where the agent reports them.
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) usage: Option<TurnUsage>,
}

/// The tokens of a turn.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TurnUsage {
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cached_read_tokens: Option<u64>,
}

/// Parameters of `session/request_permission`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AskPermission {
    pub(crate) session_id: String,
    pub(crate) tool_call: ToolCallUpdate,
    pub(crate) options: Vec<PermissionOption>,
}

/// A decision that the user may make.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PermissionOption {
    pub(crate) option_id: String,
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) kind: PermissionKind,
}

/// What a decision means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PermissionKind {
    AllowOnce,
    AllowAlways,
    RejectOnce,
    RejectAlways,
    /// A kind that this program does not know; it is never selected.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// Parameters of `elicitation/create`: a form for the user.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AskForm {
    /// Always `form`.
    pub(crate) mode: &'static str,
    pub(crate) session_id: String,
    pub(crate) message: String,
    /// JSON Schema of the fields.
    pub(crate) requested_schema: Value,
}
