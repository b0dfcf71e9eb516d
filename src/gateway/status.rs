//! `gateway.*`.

use std::sync::Arc;

use jsonrpsee::core::RegisterMethodError;

use super::Context;
use super::method::Table;
use crate::contract::control::Phase;
use crate::kernel::fault::{Fault, Kind};
use crate::wire::gateway as wire;
use crate::wire::{PROTOCOL, gateway::Empty};

/// The daemon's version.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) fn register(table: &mut Table) -> Result<(), RegisterMethodError> {
    table.method("gateway.hello", hello)?;
    table.method("gateway.ping", ping)?;
    table.method("gateway.status", status)?;
    table.method("gateway.drain", drain)
}

async fn hello(context: Arc<Context>, params: wire::Hello) -> Result<wire::Welcome, Fault> {
    if let Some(range) = params.protocol
        && !(range.min..=range.max).contains(&PROTOCOL)
    {
        return Err(Fault::params(
            "protocol",
            format!(
                "the client speaks {} to {}, this daemon speaks {PROTOCOL}",
                range.min, range.max
            ),
        )
        .hint("use a client and a daemon of about the same age")
        .with("supported", vec![PROTOCOL]));
    }
    if let Some(client) = params.client {
        tracing::debug!(name = %client.name, version = %client.version, "a client says hello");
    }
    let limits = context.limits;
    Ok(wire::Welcome {
        protocol: PROTOCOL,
        version: VERSION.to_owned(),
        store_id: context.registry.store_id().to_owned(),
        capabilities: context.capabilities.get().cloned().unwrap_or_default(),
        limits: wire::Limits {
            payload: limits.payload as u64,
            reply: limits.reply as u64,
            in_flight: limits.in_flight,
            waits: limits.waits,
            batch: limits.batch,
        },
        principal: wire::PrincipalInfo {
            org: context.principal.org.clone(),
            user: context.principal.user.clone(),
            scopes: vec!["admin".to_owned()],
        },
        server_time: context.clock.now(),
    })
}

async fn ping(_: Arc<Context>, _: wire::NoParams) -> Result<Empty, Fault> {
    Ok(Empty {})
}

async fn status(context: Arc<Context>, _: wire::NoParams) -> Result<wire::Status, Fault> {
    let counts = context.registry.counts().await?;
    let catalog = context.registry.catalog();
    let agent = catalog.get(catalog.default_agent().as_str())?;
    Ok(wire::Status {
        version: VERSION.to_owned(),
        protocol: PROTOCOL,
        pid: std::process::id(),
        boot_id: context.boot,
        started_at: context.started_at,
        uptime_ms: context.clock.now().since(context.started_at),
        phase: phase_name(context.control.phase()).to_owned(),
        store_id: context.registry.store_id().to_owned(),
        url: context.url.clone(),
        socket: context.socket.clone(),
        default_agent: agent.id.into(),
        model: agent.model,
        counts: wire::Counts {
            queued: counts.queued,
            running: counts.running,
            paused: counts.paused,
            settling: counts.settling,
            pending_announces: counts.pending_announces,
        },
    })
}

async fn drain(context: Arc<Context>, params: wire::Drain) -> Result<Empty, Fault> {
    let wire::Then::Stop = params.then;
    if context.control.phase() == Phase::Draining {
        return Err(Fault::new(Kind::Conflict, "the daemon is stopping already")
            .hint("wait until it is gone"));
    }
    context.control.drain();
    Ok(Empty {})
}

/// How far the daemon has come, as one word.
pub(super) fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting { .. } => "starting",
        Phase::Ready => "ready",
        Phase::Draining => "draining",
    }
}
