//! All tool servers: created from the settings, updated at a reload, ended with the daemon. Their
//! views are published as one value.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::server::McpServer;
use crate::clock::Clock;
use crate::config::ServerTable;
use crate::contract::journal::RunEnvironment;
use crate::contract::servers::{KnownServer, ServerRows, ServerView, ServerViews, ServersSeen};
use crate::kernel::ids::RunId;
use crate::kernel::policy::env::Environment;
use crate::process::Processes;
use crate::tool::ToolOutput;

/// The options with which servers are started.
#[derive(Clone)]
pub struct McpOptions {
    /// Starts and ends the programs.
    pub processes: Processes,
    /// The environment of all servers; each table adds to it.
    pub environment: Environment,
    /// The working folder of servers that name none.
    pub folder: PathBuf,
    /// Stored server states; `None` = nothing is stored or restored.
    pub rows: Option<Arc<dyn ServerRows>>,
    /// The clock and the source of ids.
    pub clock: Clock,
}

/// All tool servers. Cheap to clone.
#[derive(Clone)]
pub struct McpServers {
    pub(super) shared: Arc<McpShared>,
    servers: Arc<Mutex<BTreeMap<String, Arc<McpServer>>>>,
    /// The connections of single runs.
    leases: Arc<Mutex<HashMap<RunId, Vec<Arc<McpServer>>>>>,
    /// Servers of sessions that are started to list their tools.
    listed: Arc<Mutex<HashMap<Uuid, Arc<McpServer>>>>,
    /// True once servers are started as soon as they are added.
    pub(super) open: Arc<AtomicBool>,
}

/// The state that all servers share.
pub(super) struct McpShared {
    pub(super) options: McpOptions,
    seen: watch::Sender<Arc<ServerViews>>,
}

impl McpShared {
    pub(super) fn view(&self, name: &str) -> Option<ServerView> {
        let seen = self.seen.borrow();
        seen.servers.iter().find(|view| view.name == name).cloned()
    }

    /// Changes the view of a server, unless `over` is cancelled.
    pub(super) fn show(
        &self,
        name: &str,
        over: &CancellationToken,
        change: impl FnOnce(&mut ServerView),
    ) {
        let now = self.options.clock.now();
        self.seen.send_if_modified(|seen| {
            if over.is_cancelled() {
                return false;
            }
            let mut views = ServerViews::clone(seen);
            let Some(view) = views.servers.iter_mut().find(|view| view.name == name) else {
                return false;
            };
            let before = view.state;
            change(view);
            if view.state != before {
                view.since = now;
            }
            views.version += 1;
            *seen = Arc::new(views);
            true
        });
    }
}

impl McpServers {
    /// Creates the servers of these tables without starting them.
    pub fn new(options: McpOptions, tables: &BTreeMap<String, ServerTable>) -> McpServers {
        let servers = McpServers {
            shared: Arc::new(McpShared {
                options,
                seen: watch::channel(Arc::default()).0,
            }),
            servers: Arc::default(),
            leases: Arc::default(),
            listed: Arc::default(),
            open: Arc::default(),
        };
        let known = match tables.is_empty() {
            true => Vec::new(),
            false => servers.known(),
        };
        for (name, table) in tables {
            servers.put(name, table, &known);
        }
        servers
    }

    /// Subscribes to the views of the servers.
    pub fn seen(&self) -> ServersSeen {
        self.shared.seen.subscribe()
    }

    /// Starts all servers; returns at once.
    pub fn start(&self) {
        self.open.store(true, Ordering::Release);
        for server in self.lock().values() {
            server.begin();
        }
    }

    /// Applies these tables: changed servers are restarted. Once this resolves, no process of
    /// removed servers is left.
    pub async fn configure(&self, tables: &BTreeMap<String, ServerTable>) {
        let gone: Vec<Arc<McpServer>> = {
            let mut servers = self.lock();
            let is_gone = |name: &String, server: &mut Arc<McpServer>| {
                tables.get(name) != Some(&server.table)
            };
            servers
                .extract_if(.., is_gone)
                .map(|(_, server)| server)
                .collect()
        };
        join_all(gone.iter().map(|server| server.end())).await;
        let known = self.known();
        self.shared.seen.send_modify(|seen| {
            let mut views = ServerViews::clone(seen);
            let is_gone = |name: &str| gone.iter().any(|server| server.name == name);
            views.servers.retain(|view| !is_gone(&view.name));
            views.version += 1;
            *seen = Arc::new(views);
        });
        for (name, table) in tables {
            if !self.lock().contains_key(name) {
                self.put(name, table, &known);
            }
        }
        if self.open.load(Ordering::Acquire) {
            self.start();
        }
    }

    /// Once this resolves, all servers have ended; none is started again.
    pub async fn end(&self) {
        self.open.store(false, Ordering::Release);
        let servers = std::mem::take(&mut *self.lock());
        let leased = std::mem::take(&mut *self.lock_leases());
        let leased = leased.values().flatten();
        let listed = std::mem::take(&mut *self.lock_listed());
        let all = servers.values().chain(leased).chain(listed.values());
        join_all(all.map(|server| server.end())).await;
    }

    /// The run now has its own connections to the existing servers of these names; they are started
    /// in the background. A repeated call changes nothing.
    pub fn lease(&self, run: RunId, names: &[String]) {
        let mut leases = self.lock_leases();
        if leases.contains_key(&run) {
            return;
        }
        let servers = self.lock();
        let named = names.iter().filter_map(|name| servers.get(name));
        // The others are started by the first call, which knows the run's environment.
        let named = named.filter(|server| !server.is_per_run());
        let leased: Vec<Arc<McpServer>> = named.map(|server| server.leased(None)).collect();
        for server in &leased {
            server.begin();
        }
        leases.insert(run, leased);
    }

    /// Once this resolves, the run's own connections and their processes are gone; returns what
    /// went wrong.
    pub async fn release(&self, run: RunId) -> Vec<String> {
        let leased = self.lock_leases().remove(&run).unwrap_or_default();
        let ends = leased.iter().map(|server| async move {
            let badly = server.end().await?;
            let name = &server.name;
            Some(format!("the run's own MCP server {name}: {badly}"))
        });
        join_all(ends).await.into_iter().flatten().collect()
    }

    /// True if the run has its own connections.
    pub fn has_leased(&self, run: RunId) -> bool {
        self.lock_leases().contains_key(&run)
    }

    pub(super) fn lock_leases(&self) -> MutexGuard<'_, HashMap<RunId, Vec<Arc<McpServer>>>> {
        // The map is consistent even after a panic.
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a server tool for this run, over its own connection if it has one. A server that is
    /// down is started first; with `scope = "run"`, for the run alone in its environment. Every
    /// failure is a result that says what happened.
    pub async fn call(
        &self,
        run: RunId,
        environment: &RunEnvironment,
        server: &str,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> ToolOutput {
        let leased = self.lock_leases().get(&run).and_then(|leased| {
            let mut leased = leased.iter();
            leased
                .find(|one| one.name == server && !one.is_of_session)
                .cloned()
        });
        let declared = self.lock().get(server).cloned();
        let found = match declared {
            Some(declared) if declared.is_per_run() => {
                Some(self.run_server(run, environment, &declared).await)
            }
            declared => leased.or(declared),
        };
        let Some(found) = found else {
            return ToolOutput::error(format!(
                "MCP server {server} is not configured any more (its table [mcp.{server}] is \
                 gone); the call was not made"
            ));
        };
        match found.call(tool, arguments).await {
            Ok(output) => output,
            Err(why) => ToolOutput::error(format!("{tool} of MCP server {server}: {why}")),
        }
    }

    /// The names of the servers in the settings.
    pub(super) fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub(super) fn lock_listed(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<McpServer>>> {
        // The map is consistent even after a panic.
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, name: &str, table: &ServerTable, known: &[KnownServer]) {
        let server = McpServer::new(name, table, &self.shared);
        let known = known.iter().find(|known| known.name == name);
        let view = server.unseen(known);
        self.shared.seen.send_modify(|seen| {
            let mut views = ServerViews::clone(seen);
            let at = views
                .servers
                .partition_point(|view| view.name.as_str() < name);
            views.servers.insert(at, view);
            views.version += 1;
            *seen = Arc::new(views);
        });
        self.lock().insert(name.to_owned(), server);
    }

    /// Reads the stored server states. Without them, tools are known once their servers have
    /// started.
    fn known(&self) -> Vec<KnownServer> {
        let rows = self.shared.options.rows.as_ref();
        let known = rows.map_or(Ok(Vec::new()), |rows| rows.known_servers());
        known.unwrap_or_else(|fault| {
            tracing::warn!(%fault, "the stored tools of tool servers cannot be read");
            Vec::new()
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<McpServer>>> {
        // The map is consistent even after a panic.
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
