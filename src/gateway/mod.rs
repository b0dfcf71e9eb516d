//! The network entry points: JSON-RPC over HTTP and WebSocket, on a TCP port and a Unix socket.
//! Methods translate requests into calls of the registry and results back; no decisions are made
//! here. The daemon calls [`serve`].

pub(crate) mod access;
mod discover;
mod http;
mod local_api;
mod methods;
mod nodes;
mod rpc;
mod server;
#[cfg(test)]
mod tests;

use crate::gateway::access::auth;
use crate::gateway::access::peer;
use crate::gateway::http::metrics;
use crate::gateway::methods::method;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ipnet::IpNet;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::config::{HookTables, OpenAiOptions};
use crate::contract::control::Control;
use crate::contract::servers::ServersSeen;
use crate::contract::webhooks::WebhookBoard;
pub use crate::gateway::access::connection_limits::Connections;
pub use crate::gateway::access::peer::Origins;
pub use crate::gateway::discover::openrpc;
pub use crate::gateway::nodes::{GatewayKey, NodeHub, NodeHubParts};
use crate::kernel::ids::BootId;
use crate::kernel::time::Timestamp;
use crate::registry::{Principal, Registry};
use crate::tls::ServerIdentity;

/// What the gateway needs from the rest of the daemon.
pub struct GatewayParts {
    /// Executes the calls.
    pub registry: Registry,
    /// Controls the daemon process: phase, drain, settings.
    pub control: Arc<dyn Control>,
    /// Source of time and ids.
    pub clock: Clock,
    /// Token that clients must send.
    pub token: String,
    /// Principal of clients with the token, and of processes of the daemon's own user on the Unix
    /// socket.
    pub principal: Principal,
    /// Path of the token file, named in the hint of errors that require the token.
    pub token_file: PathBuf,
    /// Determines the origin of a process that connects to the Unix socket.
    pub origins: Origins,
    /// Id of the daemon's current boot.
    pub boot: BootId,
    /// When this boot began.
    pub started_at: Timestamp,
    /// URL of the daemon, for `gateway.status`.
    pub url: String,
    /// Path of the Unix socket, for `gateway.status`.
    pub socket: Option<String>,
    /// Live view of the MCP servers.
    pub servers: ServersSeen,
    /// The paired nodes.
    pub nodes: NodeHub,
    /// The state of each webhook.
    pub webhooks: WebhookBoard,
    /// Accepted host names and origins; a reload may change them.
    pub names: watch::Receiver<Names>,
    /// What clients of the OpenAI-compatible API see; a reload may change it.
    pub openai: watch::Receiver<OpenAiOptions>,
    /// The inbound webhooks by name; a reload may change them.
    pub hooks: watch::Receiver<HookTables>,
    /// Limits for clients.
    pub limits: ClientLimits,
}

/// Names under which callers may address the daemon, in addition to its own, and the proxies through
/// which they may come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Accepted host names, in addition to loopback and the address that was called;
    /// case-insensitive.
    pub hosts: Vec<String>,
    /// Origins of web pages that may call it, in addition to its own; `scheme://host[:port]`.
    pub origins: Vec<String>,
    /// Proxies that are believed what they say about the address of a client.
    pub trusted_proxies: Vec<IpNet>,
}

/// Limits for clients.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Maximum number of simultaneous connections, per kind of peer.
    pub connections: Connections,
    /// Maximum size of a message in bytes.
    pub payload: usize,
    /// Maximum size of a response in bytes.
    pub reply: usize,
    /// Maximum number of bytes of all requests in progress, over all connections.
    pub request_bytes: usize,
    /// The same limit for programs of runs and processes of unknown origin.
    pub program_bytes: usize,
    /// Maximum number of calls in flight per connection, waits excluded.
    pub in_flight: u32,
    /// Maximum number of waits in flight per connection.
    pub waits: u32,
    /// Maximum number of event subscriptions per connection.
    pub subscriptions: u32,
    /// Maximum number of entries in a batch.
    pub batch: u32,
    /// A connection is closed if its client reads nothing of a pending write for this long.
    pub write_timeout: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        ClientLimits {
            connections: Connections::within(u64::MAX),
            payload: 10 * 1024 * 1024,
            reply: 10 * 1024 * 1024,
            request_bytes: 256 * 1024 * 1024,
            program_bytes: 32 * 1024 * 1024,
            in_flight: 64,
            waits: 1024,
            subscriptions: 256,
            batch: 64,
            write_timeout: Duration::from_secs(60),
        }
    }
}

/// Context of one call.
struct CallContext {
    shared: Arc<GatewayState>,
    /// Principal that makes the call.
    principal: Arc<Principal>,
}

impl Deref for CallContext {
    type Target = GatewayState;

    fn deref(&self) -> &GatewayState {
        &self.shared
    }
}

/// State shared by all calls.
struct GatewayState {
    token_file: PathBuf,
    registry: Registry,
    control: Arc<dyn Control>,
    servers: ServersSeen,
    nodes: NodeHub,
    webhooks: WebhookBoard,
    clock: Clock,
    boot: BootId,
    started_at: Timestamp,
    url: String,
    socket: Option<String>,
    limits: ClientLimits,
    document: OnceLock<discover::Document>,
}

/// The sockets that accept clients.
pub struct Listeners {
    /// TCP; requires the token.
    pub tcp: TcpListener,
    /// The certificate in force, if TCP connections are encrypted; a reload may replace it.
    pub identity: Option<watch::Receiver<Arc<ServerIdentity>>>,
    /// Unix socket for the daemon's own user; `None` if there is none.
    pub unix: Option<UnixListener>,
}

/// Serves clients on `listeners` until `shutdown` is cancelled and every call in flight has been
/// answered. The registry ends open waits when the daemon drains; a caller that needs a deadline
/// for the remaining calls wraps this in a timeout.
pub async fn serve(
    listeners: Listeners,
    state: GatewayParts,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let GatewayParts {
        registry,
        control,
        clock,
        token,
        principal,
        token_file,
        origins,
        boot,
        started_at,
        url,
        socket,
        servers,
        nodes,
        webhooks,
        names,
        openai,
        hooks,
        limits,
    } = state;
    nodes.follow(Arc::clone(&control));
    let shared = GatewayState {
        token_file,
        registry,
        control: Arc::clone(&control),
        servers,
        nodes: nodes.clone(),
        webhooks,
        clock: clock.clone(),
        boot,
        started_at,
        url,
        socket,
        limits,
        document: OnceLock::new(),
    };
    let refused_delivery = http::hooks::audit_of(shared.registry.clone());
    let metrics = metrics::of(shared.registry.clone(), Arc::clone(&control));
    let issued = Arc::clone(shared.registry.access_tokens());
    let methods = method::table(shared);
    let guard = auth::Guard::new(&token, issued, names, clock.clone());
    let dispatcher = rpc::Dispatcher::new(methods, control, clock, limits);
    let gate = peer::PeerGate::new(guard, principal).with_origins(origins);
    let parts = HttpParts {
        metrics,
        nodes,
        openai,
        hooks,
        refused_delivery,
    };
    open(listeners, gate, dispatcher, parts, shutdown).await
}

/// What the HTTP routes need beside the methods.
struct HttpParts {
    metrics: metrics::Scrape,
    nodes: NodeHub,
    openai: watch::Receiver<OpenAiOptions>,
    hooks: watch::Receiver<HookTables>,
    refused_delivery: http::hooks::AuditRefusal,
}

/// Serves any table of methods; the tests use it with methods of their own.
async fn open(
    listeners: Listeners,
    gate: peer::PeerGate,
    dispatcher: rpc::Dispatcher,
    parts: HttpParts,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let door = http::HttpGateway {
        gate,
        dispatcher: Arc::new(dispatcher),
        parts,
        shutdown,
        tasks: TaskTracker::new(),
    };
    server::accept(listeners, Arc::new(door)).await
}
