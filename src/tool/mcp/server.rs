//! One server: started on demand, supervised, and ended with all its descendants. The next call
//! restarts a server that has ended, once.

use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::connection::McpConnection;
use super::handshake::{Handshake, LastHandshake};
use super::http;
use super::names::Offer;
use super::per_run::RunScope;
use super::pipes::Pipes;
use super::servers::McpShared;
use super::stray_lines::StrayLines;
use super::wire::{Channel, Wire};
use crate::config::ServerTable;
use crate::contract::servers::{KnownServer, ServedTool, ServerState, ServerView};
use crate::kernel::policy::env::Environment;
use crate::kernel::text::redact::Redactor;
use crate::process::{Program, ProgramInput, Service};
use crate::tool::ToolOutput;

/// The part of `start_timeout` that the probe `server/discover` may take.
const PROBE_PART: u32 = 6;

/// The maximum number of bytes of stderr kept.
const STDERR_KEPT: usize = 16 * 1024;

/// A tool server.
pub(super) struct McpServer {
    pub(super) name: String,
    /// How it is started or reached.
    pub(super) table: ServerTable,
    pub(super) shared: Arc<McpShared>,
    pub(super) link: watch::Sender<McpConnectionState>,
    /// Whether it belongs to one run. If so, it does not change the view, which shows the shared
    /// connection of that name.
    pub(super) is_leased: bool,
    /// Whether a client has given it to a session.
    pub(super) is_of_session: bool,
    /// What a server of a session has listed.
    offered: Mutex<Option<Offer>>,
    /// The run and environment that it was started for, with `scope = "run"`.
    pub(super) own: Option<RunScope>,
    /// Cancelled once the server is no longer needed.
    pub(super) stop: CancellationToken,
    life: Mutex<Option<LifecycleTask>>,
    /// The handshake that worked last.
    pub(super) remembered: LastHandshake,
    /// The number of consecutive failures.
    pub(super) failures: AtomicU32,
    pub(super) noise: StrayLines,
    /// Masks the secrets of its table in its output; renewed at each start.
    redactor: Mutex<Redactor>,
}

/// The stored state of a server for the next daemon process.
#[derive(Default, Serialize, Deserialize)]
struct StoredServer<Tools = Vec<ServedTool>> {
    tools: Tools,
    greeting: Option<Handshake>,
}

/// The task from start to end; returns what went wrong when it was ended.
type LifecycleTask = JoinHandle<Option<String>>;

/// The state of the connection.
pub(super) enum McpConnectionState {
    /// There is no connection; the reason, if one was tried.
    Down(Option<String>),
    Starting,
    Up(McpConnection),
    /// Its remaining processes are being ended.
    Ending,
}

impl McpServer {
    /// Creates a server without starting it.
    pub(super) fn new(name: &str, table: &ServerTable, shared: &Arc<McpShared>) -> Arc<McpServer> {
        let remembered = LastHandshake::default();
        Self::make(name, table, shared, remembered, None, (false, false))
    }

    /// Creates a server of a session without starting it.
    pub(super) fn of_session(
        name: &str,
        table: &ServerTable,
        shared: &Arc<McpShared>,
    ) -> Arc<McpServer> {
        let remembered = LastHandshake::default();
        Self::make(name, table, shared, remembered, None, (true, true))
    }

    /// Creates another connection to the same server for one run; in the run's environment, if
    /// `own` is given.
    pub(super) fn leased(&self, own: Option<RunScope>) -> Arc<McpServer> {
        let remembered = self.remembered.clone();
        let marks = (true, self.is_of_session);
        Self::make(
            &self.name,
            &self.table,
            &self.shared,
            remembered,
            own,
            marks,
        )
    }

    fn make(
        name: &str,
        table: &ServerTable,
        shared: &Arc<McpShared>,
        remembered: LastHandshake,
        own: Option<RunScope>,
        (is_leased, is_of_session): (bool, bool),
    ) -> Arc<McpServer> {
        Arc::new(McpServer {
            is_leased,
            is_of_session,
            offered: Mutex::default(),
            own,
            remembered,
            failures: AtomicU32::new(0),
            name: name.to_owned(),
            table: table.clone(),
            shared: Arc::clone(shared),
            link: watch::channel(McpConnectionState::Down(None)).0,
            stop: CancellationToken::new(),
            life: Mutex::default(),
            noise: StrayLines::default(),
            redactor: Mutex::default(),
        })
    }

    /// True if it is a local program.
    pub(super) fn is_local(&self) -> bool {
        self.table.url.is_none()
    }

    /// The view before the first start, with the tools that were stored earlier.
    pub(super) fn unseen(&self, known: Option<&KnownServer>) -> ServerView {
        let known = known.filter(|known| known.digest == self.digest());
        let StoredServer::<Vec<ServedTool>> { tools, greeting } = known
            .and_then(|known| serde_json::from_str(&known.tools).ok())
            .unwrap_or_default();
        self.remembered.restore(greeting);
        ServerView {
            name: self.name.clone(),
            transport: match self.is_local() {
                true => "stdio",
                false => "http",
            },
            scope: self.table.scope.as_str(),
            state: ServerState::Stopped,
            pid: None,
            protocol: None,
            tools: tools.into(),
            skipped: Arc::new([]),
            last_error: None,
            starts: 0,
            stray_line_count: 0,
            stray_lines: Vec::new(),
            since: self.shared.options.clock.now(),
        }
    }

    /// A hash of how it is started or reached, without secrets: names of variables and headers, but
    /// not their values.
    fn digest(&self) -> String {
        let table = &self.table;
        let variables: Vec<&String> = table.env.keys().collect();
        let headers: Vec<&String> = table.headers.keys().collect();
        let parts = (
            (&table.command, &table.args, &table.cwd, variables),
            (&table.url, headers, &table.auth),
        );
        let text = format!("{parts:?}");
        blake3::hash(text.as_bytes()).to_hex().to_string()
    }

    /// Starts it, unless there is a connection or a start in progress.
    pub(super) fn begin(self: &Arc<Self>) {
        // Locked, so that `end` either finds this task or prevents its start.
        let mut life = self.lock_life();
        if self.stop.is_cancelled() {
            return;
        }
        let begins = self.link.send_if_modified(|link| {
            let is_down = matches!(link, McpConnectionState::Down(_));
            if is_down {
                *link = McpConnectionState::Starting;
            }
            is_down
        });
        if begins {
            // Set before the view can be read: it must not show the server as stopped any more.
            self.show(|view| view.state = ServerState::Starting);
            *life = Some(tokio::spawn(Arc::clone(self).supervise()));
        }
    }

    /// Once this returns, no process of it is left, apart from what the result reports as a
    /// problem.
    pub(super) async fn end(&self) -> Option<String> {
        self.stop.cancel();
        let life = self.lock_life().take()?;
        let Ok(badly) = life.await else {
            tracing::error!(server = %self.name, "the task of a tool server failed");
            return Some("its task failed".to_owned());
        };
        badly
    }

    /// Calls a tool. The error says what went wrong, for the model.
    pub(super) async fn call(
        self: &Arc<Self>,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutput, String> {
        let connection = self.connection().await?;
        let tools = self.view().map(|view| view.tools).unwrap_or_default();
        // The view shows the tools of the daemon's own process.
        if self.own.is_none() && tools.iter().all(|one| one.served.tool != tool) {
            let names: Vec<&str> = tools.iter().map(|one| one.served.tool.as_str()).collect();
            return Err(format!(
                "the server has no tool {tool:?} any more; its tools are {}",
                names.join(", ")
            ));
        }
        let called = connection
            .call(tool, arguments, self.table.call_timeout)
            .await;
        match called {
            Ok(mut output) => {
                output.text = self.without_secrets(&output.text);
                Ok(output)
            }
            Err(why) => Err(self.without_secrets(&why)),
        }
    }

    /// Starts a server of a session and returns the tools that it lists.
    pub(super) async fn list(self: &Arc<Self>) -> Result<Vec<ServedTool>, String> {
        self.connection().await?;
        let offer = self.lock_offered().take();
        Ok(offer.map_or_else(Vec::new, |offer| offer.tools.to_vec()))
    }

    /// Returns the connection; without one, a single start is tried.
    async fn connection(self: &Arc<Self>) -> Result<McpConnection, String> {
        let mut link = self.link.subscribe();
        let gone = || "it was stopped".to_owned();
        let over = link
            .wait_for(|link| !matches!(link, McpConnectionState::Ending))
            .await;
        drop(over.map_err(|_| gone())?);
        self.begin();
        let settled = |link: &McpConnectionState| {
            matches!(
                link,
                McpConnectionState::Up(_) | McpConnectionState::Down(_)
            )
        };
        let link = link.wait_for(settled).await.map_err(|_| gone())?;
        match &*link {
            McpConnectionState::Up(connection) => Ok(connection.clone()),
            McpConnectionState::Down(why) => Err(why.clone().unwrap_or_else(gone)),
            McpConnectionState::Starting | McpConnectionState::Ending => Err(gone()),
        }
    }

    /// Sets its tools. They are stored before they are visible, so that a run that was offered them
    /// finds them after a restart while the server is still starting.
    pub(super) async fn take(&self, offer: Offer) {
        if self.is_leased {
            if self.is_of_session {
                *self.lock_offered() = Some(offer);
            }
            return;
        }
        let before = self.view();
        if before
            .as_ref()
            .is_none_or(|before| before.skipped != offer.skipped)
        {
            for skipped in offer.skipped.iter() {
                tracing::warn!(server = %self.name, tool = skipped.tool, why = skipped.reason, "a tool is not offered");
            }
        }
        let (greeting, is_news) = self.remembered.to_keep();
        if is_news || before.is_none_or(|before| before.tools != offer.tools) {
            self.keep(StoredServer {
                tools: &offer.tools,
                greeting,
            })
            .await;
        }
        self.show(|view| {
            view.tools = offer.tools;
            view.skipped = offer.skipped;
        });
    }

    /// Stores this for the next daemon process.
    async fn keep(&self, kept: StoredServer<&[ServedTool]>) {
        let Some(rows) = &self.shared.options.rows else {
            return;
        };
        let known = KnownServer {
            name: self.name.clone(),
            digest: self.digest(),
            // Texts, numbers and maps with text keys, so this cannot fail.
            tools: serde_json::to_string(&kept).unwrap_or_default(),
        };
        if let Err(fault) = rows.keep_server(known).await {
            tracing::warn!(%fault, server = %self.name, "the tools of a server were not stored");
        }
    }

    /// Starts its program or creates the transport to its URL.
    pub(super) fn wire(
        self: &Arc<Self>,
        environment: Environment,
        program: &mut Option<Service>,
        closed: CancellationToken,
    ) -> Result<Wire, String> {
        let table = &self.table;
        let clock = &self.shared.options.clock;
        let probe_timeout = table.start_timeout / PROBE_PART;
        let command = match (&table.command, &table.url) {
            (Some(command), None) => command,
            (None, Some(url)) => {
                let http = http::transport(url, table)?;
                return Ok(Wire::over(
                    Channel::Http(Box::new(http)),
                    probe_timeout,
                    clock,
                ));
            }
            (None, None) => return Err("neither command nor url is set for it".to_owned()),
            (Some(_), Some(_)) => return Err("both command and url are set for it".to_owned()),
        };
        let options = &self.shared.options;
        let argv = [std::slice::from_ref(command), &table.args].concat();
        let folder: PathBuf = table.cwd.clone().unwrap_or_else(|| options.folder.clone());
        let server = self.name.clone();
        let mut without_secrets = self.pieces_without_secrets();
        let service = options.processes.open(
            options.clock.new_id(),
            Program {
                argv,
                environment,
                folder,
                input: ProgramInput::Pipe,
                time: None,
                keep: STDERR_KEPT,
                detach: false,
            },
            move |said| {
                let said = without_secrets(&String::from_utf8_lossy(said));
                if !said.is_empty() {
                    tracing::debug!(server, said = said.trim_end());
                }
            },
        );
        let service = program.insert(service.map_err(|why| format!("it was not started: {why}"))?);
        let (Some(input), Some(output)) = (service.input.take(), service.output.take()) else {
            return Err("its pipes are not available".to_owned());
        };
        let noisy = Arc::downgrade(self);
        let noise = move |line: String| {
            if let Some(server) = noisy.upgrade() {
                server.record_stray_line(line);
            }
        };
        let pipes = Pipes::new(input, output, noise, closed, clock);
        Ok(Wire::over(Channel::Pipes(pipes), probe_timeout, clock))
    }

    pub(super) fn view(&self) -> Option<ServerView> {
        self.shared.view(&self.name)
    }

    /// Changes its view, unless it was stopped: another server may have its name by then.
    pub(super) fn show(&self, change: impl FnOnce(&mut ServerView)) {
        if !self.is_leased {
            self.shared.show(&self.name, &self.stop, change);
        }
    }

    fn lock_offered(&self) -> MutexGuard<'_, Option<Offer>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_life(&self) -> MutexGuard<'_, Option<LifecycleTask>> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock_redactor(&self) -> MutexGuard<'_, Redactor> {
        self.redactor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
