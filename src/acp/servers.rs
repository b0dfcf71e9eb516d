//! MCP servers that the editor passes along: they belong to their session in the daemon, also when
//! the editor is gone.

use std::collections::BTreeMap;

use super::editor::Editor;
use super::permissions::is_of_kind;
use super::sessions::OpenSession;
use crate::acp_protocol::request::{HiddenText, McpServer, NamedText};
use crate::acp_protocol::{Answered, RpcError};
use crate::kernel::fault::Kind;
use crate::kernel::ids::SessionKey;
use crate::kernel::text::preview;
use crate::wire::session_servers::{self as wire, GivenServer, SessionServer, SetServers};

/// Maximum number of characters of a server's name.
const NAME: usize = 80;

/// What the daemon has made of the editor's servers.
#[derive(Default)]
pub(super) struct ServersTaken {
    /// True if the session may have servers of the editor.
    pub(super) has_servers: bool,
    /// What the user should know, one sentence each.
    pub(super) notes: Vec<String>,
}

impl Editor {
    /// The session has exactly these servers once this returns, or the notes say what went wrong.
    pub(super) async fn set_servers(
        &self,
        key: &SessionKey,
        servers: Vec<McpServer>,
    ) -> ServersTaken {
        let mut notes = Vec::new();
        let mut given = Vec::with_capacity(servers.len());
        for server in servers {
            match as_given(server) {
                Ok(server) => given.push(server),
                Err(why) => notes.push(why),
            }
        }
        let has_servers = !given.is_empty();
        let request = SetServers {
            session_key: key.clone(),
            servers: given,
        };
        match self.link.call(&request).await {
            Ok(set) => {
                notes.extend(set.servers.iter().filter_map(note));
                ServersTaken { has_servers, notes }
            }
            // A client that may set none has set none before: those of the session are another client's.
            Err(error) if is_of_kind(&error, Kind::Forbidden) => {
                if has_servers {
                    notes.push(not_used(&error));
                }
                ServersTaken {
                    has_servers: false,
                    notes,
                }
            }
            Err(error) => {
                notes.push(match has_servers {
                    true => not_used(&error),
                    false => format!(
                        "Earlier MCP servers of this session were not removed: {}",
                        error.message
                    ),
                });
                // Earlier ones stay, and without an answer of the daemon these may be stored: closing
                // the session removes them.
                ServersTaken {
                    has_servers: true,
                    notes,
                }
            }
        }
    }

    /// The session has no servers of the editor once this returns.
    pub(super) async fn remove_servers(&self, session: &OpenSession) -> Answered<()> {
        if !session.has_servers.get() {
            return Ok(());
        }
        let request = SetServers {
            session_key: session.key.clone(),
            servers: Vec::new(),
        };
        let removed = self.link.call(&request).await;
        removed.map_err(|error| RpcError {
            message: format!(
                "the session is still open: its MCP servers were not removed: {}",
                error.message
            ),
            ..error
        })?;
        session.has_servers.set(false);
        Ok(())
    }
}

fn not_used(error: &RpcError) -> String {
    format!(
        "The MCP servers of the editor are not used; earlier ones of this session stay: {}",
        error.message
    )
}

fn note(server: &SessionServer) -> Option<String> {
    let name = &server.given;
    match (server.state.as_str(), &server.error) {
        ("ready", _) => None,
        ("starting", _) => Some(format!(
            "MCP server {name} is still starting: its tools are available from a later turn on"
        )),
        (_, Some(why)) => Some(format!("MCP server {name} has failed: {why}")),
        (_, None) => Some(format!("MCP server {name} has not listed its tools")),
    }
}

/// The server as the daemon takes it; the error says why it is not used.
fn as_given(server: McpServer) -> Result<GivenServer, String> {
    let name = preview(&server.name, NAME);
    let plain = |text: HiddenText| wire::HiddenText(text.0);
    let by_name = |list: Option<Vec<NamedText>>| -> BTreeMap<String, wire::HiddenText> {
        let list = list.into_iter().flatten();
        list.map(|one| (one.name, plain(one.value))).collect()
    };
    match server.r#type.as_deref() {
        None | Some("stdio") => Ok(GivenServer {
            name,
            command: server.command.map(plain),
            args: server.args.into_iter().flatten().map(plain).collect(),
            env: by_name(server.env),
            ..GivenServer::default()
        }),
        Some("http") => Ok(GivenServer {
            name,
            url: server.url.map(plain),
            headers: by_name(server.headers),
            ..GivenServer::default()
        }),
        Some(other) => Err(format!(
            "MCP server {name} is not used: its transport {} is none of stdio and http",
            preview(other, NAME)
        )),
    }
}
