//! `abide mcp-serve`: the MCP server over standard input and output, for hosts that start programs.
//! Its calls go to the daemon over a connection that is made anew after a restart of the daemon,
//! while the host's pipes stay open.

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use futures_util::{StreamExt, stream};
use rmcp::service::{ServerInitializeError, serve_server};
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::{LocalSet, spawn_local};

use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::link::discover::Where;
use crate::cli::link::start;
use crate::cli::output::print;
use crate::client::ClientError;
use crate::clock::Clock;
use crate::contract::BoxFuture;
use crate::doors::api::{Api, EventFeed};
use crate::doors::mcp::McpServer;
use crate::kernel::fault::{Fault, Kind};
use crate::wire::error::WireError;
use crate::wire::events::SubscribeEvents;
use crate::wire::method::Method;
use crate::wire::runs::Wait;

/// Maximum number of requests that wait to be taken.
const AHEAD: usize = 64;
/// How long a call is repeated while the daemon starts.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Serve MCP hosts over standard input and output
///
/// Gives a host of the Model Context Protocol tools that start agents in the background, wait for
/// them and read their results. A daemon is started if none is running, and keeps running
/// afterwards. If the daemon restarts meanwhile, waits go on. Over HTTP, the daemon serves the same
/// at /mcp.
#[derive(Debug, Args)]
#[command(after_help = "claude mcp add abide -- abide mcp-serve
codex mcp add abide -- abide mcp-serve")]
pub(crate) struct McpServe {
    /// Fail calls if no daemon is running
    #[arg(long)]
    no_start: bool,
}

impl McpServe {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let daemon = Daemon {
            connection: Mutex::new(Connection {
                place: common.place.clone(),
                may_start: !self.no_start,
                link: None,
            }),
            clock: Clock::system(),
        };
        let (requests, received) = mpsc::channel(AHEAD);
        let server = McpServer::new(DaemonApi { requests }, Clock::system());
        let local = LocalSet::new();
        let served = local.run_until(async {
            tokio::select! {
                served = serve(server) => served,
                never = Rc::new(daemon).answer_all(received) => match never {},
            }
        });
        Box::pin(served).await
    }
}

/// Serves the host until it closes its pipe.
async fn serve(server: McpServer<DaemonApi>) -> Result<u8, Failure> {
    let pipes = (tokio::io::stdin(), tokio::io::stdout());
    let serving = match serve_server(server, pipes).await {
        Ok(serving) => serving,
        // The host has ended before it said anything.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(0),
        Err(error) => return Err(failed(error)),
    };
    serving.waiting().await.map_err(failed)?;
    Ok(0)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::local("the MCP host cannot be served", error)
}

/// A request of the server, which runs in tasks of its own; connections belong to the command's
/// task.
enum Request {
    Call {
        method: &'static str,
        params: Value,
        reply: oneshot::Sender<Result<Value, WireError>>,
    },
    Follow {
        request: SubscribeEvents,
        reply: oneshot::Sender<Result<EventFeed, WireError>>,
    },
}

/// The API of a daemon, by requests to the command's task.
#[derive(Clone)]
struct DaemonApi {
    requests: mpsc::Sender<Request>,
}

impl DaemonApi {
    async fn ask<T>(
        requests: mpsc::Sender<Request>,
        request: impl FnOnce(oneshot::Sender<Result<T, WireError>>) -> Request,
    ) -> Result<T, WireError> {
        let (reply, answer) = oneshot::channel();
        let sent = requests.send(request(reply)).await;
        match (sent, answer.await) {
            (Ok(()), Ok(answer)) => answer,
            _ => Err(Fault::new(Kind::Unavailable, "this program is ending").into()),
        }
    }
}

impl Api for DaemonApi {
    const OUTLIVES_DAEMON: bool = true;

    fn call(
        &self,
        method: &'static str,
        params: Value,
    ) -> BoxFuture<'static, Result<Value, WireError>> {
        let requests = self.requests.clone();
        Box::pin(DaemonApi::ask(requests, move |reply| Request::Call {
            method,
            params,
            reply,
        }))
    }

    fn follow(&self, request: SubscribeEvents) -> BoxFuture<'static, Result<EventFeed, WireError>> {
        let requests = self.requests.clone();
        Box::pin(DaemonApi::ask(requests, move |reply| Request::Follow {
            request,
            reply,
        }))
    }
}

/// A daemon, over a connection that is made anew when it is lost.
struct Daemon {
    connection: Mutex<Connection>,
    clock: Clock,
}

/// The present connection.
struct Connection {
    place: Where,
    /// Whether a daemon may be started; only before the first connection, since later on it may have
    /// been stopped on purpose.
    may_start: bool,
    link: Option<Rc<DaemonLink>>,
}

/// Carries out `work` unless the requester goes away, and sends the answer.
async fn replied<T>(
    mut reply: oneshot::Sender<Result<T, WireError>>,
    work: impl Future<Output = Result<T, WireError>>,
) {
    let answer = tokio::select! {
        answer = work => answer,
        () = reply.closed() => return,
    };
    // A requester that has gone away needs no answer.
    let _ = reply.send(answer);
}

impl Daemon {
    /// Answers each request in a task of its own, until this is dropped.
    async fn answer_all(self: Rc<Self>, mut requests: mpsc::Receiver<Request>) -> Infallible {
        while let Some(request) = requests.recv().await {
            let daemon = Rc::clone(&self);
            spawn_local(async move {
                match request {
                    Request::Call {
                        method,
                        params,
                        reply,
                    } => replied(reply, daemon.answer(method, params)).await,
                    Request::Follow { request, reply } => {
                        replied(reply, daemon.events(request)).await;
                    }
                }
            });
        }
        std::future::pending().await
    }

    /// The present connection, or a new one.
    async fn link(&self) -> Result<Rc<DaemonLink>, Failure> {
        let mut connection = self.connection.lock().await;
        if let Some(link) = &connection.link {
            return Ok(Rc::clone(link));
        }
        if connection.may_start {
            start::if_none(&connection.place).await?;
        }
        let link = Rc::new(DaemonLink::open(&connection.place).await?);
        connection.may_start = false;
        connection.link = Some(Rc::clone(&link));
        Ok(link)
    }

    /// A connection in the place of `lost`, once the daemon is back.
    async fn link_after(&self, lost: &Rc<DaemonLink>, why: Failure) -> Result<(), Failure> {
        let mut connection = self.connection.lock().await;
        let is_present = |link: &Rc<DaemonLink>| Rc::ptr_eq(link, lost);
        if !connection.link.as_ref().is_some_and(is_present) {
            return Ok(());
        }
        connection.link = None;
        let link = link::reconnect(&connection.place, why, print::note).await?;
        connection.link = Some(Rc::new(link));
        Ok(())
    }

    async fn answer(&self, method: &str, params: Value) -> Result<Value, WireError> {
        let began = self.clock.monotonic();
        loop {
            let link = self.link().await.map_err(no_daemon)?;
            match link.call(method, params.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(ClientError::Rpc(error)) => {
                    let waited = self.clock.monotonic().saturating_sub(began);
                    // It is starting or stopping; then the connection will be lost.
                    if error.kind() != Some(Kind::Unavailable) || waited > START_TIMEOUT {
                        return Err(error);
                    }
                    tokio::time::sleep(link::RETRY).await;
                }
                Err(error @ ClientError::LinkLost(_)) => {
                    let failure = link.failure(error);
                    self.link_after(&link, failure).await.map_err(no_daemon)?;
                    if method == Wait::ROW.name {
                        return Ok(interrupted_wait());
                    }
                }
                Err(error) => return Err(no_daemon(link.failure(error))),
            }
        }
    }

    async fn events(&self, request: SubscribeEvents) -> Result<EventFeed, WireError> {
        let link = self.link().await.map_err(no_daemon)?;
        let events = link.subscribe(&request).await.map_err(no_daemon)?;
        let events = stream::unfold(events, async |mut events| {
            loop {
                match events.next().await? {
                    Ok(event) => return Some((event, events)),
                    Err(error) => tracing::debug!(%error, "an event cannot be read"),
                }
            }
        });
        Ok(events.boxed())
    }
}

/// The answer to a wait whose connection was lost, as if the daemon had drained: its caller waits
/// again for the rest of its time.
fn interrupted_wait() -> Value {
    json!({ "runs": [], "done": false, "cause": "draining" })
}

/// The error of a call that no daemon has answered.
fn no_daemon(failure: Failure) -> WireError {
    let kind = match failure.code {
        exit::AUTH => Kind::Unauthorized,
        exit::NO_DAEMON => Kind::Unavailable,
        _ => Kind::Internal,
    };
    let fault = Fault::new(kind, failure.message);
    match failure.hints.is_empty() {
        true => fault.into(),
        false => fault.hint(failure.hints.join("; ")).into(),
    }
}
