//! Servers of tools (MCP), as everybody but the tool room sees them: which there are, how each
//! is, and what it offers. One value says all of it, so that what is listed can be called.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::BoxFuture;
use crate::kernel::fault::Fault;
use crate::kernel::step::Effect;
use crate::kernel::time::Timestamp;

/// How a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// Nobody has started it yet, or it was stopped.
    Stopped,
    /// Its start is under way.
    Starting,
    /// It answers.
    Ready,
    /// It answers, and writes much besides that is no message.
    Noisy,
    /// It could not be started, or it has ended; the next call tries once more.
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

    /// Does it answer calls?
    pub fn is_connected(self) -> bool {
        matches!(self, ServerState::Ready | ServerState::Noisy)
    }
}

/// Whose tool it is; a run pins this with the tool's schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The server.
    pub server: String,
    /// The server's own name for the tool.
    pub tool: String,
    /// What a repeat of a call would do, as far as the server says.
    pub effect: Effect,
    /// The server is a program of this machine, which may write where it likes.
    pub local: bool,
    /// Arguments that models know by another name: theirs to the server's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub renamed: BTreeMap<String, String>,
}

impl Served {
    /// A model's arguments under the server's own names.
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

/// A tool of a server, as models see it and as it is pinned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServedTool {
    /// The name by which models call it.
    pub name: String,
    /// What it does, in the server's words.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
    /// Whose it is.
    pub served: Served,
}

/// A tool that is not offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The server's own name for it.
    pub tool: String,
    /// Why not.
    pub reason: String,
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerView {
    /// Its name, that of its table under `[mcp]`.
    pub name: String,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// `shared` or `run`: for whom it is started.
    pub scope: &'static str,
    /// How it is.
    pub state: ServerState,
    /// Its process, while it has one.
    pub pid: Option<u32>,
    /// The revision of the protocol that it speaks.
    pub protocol: Option<String>,
    /// Its tools, by name: those of its latest start, while it answers its own.
    pub tools: Arc<[ServedTool]>,
    /// Its tools that are not offered.
    pub skipped: Arc<[Skipped]>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// How often it was started.
    pub starts: u32,
    /// How many lines it wrote, since its start, that are no messages.
    pub noise: u64,
    /// The latest of them.
    pub noise_lines: Vec<String>,
    /// When its state changed last.
    pub since: Timestamp,
}

/// Every server, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerViews {
    /// Raised by every change.
    pub version: u64,
    /// The servers.
    pub servers: Vec<ServerView>,
}

/// Where the servers of the moment are seen.
pub type ServersSeen = watch::Receiver<Arc<ServerViews>>;

/// The tools of a server as an earlier start of it gave them, so that a restart of the daemon
/// takes no tool away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownServer {
    /// Its name.
    pub name: String,
    /// Hash of how it is started or reached: that of another server says nothing.
    pub digest: String,
    /// What it offered and how it is greeted, as JSON.
    pub tools: String,
}

/// The rows of servers. The store implements it.
pub trait ServerRows: Send + Sync + 'static {
    /// Every known server, by name.
    fn known_servers(&self) -> Result<Vec<KnownServer>, Fault>;

    /// Once this resolves, that is what is known of the server.
    fn keep_server(&self, known: KnownServer) -> BoxFuture<'static, Result<(), Fault>>;
}
