//! The doors: JSON-RPC over HTTP and WebSocket. Methods translate the wire into calls of the
//! registry and its answers back; nothing is decided here. The daemon calls [`serve`].

mod about;
mod agents;
mod auth;
mod convert;
mod discover;
mod envelope;
mod http;
mod method;
mod page;
mod rpc;
mod runs;
mod server;
mod sessions;
mod socket;
mod status;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, OnceLock};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::contract::control::Control;
use crate::kernel::ids::BootId;
use crate::kernel::time::Timestamp;
use crate::registry::{Principal, Registry};

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
    /// On whose behalf its holders speak.
    pub principal: Principal,
    /// This life of the process.
    pub boot: BootId,
    /// When it began.
    pub started_at: Timestamp,
    /// Where clients reach it, for `gateway.status`.
    pub url: String,
    /// What can be configured.
    pub options: Options,
}

/// What can be configured of the doors.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Host names under which the daemon is reached, besides those of this machine's loopback
    /// and the address that was called.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may call it, besides its own; `scheme://host[:port]`.
    pub allowed_origins: Vec<String>,
    /// How much clients may ask for.
    pub limits: Limits,
}

/// How much clients may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time.
    pub connections: usize,
    /// Bytes of one message.
    pub payload: usize,
    /// Bytes of one answer.
    pub reply: usize,
    /// Bytes of all requests being worked on, over all connections.
    pub request_bytes: usize,
    /// Calls in flight on one connection, without waits.
    pub in_flight: u32,
    /// Waits in flight on one connection.
    pub waits: u32,
    /// Entries of a batch.
    pub batch: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 4096,
            payload: 10 * 1024 * 1024,
            reply: 10 * 1024 * 1024,
            request_bytes: 256 * 1024 * 1024,
            in_flight: 64,
            waits: 1024,
            batch: 64,
        }
    }
}

/// What the methods work with.
struct Context {
    registry: Registry,
    control: Arc<dyn Control>,
    clock: Clock,
    principal: Principal,
    boot: BootId,
    started_at: Timestamp,
    url: String,
    limits: Limits,
    capabilities: OnceLock<Vec<String>>,
    document: OnceLock<discover::Document>,
}

/// Serves clients on `listener` until `shutdown` is called and every call in flight has been
/// answered. The registry ends open waits when the daemon drains; a caller that wants a bound
/// on the rest puts one around this.
pub async fn serve(
    listener: TcpListener,
    state: State,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let State {
        registry,
        control,
        clock,
        token,
        principal,
        boot,
        started_at,
        url,
        options,
    } = state;
    let context = Context {
        registry,
        control: Arc::clone(&control),
        clock: clock.clone(),
        principal,
        boot,
        started_at,
        url,
        limits: options.limits,
        capabilities: OnceLock::new(),
        document: OnceLock::new(),
    };
    let methods = method::table(context).map_err(io::Error::other)?;
    let guard = auth::Guard::new(
        &token,
        &options.allowed_hosts,
        &options.allowed_origins,
        clock.clone(),
    );
    let dispatcher = rpc::Dispatcher::new(methods, control, clock, options.limits);
    open(listener, guard, dispatcher, shutdown).await
}

/// The doors around any table of methods.
async fn open(
    listener: TcpListener,
    guard: auth::Guard,
    dispatcher: rpc::Dispatcher,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let door = http::Door {
        guard,
        dispatcher: Arc::new(dispatcher),
        shutdown,
        tasks: TaskTracker::new(),
    };
    server::accept(listener, Arc::new(door)).await
}
