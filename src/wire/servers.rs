//! `mcp.list` and `tools.list`: the MCP servers, and the exact tools of an agent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::input;
use super::method::no_params;
use crate::kernel::ids::{AgentId, SessionKey};
use crate::kernel::time::Timestamp;

no_params! {
    /// Parameters of `mcp.list`.
    ListServers
}

/// Result of `mcp.list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Servers {
    /// Every server, sorted by name.
    pub servers: Vec<Server>,
}

/// An MCP server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    /// Name of the server, that of its table under `[mcp]`.
    pub name: String,
    /// `stdio` or `http`.
    pub transport: String,
    /// `shared`: one process for all runs; `run`: each run that calls it starts its own, and this
    /// process only lists the tools.
    pub scope: String,
    /// `stopped`, `starting`, `ready`, `noisy` (it answers, but writes many lines that are not
    /// protocol messages) or `failed` (the next call tries to start it again).
    pub state: String,
    /// When it entered this state.
    pub since: Timestamp,
    /// Process id; absent if it has no process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// MCP protocol revision it speaks; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Its tools, sorted by name; for a server that does not answer, those of its latest start.
    pub tools: Vec<ServerTool>,
    /// Its tools that are not offered to any agent.
    pub skipped: Vec<Skipped>,
    /// Last error; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Number of starts since the daemon's own start.
    pub starts: u32,
    /// Number of lines written since its start that are not protocol messages.
    pub noise: u64,
    /// The latest of those lines.
    pub noise_lines: Vec<String>,
}

/// A tool of an MCP server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerTool {
    /// Name by which models call it.
    pub name: String,
    /// Name the server gives it.
    pub tool: String,
    /// Effect of repeating a call: `read` (none), `idempotent` (nothing further) or `once` (it acts
    /// again).
    pub effect: String,
}

/// A tool or server that is not available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// Name of the tool or server.
    pub name: String,
    /// Why it is not available.
    pub reason: String,
}

/// Parameters of `tools.list`. At least one of `agent` and `sessionKey` is required.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListTools {
    /// Name of the agent; the session's agent if unset.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Session whose working directory selects the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// Absolute working directory, instead of the session's; agents of the project around it are
    /// included.
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// Result of `tools.list`: the tools that a run spawned now would pin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tools {
    /// The agent.
    pub agent: AgentId,
    /// Hash of the tools, as in `pins.tools` of the agent's runs.
    pub hash: String,
    /// The tools, the agent's own ones first.
    pub tools: Vec<Tool>,
    /// Tools and servers that the agent asks for and does not get.
    pub skipped: Vec<Skipped>,
}

/// A tool as models see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// Name by which models call it.
    pub name: String,
    /// Description for models.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
    /// The MCP server that provides it; absent for built-in tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served: Option<ToolOf>,
}

/// Origin of a tool that an MCP server provides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolOf {
    /// Name of the server.
    pub server: String,
    /// Name the server gives the tool.
    pub tool: String,
    /// Effect of repeating a call, as in [`ServerTool`].
    pub effect: String,
    /// True if the server is a program on this machine.
    pub local: bool,
}
