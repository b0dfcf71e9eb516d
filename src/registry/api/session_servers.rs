//! The MCP servers that clients give to sessions. Their rows say how they are started or reached,
//! encrypted, and which tools they have; a run of the session pins these tools and starts a server
//! when it first calls one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::command::{KeepTools, SetServers};
use crate::contract::catalog::{Overrides, Resolved};
use crate::contract::delegate::Site;
use crate::contract::servers::{NewServer, ServedTool, SessionServer, StoredServer};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::SessionId;
use crate::kernel::policy::overlay;
use crate::kernel::secret::Secret;
use crate::kernel::text::preview;
use crate::registry::{Principal, Registry, RegistryInner};
use crate::store::tables::{session_servers, sessions};
use crate::wire::session_servers as wire;

/// How long a client waits for servers to list their tools. They go on after that.
const LISTING: Duration = Duration::from_secs(20);
/// Maximum size of how one server is started or reached, in bytes.
const SERVER_BYTES: usize = 64 * 1024;
/// Maximum length of a name, as in the settings.
const NAME: usize = 32;
/// Maximum number of characters of the name that a client gives.
const GIVEN: usize = 128;
/// Maximum number of characters of an error.
const ERROR: usize = 300;

/// A server that is listing its tools: session, name, and digest of how it is started or reached.
pub(crate) type Listing = (SessionId, String, String);

impl Registry {
    /// Once this returns, the session has exactly these servers, and most of them have listed their
    /// tools. Without servers nothing is decrypted, so that a lost key does not prevent it.
    pub async fn set_servers(
        &self,
        who: &Principal,
        request: wire::SetServers,
    ) -> Result<wire::ServersSet, Fault> {
        let key = request.session_key;
        let session = self.session(who, &key).await?.session;
        let servers = self.inner.sealed_servers(session.id, request.servers)?;
        let command = SetServers {
            org: who.org.clone(),
            session: session.id,
            key: key.clone(),
            servers,
        };
        // The audit row is written with the rows, before a program is started: it is there even if
        // the client leaves now.
        let rows = self.inner.store.submit(command).await?;
        let listings: Vec<Listing> = rows
            .iter()
            .map(|row| self.inner.begin_listing(row))
            .collect();
        let mut active = self.inner.listings.subscribe();
        let all = active.wait_for(|active| listings.iter().all(|one| !active.contains(one)));
        // After that they are shown as starting.
        let _ = tokio::time::timeout(LISTING, all).await;
        let rows = self
            .inner
            .store
            .read_now(|tx| session_servers::of(tx, session.id))?;
        let active = self.inner.listings.borrow();
        Ok(wire::ServersSet {
            session_key: key,
            servers: rows.iter().map(|row| shown(row, &active)).collect(),
        })
    }

    /// How the server of this name of the calling run's session is started or reached.
    pub(crate) fn server_of(&self, site: Site, name: &str) -> Result<SessionServer, Fault> {
        let session = self.caller(site)?.session.id;
        let row = self
            .inner
            .store
            .read_now(|tx| session_servers::get(tx, session, name))?;
        let row = row.ok_or_else(|| {
            let message = format!("the session has no MCP server {name} any more");
            Fault::new(Kind::NotFound, message)
        })?;
        self.inner.opened(&row)
    }

    /// The tools of the servers of a session, by name.
    pub async fn served_in(&self, session: SessionId) -> Result<Vec<ServedTool>, Fault> {
        let rows = self
            .inner
            .store
            .read(move |tx| session_servers::of(tx, session))
            .await?;
        Ok(rows.iter().flat_map(tools_of).collect())
    }
}

impl RegistryInner {
    /// As [`RegistryInner::resolve`], for a run in this session: the agent has the tools of its
    /// servers. Servers whose tools are not known are asked again, for later runs.
    pub(crate) async fn resolve_in(
        self: &Arc<Self>,
        session: SessionId,
        org: &str,
        folder: Option<&str>,
        name: Option<&str>,
        overrides: Overrides<'_>,
    ) -> Result<Resolved, Fault> {
        let rows = self.store.read_now(|tx| session_servers::of(tx, session))?;
        let mut notes = Vec::new();
        for row in &rows {
            if let Some(note) = note(row) {
                notes.push(note);
                self.begin_listing(row);
            }
        }
        let served: Vec<ServedTool> = rows.iter().flat_map(tools_of).collect();
        let overrides = Overrides {
            served: &served,
            ..overrides
        };
        let mut resolved = self.resolve(org, folder, name, overrides).await?;
        resolved.warnings.append(&mut notes);
        Ok(resolved)
    }

    /// The server lists its tools in the background, unless it does so already.
    fn begin_listing(self: &Arc<Self>, row: &StoredServer) -> Listing {
        let listing = (row.session, row.name.clone(), row.digest.clone());
        let begins = self
            .listings
            .send_if_modified(|active| active.insert(listing.clone()));
        if begins {
            let (row, active) = (
                row.clone(),
                ActiveListing(Arc::clone(self), listing.clone()),
            );
            tokio::spawn(async move {
                let inner = &active.0;
                let listed = inner.list_tools(&row).await;
                let command = KeepTools {
                    session: row.session,
                    name: row.name.clone(),
                    digest: row.digest.clone(),
                    listed,
                };
                if let Err(fault) = inner.store.submit_waiting(command).await {
                    tracing::warn!(server = row.name, %fault, "the tools of a session's server were not stored");
                }
            });
        }
        listing
    }

    /// The tools of a server as JSON, or why they are not known.
    async fn list_tools(&self, row: &StoredServer) -> Result<String, String> {
        let read = self.store.read_now(|tx| sessions::by_id(tx, row.session));
        let session = read.map_err(|fault| fault.message)?;
        let server = SessionServer {
            folder: session.and_then(|session| session.cwd),
            ..self.opened(row).map_err(|fault| fault.message)?
        };
        let tools = self.session_servers.tools(server).await;
        let tools = tools.map_err(|why| preview(&why, ERROR))?;
        serde_json::to_string(&tools).map_err(|error| error.to_string())
    }

    fn opened(&self, row: &StoredServer) -> Result<SessionServer, Fault> {
        let name = &row.name;
        let sealed = self.seal.open_server(row.session, name, &row.sealed);
        let sealed = sealed.ok_or_else(|| {
            let message = format!(
                "how MCP server {name} of the session is started was encrypted with another key than \
                 this daemon has (env.key in the state folder, or the credential abide-env-key)"
            );
            Fault::new(Kind::Conflict, message)
                .hint("open the session in the editor again, which sets its servers anew")
        })?;
        let given: wire::GivenServer = serde_json::from_str(sealed.expose()).map_err(|_| {
            Fault::internal(format!("MCP server {name} of a session is unreadable"))
        })?;
        let hidden = |text: wire::HiddenText| text.0;
        let named = |(name, text): (String, wire::HiddenText)| (name, text.0);
        Ok(SessionServer {
            name: name.clone(),
            command: given.command.map(hidden),
            args: given.args.into_iter().map(hidden).collect(),
            env: given.env.into_iter().map(named).collect(),
            url: given.url.map(hidden),
            headers: given.headers.into_iter().map(named).collect(),
            folder: None,
        })
    }

    /// The servers as they are stored, each with a name that no other server has.
    fn sealed_servers(
        &self,
        session: SessionId,
        servers: Vec<wire::GivenServer>,
    ) -> Result<Vec<NewServer>, Fault> {
        if servers.len() > wire::SERVER_LIMIT {
            let message = format!(
                "a session has at most {} MCP servers; nothing was changed",
                wire::SERVER_LIMIT
            );
            return Err(Fault::params("servers", message));
        }
        let configured = self.session_servers.configured();
        let mut taken: HashSet<String> = HashSet::new();
        let mut stored = Vec::with_capacity(servers.len());
        for server in servers {
            let transport = check(&server)?;
            let name = free_name(&server.name, &configured, &taken);
            taken.insert(name.clone());
            let text = serde_json::to_string(&server).map_err(Fault::internal)?;
            if text.len() > SERVER_BYTES {
                return Err(refused(
                    &server,
                    &format!("it has more than {SERVER_BYTES} bytes"),
                ));
            }
            let text = Secret::new(text);
            stored.push(NewServer {
                digest: self.seal.server_digest(&text),
                sealed: self.seal.close_server(session, &name, &text)?,
                name,
                given: preview(&server.name, GIVEN),
                transport: transport.to_owned(),
            });
        }
        Ok(stored)
    }
}

/// A listing in progress; it has ended when this is dropped.
struct ActiveListing(Arc<RegistryInner>, Listing);

impl Drop for ActiveListing {
    fn drop(&mut self) {
        let ActiveListing(inner, listing) = self;
        inner.listings.send_modify(|active| {
            active.remove(listing);
        });
    }
}

fn tools_of(row: &StoredServer) -> Vec<ServedTool> {
    let tools = row.tools.as_deref();
    // Unreadable ones count as unknown: the server lists them again.
    tools
        .and_then(|tools| serde_json::from_str(tools).ok())
        .unwrap_or_default()
}

/// The warning about a server whose present tools are not known; `None` if they are.
fn note(row: &StoredServer) -> Option<String> {
    let name = &row.name;
    match (&row.problem, &row.tools) {
        (Some(why), None) => Some(format!(
            "MCP server {name} of the session has failed, and its tools are missing: {why}"
        )),
        (Some(why), Some(_)) => Some(format!(
            "MCP server {name} of the session has failed; the next call starts it again: {why}"
        )),
        (None, None) => Some(format!(
            "MCP server {name} of the session is still starting: its tools are available from a \
             later turn on"
        )),
        (None, Some(_)) => None,
    }
}

fn shown(row: &StoredServer, active: &HashSet<Listing>) -> wire::SessionServer {
    let listing = (row.session, row.name.clone(), row.digest.clone());
    let state = match (&row.problem, &row.tools) {
        (Some(_), _) => "failed",
        (None, Some(_)) => "ready",
        (None, None) if active.contains(&listing) => "starting",
        (None, None) => "failed",
    };
    wire::SessionServer {
        name: row.name.clone(),
        given: row.given.clone(),
        transport: row.transport.clone(),
        state: state.to_owned(),
        tools: tools_of(row).into_iter().map(|tool| tool.name).collect(),
        error: row.problem.clone(),
    }
}

fn refused(server: &wire::GivenServer, why: &str) -> Fault {
    let name = preview(&server.name, GIVEN);
    let message = format!("MCP server {name}: {why}; nothing was changed");
    Fault::params("servers", message).with("name", name)
}

/// The transport of a server; the fault says what is wrong with it, without a value.
fn check(server: &wire::GivenServer) -> Result<&'static str, Fault> {
    if server.name.trim().is_empty() {
        return Err(Fault::params(
            "servers",
            "a server has no name; nothing was changed",
        ));
    }
    if let Some(name) = server.env.keys().find(|name| !overlay::is_name(name)) {
        let shown = preview(name, GIVEN);
        return Err(refused(
            server,
            &format!("{shown:?} is no name of a variable"),
        ));
    }
    match (&server.command, &server.url) {
        (Some(command), None) if !command.0.expose().trim().is_empty() => {
            match server.headers.is_empty() {
                true => Ok("stdio"),
                false => Err(refused(server, "a program has no headers")),
            }
        }
        (None, Some(url)) => {
            let url = url.0.expose();
            if !url.starts_with("http://") && !url.starts_with("https://") {
                return Err(refused(server, "its address is not one of http or https"));
            }
            match server.args.is_empty() && server.env.is_empty() {
                true => Ok("http"),
                false => Err(refused(server, "an address has no arguments and variables")),
            }
        }
        _ => Err(refused(
            server,
            "either a program or an address is expected",
        )),
    }
}

/// A name that neither the settings nor another server of the session has, made of the given one. It
/// is the same whenever the same servers are given.
fn free_name(given: &str, configured: &[String], taken: &HashSet<String>) -> String {
    let is_free = |name: &String| !configured.contains(name) && !taken.contains(name);
    let plain = slug(given, NAME);
    let own = format!("session-{}", slug(given, NAME - "session-".len()));
    let numbered = (2..).map(|number: u32| format!("{}-{number}", slug(given, NAME - 4)));
    [plain, own]
        .into_iter()
        .chain(numbered)
        .find(is_free)
        .unwrap_or_default()
}

/// The letters and digits of a name in lower case, other characters as hyphens.
fn slug(given: &str, most: usize) -> String {
    let mut slug = String::new();
    for one in given.chars() {
        match one.to_ascii_lowercase() {
            one if one.is_ascii_lowercase() || (one.is_ascii_digit() && !slug.is_empty()) => {
                slug.push(one);
            }
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    slug.truncate(most);
    let slug = slug.trim_end_matches('-');
    match slug.is_empty() {
        true => "server".to_owned(),
        false => slug.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_settings_and_differ_from_them_and_each_other() {
        let configured = ["files".to_owned()];
        let mut taken = HashSet::new();
        let mut name = |given: &str| {
            let name = free_name(given, &configured, &taken);
            taken.insert(name.clone());
            name
        };
        assert_eq!(name("GitHub MCP (2)"), "github-mcp-2");
        assert_eq!(name("Files"), "session-files");
        assert_eq!(name("files"), "files-2");
        assert_eq!(name("FILES"), "files-3");
        assert_eq!(name("7__a"), "a");
        assert_eq!(name("日本"), "server");
        assert_eq!(name(&"x".repeat(40)), "x".repeat(32));
        let second = name(&"x".repeat(41));
        assert!(
            second.len() <= NAME && second.starts_with("session-x"),
            "{second}"
        );
    }

    #[test]
    fn what_cannot_be_a_server_is_refused_without_its_values() {
        let text = wire::HiddenText::new;
        let program = wire::GivenServer {
            name: "a".to_owned(),
            command: Some(text("canary")),
            ..wire::GivenServer::default()
        };
        let address = wire::GivenServer {
            name: "a".to_owned(),
            url: Some(text("https://canary")),
            ..wire::GivenServer::default()
        };
        assert_eq!(check(&program).unwrap(), "stdio");
        assert_eq!(check(&address).unwrap(), "http");
        let values = || [("A".to_owned(), text("canary"))].into();
        for broken in [
            wire::GivenServer {
                name: " ".to_owned(),
                ..program.clone()
            },
            wire::GivenServer {
                url: address.url.clone(),
                ..program.clone()
            },
            wire::GivenServer {
                command: None,
                ..program.clone()
            },
            wire::GivenServer {
                headers: values(),
                ..program.clone()
            },
            wire::GivenServer {
                env: [("A=B".to_owned(), text("canary"))].into(),
                ..program
            },
            wire::GivenServer {
                env: values(),
                ..address.clone()
            },
            wire::GivenServer {
                url: Some(text("file:///canary")),
                ..address
            },
        ] {
            let fault = check(&broken).unwrap_err();
            assert_eq!(fault.kind, Kind::InvalidParams);
            assert!(!format!("{fault:?}").contains("canary"), "{fault:?}");
        }
    }
}
