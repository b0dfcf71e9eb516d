//! Tool servers (MCP) as seen by the rest of the daemon: their states and the tools they offer. All
//! of it is one value, so that every listed tool can be called.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::BoxFuture;
use crate::kernel::fault::Fault;
use crate::kernel::ids::SessionId;
use crate::kernel::run::step::EffectClass;
use crate::kernel::secret::Secret;
use crate::kernel::time::Timestamp;

/// The state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// Not started yet, or stopped.
    Stopped,
    /// The start is in progress.
    Starting,
    /// Connected and answering calls.
    Ready,
    /// Connected, but it also writes many lines that are not protocol messages.
    Noisy,
    /// Could not be started, or has ended; the next call tries again.
    Failed,
}

impl ServerState {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ServerState::Stopped => "stopped",
            ServerState::Starting => "starting",
            ServerState::Ready => "ready",
            ServerState::Noisy => "noisy",
            ServerState::Failed => "failed",
        }
    }

    /// True if the server can be called.
    pub fn is_connected(self) -> bool {
        matches!(self, ServerState::Ready | ServerState::Noisy)
    }
}

/// The server that provides a tool; a run pins this with the tool's schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The server's name.
    pub server: String,
    /// The server's own name for the tool.
    pub tool: String,
    /// The effect class of a call, as declared by the server.
    pub effect: EffectClass,
    /// The server is a program on this machine, which may write anywhere.
    pub local: bool,
    /// The server belongs to the run's session; otherwise to the settings.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_session: bool,
    /// Renamed arguments: the name shown to models, to the server's own name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub renamed: BTreeMap<String, String>,
}

impl Served {
    /// Renames a model's arguments to the server's own names.
    pub fn given(&self, arguments: Map<String, Value>) -> Map<String, Value> {
        let own = arguments
            .into_iter()
            .map(|(name, value)| match self.renamed.get(&name) {
                Some(own) => (own.clone(), value),
                None => (name, value),
            });
        own.collect()
    }
}

/// A tool of a server, as shown to models and pinned by runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedTool {
    /// The name by which models call it.
    pub name: String,
    /// The server's description of it.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
    /// The server that provides it.
    pub served: Served,
}

/// A tool that is not offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedTool {
    /// The server's own name for it.
    pub tool: String,
    /// Why it is not offered.
    pub reason: String,
}

/// One tool server with its current state.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerView {
    /// Its name, that of its table under `[mcp]`.
    pub name: String,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// `shared` (one process for all runs) or `run` (one per run).
    pub scope: &'static str,
    /// Its current state.
    pub state: ServerState,
    /// Its process id, while it runs as a process.
    pub pid: Option<u32>,
    /// The protocol revision that it speaks.
    pub protocol: Option<String>,
    /// Its tools by name; until it has answered, those of its latest start.
    pub tools: Arc<[ServedTool]>,
    /// Its tools that are not offered.
    pub skipped: Arc<[SkippedTool]>,
    /// The last error.
    pub last_error: Option<String>,
    /// Number of starts.
    pub starts: u32,
    /// Number of lines written since its start that are not protocol messages.
    pub stray_line_count: u64,
    /// The latest of those lines.
    pub stray_lines: Vec<String>,
    /// When its state last changed.
    pub since: Timestamp,
}

/// All servers with a version number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerViews {
    /// Incremented by every change.
    pub version: u64,
    /// The servers, by name.
    pub servers: Vec<ServerView>,
}

/// A watch channel with the current servers.
pub type ServersSeen = watch::Receiver<Arc<ServerViews>>;

/// The tools of a server as known from an earlier start, so that a restart of the daemon removes no
/// tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownServer {
    /// The server's name.
    pub name: String,
    /// Hash of its command or address; rows with another hash are ignored.
    pub digest: String,
    /// Its tools and its greeting, as JSON.
    pub tools: String,
}

/// The rows of tool servers. The store implements it.
pub trait ServerRows: Send + Sync + 'static {
    /// Every known server, by name.
    fn known_servers(&self) -> Result<Vec<KnownServer>, Fault>;

    /// Once this resolves, `known` is stored as the latest knowledge of its server.
    fn keep_server(&self, known: KnownServer) -> BoxFuture<'static, Result<(), Fault>>;
}

/// A server that a client gives to a session, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewServer {
    /// The name by which its tools begin.
    pub name: String,
    /// The name that the client gave it.
    pub given: String,
    /// `stdio` or `http`.
    pub transport: String,
    /// Keyed digest of how it is started or reached.
    pub digest: String,
    /// How it is started or reached, encrypted.
    pub sealed: Vec<u8>,
}

/// A stored server of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredServer {
    /// The session.
    pub session: SessionId,
    /// The name by which its tools begin.
    pub name: String,
    /// The name that the client gave it.
    pub given: String,
    /// `stdio` or `http`.
    pub transport: String,
    /// Keyed digest of how it is started or reached.
    pub digest: String,
    /// How it is started or reached, encrypted.
    pub sealed: Vec<u8>,
    /// Its tools as it last listed them, as JSON; `None` before the first time.
    pub tools: Option<String>,
    /// Why it did not list its tools when it was last asked.
    pub problem: Option<String>,
    /// When it was given.
    pub set_at: Timestamp,
}

/// How a server of a session is started or reached. Debug output shows none of it but names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionServer {
    /// The name by which its tools begin.
    pub name: String,
    /// Program to start, by name or path.
    pub command: Option<Secret>,
    /// Arguments of the program.
    pub args: Vec<Secret>,
    /// Variables of the program's environment.
    pub env: BTreeMap<String, Secret>,
    /// Address, instead of a program.
    pub url: Option<Secret>,
    /// Headers sent with each call.
    pub headers: BTreeMap<String, Secret>,
    /// Working folder of the program; the default workspace if unset.
    pub folder: Option<String>,
}

/// Starts servers of sessions. The client of tool servers implements it.
pub trait SessionServers: Send + Sync + 'static {
    /// The names of the servers in the settings.
    fn configured(&self) -> Vec<String>;

    /// Starts the server, lists its tools, and ends it. The error says why they are not known, without
    /// a secret.
    fn tools(&self, server: SessionServer) -> BoxFuture<'static, Result<Vec<ServedTool>, String>>;
}
