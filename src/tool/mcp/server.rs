//! One server: started when it is wanted, watched while it answers, ended with everything that it
//! has started. A server that has ended is started again by the next call, once.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::connection::{Changes, Connection, Way, Wire};
use super::ending::{badly_closed, ended, or_ended, with_said, words};
use super::http;
use super::names::{Offer, offer};
use super::noise::Noise;
use super::own::Own;
use super::pipes::Pipes;
use super::servers::Shared;
use crate::config::ServerTable;
use crate::contract::servers::{KnownServer, ServedTool, ServerState, ServerView};
use crate::kernel::env::Environment;
use crate::kernel::redact::Redactor;
use crate::process::{Input, Program, Service};
use crate::tool::ToolOutput;
use crate::tool::blocking::off_thread;

/// So much of what a program writes beside its messages is kept, bytes.
const STDERR_KEPT: usize = 16 * 1024;

/// A server.
pub(super) struct Server {
    pub(super) name: String,
    /// How it is started or reached.
    pub(super) table: ServerTable,
    pub(super) shared: Arc<Shared>,
    link: watch::Sender<Link>,
    /// Of one run alone: what is seen of the server under this name is another connection's.
    is_leased: bool,
    /// Of whom alone, where it is started in that run's environment.
    pub(super) own: Option<Own>,
    /// It is not wanted any more.
    stop: CancellationToken,
    life: Mutex<Option<Life>>,
    pub(super) noise: Noise,
    /// Takes what its table gives it to keep for itself out of what it says; made at each start.
    redactor: Mutex<Redactor>,
}

/// From a start to an end; gives what went wrong with the end.
type Life = JoinHandle<Option<String>>;

/// How far its connection is.
enum Link {
    /// There is none, for this reason if it was tried.
    Down(Option<String>),
    Starting,
    Up(Connection),
    /// What is left of it is ended.
    Ending,
}

impl Server {
    /// A server that nobody has started.
    pub(super) fn new(name: &str, table: &ServerTable, shared: &Arc<Shared>) -> Arc<Server> {
        Self::make(name, table, shared, false, None)
    }

    /// The same server once more, for one run alone; in its environment, if that is given.
    pub(super) fn leased(&self, own: Option<Own>) -> Arc<Server> {
        Self::make(&self.name, &self.table, &self.shared, true, own)
    }

    fn make(
        name: &str,
        table: &ServerTable,
        shared: &Arc<Shared>,
        is_leased: bool,
        own: Option<Own>,
    ) -> Arc<Server> {
        Arc::new(Server {
            is_leased,
            own,
            name: name.to_owned(),
            table: table.clone(),
            shared: Arc::clone(shared),
            link: watch::channel(Link::Down(None)).0,
            stop: CancellationToken::new(),
            life: Mutex::default(),
            noise: Noise::default(),
            redactor: Mutex::default(),
        })
    }

    /// Is it a program of this machine?
    fn is_local(&self) -> bool {
        self.table.url.is_none()
    }

    /// As it is seen before its first start, with the tools that an earlier one gave.
    pub(super) fn unseen(&self, known: Option<&KnownServer>) -> ServerView {
        let known = known.filter(|known| known.digest == self.digest());
        let tools: Vec<ServedTool> = known
            .and_then(|known| serde_json::from_str(&known.tools).ok())
            .unwrap_or_default();
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
            noise: 0,
            noise_lines: Vec::new(),
            since: self.shared.options.clock.now(),
        }
    }

    /// Of how it is started or reached, without any secret: names of variables and headers, not
    /// their values.
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

    /// Begins a start, unless there is a connection or one comes.
    pub(super) fn begin(self: &Arc<Self>) {
        // Whoever ends it finds the life that was begun, or it is not begun.
        let mut life = self.lock_life();
        if self.stop.is_cancelled() {
            return;
        }
        let begins = self.link.send_if_modified(|link| {
            let is_down = matches!(link, Link::Down(_));
            if is_down {
                *link = Link::Starting;
            }
            is_down
        });
        if begins {
            // Before anybody can look: that it was not started is not to be told any more.
            self.show(|view| view.state = ServerState::Starting);
            *life = Some(tokio::spawn(Arc::clone(self).live()));
        }
    }

    /// Ends it, and waits until nothing of it is left; what went wrong with that.
    pub(super) async fn end(&self) -> Option<String> {
        self.stop.cancel();
        let life = self.lock_life().take()?;
        let Ok(badly) = life.await else {
            tracing::error!(server = %self.name, "the task of a tool server failed");
            return Some("its task failed".to_owned());
        };
        badly
    }

    /// Calls a tool. The error says what went wrong, in words for the model.
    pub(super) async fn call(
        self: &Arc<Self>,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutput, String> {
        let connection = self.connection().await?;
        let tools = self.view().map(|view| view.tools).unwrap_or_default();
        // What is seen are the tools of the daemon's own process.
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

    /// The connection; where there is none, one start is tried.
    async fn connection(self: &Arc<Self>) -> Result<Connection, String> {
        let mut link = self.link.subscribe();
        let gone = || "it was stopped".to_owned();
        let over = link.wait_for(|link| !matches!(link, Link::Ending)).await;
        drop(over.map_err(|_| gone())?);
        self.begin();
        let settled = |link: &Link| matches!(link, Link::Up(_) | Link::Down(_));
        let link = link.wait_for(settled).await.map_err(|_| gone())?;
        match &*link {
            Link::Up(connection) => Ok(connection.clone()),
            Link::Down(why) => Err(why.clone().unwrap_or_else(gone)),
            Link::Starting | Link::Ending => Err(gone()),
        }
    }

    /// From a start to an end; what went wrong with that end.
    async fn live(self: Arc<Self>) -> Option<String> {
        self.noise.forget();
        self.show(|view| {
            view.starts += 1;
            view.noise = 0;
            view.noise_lines.clear();
        });
        let closed = CancellationToken::new();
        let mut program = None;
        let reading = Arc::clone(&self);
        let wire = match off_thread(move || reading.environment()).await {
            Ok(environment) => self.wire(environment, &mut program, closed.clone()),
            Err(why) => Err(why),
        };
        self.show(|view| view.pid = program.as_ref().map(Service::pid));
        let why = match wire {
            Ok(wire) => self.serve(wire, &mut program, &closed).await,
            Err(why) => Some(why),
        };
        self.link.send_replace(Link::Ending);
        let (why, badly) = match program {
            None => (why, None),
            Some(program) => {
                let ended = program.end().await;
                if !ended.left.is_empty() {
                    tracing::error!(server = %self.name, pids = ?ended.left, "a tool server could not be ended");
                }
                // One that died by itself was not asked to end.
                let badly = badly_closed(&ended, why.is_none());
                (why.map(|why| with_said(why, ended.said.as_ref())), badly)
            }
        };
        let why = why.map(|why| self.without_secrets(&why));
        if let Some(why) = &why {
            tracing::warn!(server = %self.name, why, "a tool server has failed");
        }
        self.show(|view| {
            view.pid = None;
            view.state = match &why {
                Some(_) => ServerState::Failed,
                None => ServerState::Stopped,
            };
            view.last_error.clone_from(&why);
        });
        let has_failed = why.is_some();
        self.link.send_replace(Link::Down(why));
        if has_failed && !self.is_leased {
            self.try_later().await;
        }
        badly
    }

    /// Of a server whose tools nobody knows no call could try it again: time does.
    async fn try_later(self: &Arc<Self>) {
        let view = self.view();
        let Some(view) = view.filter(|view| view.tools.is_empty()) else {
            return;
        };
        let doubled = view.starts.saturating_sub(1).min(8);
        let pause = (FIRST_PAUSE * (1 << doubled)).min(LONGEST_PAUSE);
        tokio::select! {
            () = tokio::time::sleep(pause) => self.begin(),
            () = self.stop.cancelled() => {}
        }
    }

    /// Greets it and watches it; why it ended, `None` if it was told to.
    async fn serve(
        &self,
        wire: Wire,
        program: &mut Option<Service>,
        closed: &CancellationToken,
    ) -> Option<String> {
        let opening = async {
            let connection = Connection::open(wire).await?;
            let tools = connection.tools().await?;
            Ok::<_, String>((connection, tools))
        };
        let limit = self.table.start_timeout;
        let opened = tokio::select! {
            opened = tokio::time::timeout(limit, opening) => opened,
            ending = ended(program) => return Some(format!("it ended at its start, {}", words(ending))),
            () = self.stop.cancelled() => return None,
        };
        let (connection, tools) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(why)) => return Some(or_ended(program, "it ended at its start", why).await),
            Err(_) => {
                let limit = humantime::format_duration(limit);
                return Some(format!(
                    "it was not ready after {limit} (start_timeout), and was ended"
                ));
            }
        };
        self.take(offer(&self.name, self.is_local(), tools)).await;
        self.show(|view| {
            view.state = match self.noise.is_much() {
                true => ServerState::Noisy,
                false => ServerState::Ready,
            };
            view.protocol = connection.protocol();
            view.last_error = None;
        });
        self.link.send_replace(Link::Up(connection.clone()));
        let why = self.watch(&connection, program, closed).await;
        connection.close(why.as_deref().unwrap_or("it was stopped"));
        why
    }

    /// Follows its tools until it ends; why, `None` if it was told to.
    async fn watch(
        &self,
        connection: &Connection,
        program: &mut Option<Service>,
        closed: &CancellationToken,
    ) -> Option<String> {
        let mut following = std::pin::pin!(self.follow(connection));
        tokio::select! {
            // What ends it on purpose may be found by its program first.
            biased;
            () = self.stop.cancelled() => None,
            ending = ended(program) => Some(format!("it ended, {}", words(ending))),
            () = closed.cancelled() => {
                Some(or_ended(program, "it ended", "it closed its output".to_owned()).await)
            }
            () = connection.broken() => {
                Some(or_ended(program, "it ended", "it does not answer any more".to_owned()).await)
            }
            never = &mut following => match never {},
        }
    }

    /// Takes its tools anew whenever it says that they have changed.
    async fn follow(&self, connection: &Connection) -> std::convert::Infallible {
        let mut changes: Changes = connection.changes().await;
        loop {
            changes.next().await;
            let listed = tokio::time::timeout(self.table.call_timeout, connection.tools()).await;
            match listed {
                Ok(Ok(tools)) => self.take(offer(&self.name, self.is_local(), tools)).await,
                Ok(Err(why)) => self.show(|view| view.last_error = Some(why.clone())),
                Err(_) => self.show(|view| {
                    view.last_error = Some("it did not list its changed tools in time".to_owned());
                }),
            }
        }
    }

    /// These are its tools now. They are kept before anybody sees them: a run that was offered
    /// them finds them again after a restart, while the server still starts.
    async fn take(&self, offer: Offer) {
        if self.is_leased {
            return;
        }
        for skipped in offer.skipped.iter() {
            tracing::warn!(server = %self.name, tool = skipped.tool, why = skipped.reason, "a tool is not offered");
        }
        let before = self.view().map(|view| view.tools);
        if before.is_none_or(|before| before != offer.tools) {
            self.keep(&offer.tools).await;
        }
        self.show(|view| {
            view.tools = offer.tools;
            view.skipped = offer.skipped;
        });
    }

    /// Keeps its tools for the next start of the daemon.
    async fn keep(&self, tools: &[ServedTool]) {
        let Some(rows) = &self.shared.options.rows else {
            return;
        };
        let known = KnownServer {
            name: self.name.clone(),
            digest: self.digest(),
            // Texts, numbers and maps with text keys.
            tools: serde_json::to_string(tools).unwrap_or_default(),
        };
        if let Err(fault) = rows.keep_server(known).await {
            tracing::warn!(%fault, server = %self.name, "the tools of a server were not kept");
        }
    }

    /// Starts its program or finds the way to its address.
    fn wire(
        self: &Arc<Self>,
        environment: Environment,
        program: &mut Option<Service>,
        closed: CancellationToken,
    ) -> Result<Wire, String> {
        let table = &self.table;
        let command = match (&table.command, &table.url) {
            (Some(command), None) => command,
            (None, Some(url)) => {
                let http = http::way(url, table)?;
                return Ok(Wire::over(Way::Http(Box::new(http))));
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
                input: Input::Talk,
                time: None,
                keep: STDERR_KEPT,
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
            return Err("its pipes are gone".to_owned());
        };
        let noisy = Arc::downgrade(self);
        let noise = move |line: String| {
            if let Some(server) = noisy.upgrade() {
                server.heard(line);
            }
        };
        let pipes = Pipes::new(input, output, noise, closed);
        Ok(Wire::over(Way::Pipes(pipes)))
    }

    fn view(&self) -> Option<ServerView> {
        self.shared.view(&self.name)
    }

    /// Changes what is seen of it. Once it is not wanted any more, another may have its name.
    pub(super) fn show(&self, change: impl FnOnce(&mut ServerView)) {
        if !self.is_leased {
            self.shared.show(&self.name, &self.stop, change);
        }
    }

    fn lock_life(&self) -> MutexGuard<'_, Option<Life>> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock_redactor(&self) -> MutexGuard<'_, Redactor> {
        self.redactor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server that has failed without any tool is tried again after this long, the next time after
/// twice as long, and so on up to the second.
const FIRST_PAUSE: Duration = Duration::from_secs(15);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
