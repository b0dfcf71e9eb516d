//! Paired nodes: the two routes on which they connect, and the hub through which they are called.
//! [`route`] is called by the HTTP routes, [`NodeHub`] by the methods `nodes.*` and, as
//! [`Nodes`](crate::contract::nodes::Nodes), by tools and the registry.

mod caller;
mod calls;
mod channel;
mod hub;
mod keys;
mod link;
mod operate;
mod orphans;
mod outbox;
mod pairing;
#[cfg(test)]
mod pairing_tests;
mod proof;
mod waiting;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::{HeaderMap, Request};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

pub use hub::{NodeHub, NodeHubParts};
pub use keys::GatewayKey;
pub(super) use operate::{NodeSummary, WaitingSummary};

use super::access::auth::bearer;
use super::access::connection_limits::Seat;
use super::access::peer::Peer;
use super::http::{HttpGateway, HttpResponse, switch_to_websocket};
use crate::kernel::fault::Fault;

/// Where a node connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeRoute {
    /// `/pair`, without a token.
    Pair,
    /// `/node`, with the token of a paired node.
    Link,
}

/// Answers the upgrade of a node's connection; the connection is served in its own task.
pub(super) fn route(
    door: &Arc<HttpGateway>,
    route: NodeRoute,
    peer: &Peer,
    seat: &Arc<Seat>,
    request: Request<Incoming>,
) -> Result<HttpResponse, Fault> {
    door.gate.check_names(peer, request.headers())?;
    match route {
        NodeRoute::Pair => pair(door, peer, seat, request),
        NodeRoute::Link => link(door, peer, seat, request),
    }
}

fn pair(
    door: &Arc<HttpGateway>,
    peer: &Peer,
    seat: &Arc<Seat>,
    request: Request<Incoming>,
) -> Result<HttpResponse, Fault> {
    door.gate.check_attempts(peer)?;
    let address = address(peer);
    let held = door.parts.nodes.inner.waiting.seat(address)?;
    let (answered, upgraded) = switch_to_websocket(request)?;
    seat.hand_over();
    let (door, peer) = (Arc::clone(door), *peer);
    let tasks = door.tasks.clone();
    tasks.spawn(async move {
        match upgraded.await {
            Ok(io) => {
                let (hub, shutdown) = (door.parts.nodes.clone(), door.shutdown.clone());
                let io = TokioIo::new(io);
                let end = pairing::serve(io, hub, address, shutdown).await;
                if end == pairing::PairingEnd::Guessed {
                    door.gate.count_failure(&peer);
                }
            }
            Err(error) => tracing::debug!(%error, "a WebSocket upgrade failed"),
        }
        drop(held);
    });
    Ok(answered)
}

fn link(
    door: &Arc<HttpGateway>,
    peer: &Peer,
    seat: &Arc<Seat>,
    request: Request<Incoming>,
) -> Result<HttpResponse, Fault> {
    let Some(node) = token(request.headers()).and_then(|token| door.parts.nodes.by_token(token))
    else {
        return Err(door.gate.refuse_token(peer));
    };
    let proving = door.parts.nodes.begin_proof(node)?;
    let (answered, upgraded) = switch_to_websocket(request)?;
    seat.hand_over();
    let (door, peer) = (Arc::clone(door), *peer);
    let tasks = door.tasks.clone();
    tasks.spawn(async move {
        match upgraded.await {
            Ok(io) => {
                let (hub, shutdown) = (door.parts.nodes.clone(), door.shutdown.clone());
                if !link::serve(TokioIo::new(io), hub, (node, proving), shutdown).await {
                    door.gate.count_failure(&peer);
                }
            }
            Err(error) => tracing::debug!(%error, "a WebSocket upgrade failed"),
        }
    });
    Ok(answered)
}

fn token(headers: &HeaderMap) -> Option<&str> {
    bearer(headers).and_then(|token| std::str::from_utf8(token).ok())
}

/// The address by which connections are limited.
fn address(peer: &Peer) -> IpAddr {
    match peer {
        Peer::Tcp(ends) => ends.peer,
        Peer::Local(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
    }
}
