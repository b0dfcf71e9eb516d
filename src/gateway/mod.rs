//! The doors: JSON-RPC over HTTP and WebSocket, on a TCP port and a Unix socket. Methods translate the wire into calls of the
//! registry and its answers back; nothing is decided here. The daemon calls [`serve`].

mod about;
mod agents;
mod approvals;
mod auth;
mod care;
mod convert;
mod discover;
mod entries;
mod envelope;
mod events;
mod http;
mod lifecycle;
mod memory;
mod method;
mod methods;
mod metrics;
mod ops;
mod page;
mod peer;
mod questions;
mod rights;
mod rpc;
mod runs;
mod sample;
mod seats;
mod server;
mod servers;
mod sessions;
mod skills;
mod socket;
mod sse;
mod stall;
mod status;
mod subscriptions;
#[cfg(test)]
mod tests;
mod trust;
mod usage;
mod within;

use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::contract::control::Control;
use crate::contract::servers::ServersSeen;
use crate::kernel::ids::BootId;
use crate::kernel::time::Timestamp;
use crate::registry::{Principal, Registry};
pub use peer::Origins;
pub use seats::Connections;

/// What the doors need of the rest of the daemon.
pub struct State {
    /// Where calls go.
    pub registry: Registry,
    /// The process itself.
    pub control: Arc<dyn Control>,
    /// Time.
    pub clock: Clock,
    /// The token that clients must show.
    pub token: String,
    /// On whose behalf its holders speak, and processes of this process's own user over the Unix
    /// socket.
    pub principal: Principal,
    /// Where the token is, for those who must show it.
    pub token_file: PathBuf,
    /// Where a process comes from.
    pub origins: Origins,
    /// This life of the process.
    pub boot: BootId,
    /// When it began.
    pub started_at: Timestamp,
    /// Where clients reach it, for `gateway.status`.
    pub url: String,
    /// The path of its Unix socket, for `gateway.status`.
    pub socket: Option<String>,
    /// The servers of tools, as they are at each moment.
    pub servers: ServersSeen,
    /// Names by which callers may know it; they may change.
    pub names: watch::Receiver<Names>,
    /// How much clients may ask for.
    pub limits: Limits,
}

/// Names by which callers may know the daemon, besides its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Host names under which it is reached, besides those of this machine's loopback and the
    /// address that was called; any case.
    pub hosts: Vec<String>,
    /// Origins of web pages that may call it, besides its own; `scheme://host[:port]`.
    pub origins: Vec<String>,
}

/// How much clients may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time.
    pub connections: Connections,
    /// Bytes of one message.
    pub payload: usize,
    /// Bytes of one answer.
    pub reply: usize,
    /// Bytes of all requests being worked on, over all connections.
    pub request_bytes: usize,
    /// The same of programs of runs and of processes of unknown origin.
    pub program_bytes: usize,
    /// Calls in flight on one connection, without waits.
    pub in_flight: u32,
    /// Waits in flight on one connection.
    pub waits: u32,
    /// Event subscriptions of one connection.
    pub subscriptions: u32,
    /// Entries of a batch.
    pub batch: u32,
    /// A client that takes nothing of what is written to it is given up after so long.
    pub write_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
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

/// What one call works with.
struct Context {
    shared: Arc<Shared>,
    /// On whose behalf it is made.
    principal: Arc<Principal>,
}

impl Deref for Context {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// What all calls work with.
struct Shared {
    token_file: PathBuf,
    registry: Registry,
    control: Arc<dyn Control>,
    servers: ServersSeen,
    clock: Clock,
    boot: BootId,
    started_at: Timestamp,
    url: String,
    socket: Option<String>,
    limits: Limits,
    capabilities: OnceLock<Vec<String>>,
    described: OnceLock<Vec<discover::Described>>,
    document: OnceLock<discover::Document>,
}

/// Where clients come in.
pub struct Listeners {
    /// For those with the token.
    pub tcp: TcpListener,
    /// For this process's own user.
    pub unix: Option<UnixListener>,
}

/// Serves clients on `listeners` until `shutdown` is called and every call in flight has been
/// answered. The registry ends open waits when the daemon drains; a caller that wants a bound
/// on the rest puts one around this.
pub async fn serve(
    listeners: Listeners,
    state: State,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let State {
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
        names,
        limits,
    } = state;
    let shared = Shared {
        token_file,
        registry,
        control: Arc::clone(&control),
        servers,
        clock: clock.clone(),
        boot,
        started_at,
        url,
        socket,
        limits,
        capabilities: OnceLock::new(),
        described: OnceLock::new(),
        document: OnceLock::new(),
    };
    let metrics = metrics::of(shared.registry.clone());
    let methods = method::table(shared);
    let guard = auth::Guard::new(&token, names, clock.clone());
    let dispatcher = rpc::Dispatcher::new(methods, control, clock, limits);
    let gate = peer::Gate::new(guard, principal).knowing(origins);
    open(listeners, gate, dispatcher, metrics, shutdown).await
}

/// The doors around any table of methods.
async fn open(
    listeners: Listeners,
    gate: peer::Gate,
    dispatcher: rpc::Dispatcher,
    metrics: metrics::Scrape,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let door = http::Door {
        gate,
        dispatcher: Arc::new(dispatcher),
        metrics,
        shutdown,
        tasks: TaskTracker::new(),
    };
    server::accept(listeners, Arc::new(door)).await
}
