//! `mcp.list` and `tools.list`: the servers of tools, and the exact tools of an agent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::decode::Params;
use super::input;
use crate::kernel::ids::{AgentId, SessionKey};
use crate::kernel::time::Timestamp;

/// What `mcp.list` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Servers {
    /// Every server, by name.
    pub servers: Vec<Server>,
}

/// A server of tools (MCP).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    /// Its name, that of its table under `[mcp]`.
    pub name: String,
    /// `stdio` or `http`.
    pub transport: String,
    /// `shared` (one process for everybody) or `run` (each run that calls it has its own, and
    /// this one only tells which tools there are).
    pub scope: String,
    /// `stopped`, `starting`, `ready`, `noisy` (it answers, and writes much that is no message)
    /// or `failed` (the next call tries it once more).
    pub state: String,
    /// Since when.
    pub since: Timestamp,
    /// Its process, while it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The revision of the protocol that it speaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Its tools, by name; of a server that does not answer those of its latest start.
    pub tools: Vec<ServerTool>,
    /// Its tools that nobody has.
    pub skipped: Vec<Skipped>,
    /// What went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// How often this life of the daemon has started it.
    pub starts: u32,
    /// How many lines it wrote, since its start, that are no messages.
    pub noise: u64,
    /// The latest of them.
    pub noise_lines: Vec<String>,
}

/// A tool of a server, in a list of servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerTool {
    /// The name by which models call it.
    pub name: String,
    /// The server's own name for it.
    pub tool: String,
    /// What a repeat of a call would do: `read` (nothing), `idempotent` (nothing more) or `once`.
    pub effect: String,
}

/// A tool, or a server of tools, that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// Why it is not there.
    pub reason: String,
}

/// `tools.list`. Either an agent or a session whose agent is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListTools {
    /// The agent; if unset that of the session.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// A session: the project around its folder counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// The folder of the work, absolute: the agents of its project count, too.
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}
impl Params for ListTools {}

/// What `tools.list` answers: what a run that is spawned now would pin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tools {
    /// Whose tools these are.
    pub agent: AgentId,
    /// Their hash, as runs of this agent have it in `pins.tools`.
    pub hash: String,
    /// The tools, its own first.
    pub tools: Vec<Tool>,
    /// What it might have and has not.
    pub skipped: Vec<Skipped>,
}

/// A tool as models see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// The name by which it is called.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
    /// Whose it is, if a server has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served: Option<ToolOf>,
}

/// The server that has a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolOf {
    /// The server.
    pub server: String,
    /// The server's own name for the tool.
    pub tool: String,
    /// What a repeat of a call would do, as in [`ServerTool`].
    pub effect: String,
    /// The server is a program of this machine.
    pub local: bool,
}
