//! Handlers of `gateway.hello`, `ping`, `status` and `drain`.

use std::sync::Arc;

use super::method::MethodsBuilder;
use crate::contract::catalog::CatalogScope;
use crate::contract::control::{self, Drain, Phase};
use crate::contract::processes::KeptStep;
use crate::gateway::CallContext;
use crate::kernel::event::Salvage;
use crate::kernel::fault::Fault;
use crate::version::version;
use crate::wire::gateway as wire;
use crate::wire::methods::METHODS;
use crate::wire::{PROTOCOL, gateway::Empty};

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(hello);
    table.method(ping);
    table.method(status);
    table.method(drain);
}

async fn hello(context: Arc<CallContext>, params: wire::Hello) -> Result<wire::Welcome, Fault> {
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
        .hint("use client and daemon versions that support the same protocol")
        .with("supported", vec![PROTOCOL]));
    }
    if let Some(client) = params.client {
        tracing::debug!(name = %client.name, version = %client.version, "a client sent gateway.hello");
    }
    let limits = context.limits;
    Ok(wire::Welcome {
        protocol: PROTOCOL,
        version: version().to_owned(),
        store_id: context.registry.store_id().to_owned(),
        capabilities: capabilities(),
        limits: wire::Limits {
            payload: limits.payload as u64,
            reply: limits.reply as u64,
            in_flight: limits.in_flight,
            waits: limits.waits,
            subscriptions: limits.subscriptions,
            batch: limits.batch,
        },
        principal: wire::PrincipalInfo {
            org: context.principal.org.clone(),
            user: context.principal.user.clone(),
            scopes: context.principal.scopes.iter().collect(),
        },
        server_time: context.clock.now(),
    })
}

/// Names of all methods, sorted.
fn capabilities() -> Vec<String> {
    let mut names: Vec<String> = METHODS.iter().map(|row| row.name.to_owned()).collect();
    names.sort_unstable();
    names
}

async fn ping(_: Arc<CallContext>, _: wire::Ping) -> Result<Empty, Fault> {
    Ok(Empty {})
}

/// The callers of the owner's org also see the state of the daemon itself. The health of a provider
/// says what calls of any org met.
async fn status(context: Arc<CallContext>, _: wire::GetStatus) -> Result<wire::Status, Fault> {
    let who = &context.principal;
    let registry = &context.registry;
    let is_inside = who.is_of_owner_org();
    let catalog = registry.catalog();
    let place = CatalogScope {
        org: &who.org,
        cwd: None,
    };
    let agent = catalog.get(place, catalog.default_agent().as_str())?;
    let files = match is_inside {
        true => FromFiles::read(Arc::clone(&context)).await?,
        false => FromFiles::default(),
    };
    Ok(wire::Status {
        version: version().to_owned(),
        protocol: PROTOCOL,
        pid: std::process::id(),
        boot_id: context.boot,
        started_at: context.started_at,
        uptime_ms: context.clock.now().since(context.started_at),
        phase: phase_name(context.control.phase()).to_owned(),
        store_id: registry.store_id().to_owned(),
        url: context.url.clone(),
        socket: context.socket.clone().filter(|_| is_inside),
        default_agent: agent.id.into(),
        model: agent.model,
        providers: providers(context.control.providers(), is_inside),
        backup: files.backup,
        salvaged: files.salvaged,
        notices: files.notices,
        program: files.program,
        kept_programs: files.kept_programs,
        lanes: match is_inside {
            true => registry.lanes().await?,
            false => Vec::new(),
        },
        counts: registry.counts(who).await?,
    })
}

/// What the status takes from files.
#[derive(Default)]
struct FromFiles {
    backup: Option<wire::NewestBackup>,
    salvaged: Option<wire::Salvaged>,
    notices: Vec<String>,
    program: Option<wire::RunningProgram>,
    kept_programs: Vec<wire::KeptProgram>,
}

impl FromFiles {
    /// Reads them on a thread for files: a slow disk delays no other call.
    async fn read(context: Arc<CallContext>) -> Result<FromFiles, Fault> {
        let reading = tokio::task::spawn_blocking(move || {
            let (registry, control) = (&context.registry, &context.control);
            Ok(FromFiles {
                backup: registry.newest_backup().map(|newest| wire::NewestBackup {
                    path: newest.path.to_string_lossy().into_owned(),
                    made_at: newest.made_at,
                    bytes: newest.bytes,
                }),
                salvaged: registry.salvaged()?.map(salvaged),
                notices: control.notices(),
                program: control.program().map(|file| wire::RunningProgram {
                    path: file.path.to_string_lossy().into_owned(),
                    change: file.change.map(|change| change.as_str().into()),
                }),
                kept_programs: programs(registry.programs()),
            })
        });
        reading.await.map_err(Fault::internal)?
    }
}

fn providers(seen: Vec<control::ModelProvider>, with_health: bool) -> Vec<wire::ModelProvider> {
    let shown = seen.into_iter().map(|provider| wire::ModelProvider {
        name: provider.name,
        kind: provider.kind.to_owned(),
        models: provider.models,
        problem: provider.problem.filter(|_| with_health),
        health: provider
            .health
            .filter(|_| with_health)
            .map(|seen| wire::Health {
                state: seen.condition.as_str().into(),
                since: seen.since,
                until: seen.until,
                failures: seen.failures,
                reason: seen.reason,
            }),
        learned: match with_health {
            true => provider.learned,
            false => Vec::new(),
        },
    });
    shown.collect()
}

/// The programs that run now, by run.
fn programs(kept: Vec<KeptStep>) -> Vec<wire::KeptProgram> {
    let alive = kept.into_iter().filter(|kept| kept.is_alive);
    let shown = alive.map(|kept| wire::KeptProgram {
        run_id: kept.run,
        step_id: kept.step,
    });
    let mut shown: Vec<wire::KeptProgram> = shown.collect();
    shown.sort_by_key(|program| (program.run_id, program.step_id));
    shown
}

fn salvaged(report: Salvage) -> wire::Salvaged {
    wire::Salvaged {
        at: report.at,
        set_aside: report.set_aside.to_string_lossy().into_owned(),
        kept: report.tables.iter().map(|table| table.kept).sum(),
        lost: report.tables.iter().map(|table| table.lost).sum(),
        more: report.tables.iter().any(|table| table.more),
        quarantined: report.quarantined,
    }
}

async fn drain(context: Arc<CallContext>, params: wire::Drain) -> Result<wire::Draining, Fault> {
    let timeout = context.control.drain(Drain {
        timeout: params.timeout.map(|timeout| timeout.0),
        then: params.then,
    })?;
    Ok(wire::Draining {
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
    })
}

/// Name of the phase in `gateway.status` and `/ready`.
pub(crate) fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting { .. } => "starting",
        // Requests are answered, as when the disk fills up during operation.
        Phase::Ready | Phase::Full => "ready",
        Phase::Draining => "draining",
    }
}
