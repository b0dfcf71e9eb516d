//! Records about the daemon itself: boots, drains, machine sleep, provider health, and the tools of its
//! MCP servers.

use super::context::Context;
use super::{BootReport, KeepServer, session};
use crate::contract::BoxFuture;
use crate::contract::servers::{KnownServer, ServerRows};
use crate::kernel::ages::ClockTrust;
use crate::kernel::event::{
    AlertRaised, EventData, GatewayDraining, GatewayResumed, GatewayStarted, ProviderHealth,
};
use crate::kernel::fault::Fault;
use crate::kernel::ids::BootId;
use crate::kernel::provider_health::HealthReport;
use crate::store::Store;
use crate::store::tables::{boots, runs, servers};

/// An event of the daemon itself, for the event log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayNote {
    /// It stopped accepting work.
    Draining {
        /// What follows: `stop`, `restart` or `resume`.
        then: &'static str,
        /// Timeout for steps in flight.
        timeout_ms: u64,
    },
    /// It accepts work again.
    Resumed {
        /// What it resumes from: `drain` or `sleep`.
        after: &'static str,
        /// How long that took.
        away_ms: u64,
    },
    /// A model provider became unavailable or available again.
    Provider {
        /// The provider's name.
        name: String,
        /// The provider's condition.
        seen: HealthReport,
    },
}

/// Once this returns, this boot is recorded, with an event that after an earlier boot includes the
/// downtime. Every pending wait has as much time left as when the previous process was last seen.
pub fn begin_boot(context: &mut Context<'_>, boot: BootId, pid: u32) -> Result<BootReport, Fault> {
    let seq = context.take_seq()?;
    let now = context.now.wall;
    let seen = boots::last_seen(context.tx)?;
    // Running time counts up to the last sign of life of the previous process, and from now on by
    // this clock.
    let alive = boots::last_alive(context.tx)?;
    runs::count_up_to(context.tx, alive, context.now.steady)?;
    let unclean = boots::begin(context.tx, seq, boot, pid, now)?;
    context.emit_gateway(GatewayStarted { boot_id: boot });
    let max_age_ms = context.settings.recovery.max_age_ms;
    let machine = context.clock.machine();
    let sight = boots::clock_trust(context.tx, now, seen, machine.as_ref(), max_age_ms);
    let sight = sight?;
    if sight != ClockTrust::Trusted {
        let (ahead_ms, is_certain) = match sight {
            ClockTrust::Trusted => (0, false),
            ClockTrust::Ahead(ahead) => (ahead, true),
            ClockTrust::Doubted(seen) => (now.since(seen), false),
        };
        tracing::warn!(
            ahead_ms,
            is_certain,
            "the clock is far ahead; nothing expires or is removed because of its age"
        );
        let alert = AlertRaised::ClockAhead {
            ahead_ms,
            is_certain,
        };
        context.alert((None, None), alert);
    }
    if let Some(seen) = seen {
        boots::extend_deadlines(context.tx, seen, now)?;
        context.emit_gateway(GatewayResumed {
            boot_id: boot,
            after: "stop".into(),
            away_ms: now.since(seen),
        });
    }
    session::carry_out_clearings(context)?;
    Ok(BootReport { unclean, sight })
}

/// Once this returns, the event log has this event of the daemon.
pub fn note_gateway(
    context: &mut Context<'_>,
    boot: BootId,
    note: GatewayNote,
) -> Result<(), Fault> {
    let data = match note {
        GatewayNote::Draining { then, timeout_ms } => EventData::from(GatewayDraining {
            boot_id: boot,
            then: then.into(),
            timeout_ms,
        }),
        GatewayNote::Resumed { after, away_ms } => EventData::from(GatewayResumed {
            boot_id: boot,
            after: after.into(),
            away_ms,
        }),
        GatewayNote::Provider { name, seen } => EventData::from(ProviderHealth {
            provider: name,
            state: seen.condition.as_str().into(),
            since: seen.since,
            until: seen.until,
            failures: seen.failures,
            reason: seen.reason,
        }),
    };
    context.emit_gateway(data);
    Ok(())
}

impl ServerRows for Store {
    fn known_servers(&self) -> Result<Vec<KnownServer>, Fault> {
        self.read_now(servers::every)
    }

    fn keep_server(&self, known: KnownServer) -> BoxFuture<'static, Result<(), Fault>> {
        let store = self.clone();
        Box::pin(async move { store.submit_waiting(KeepServer { known }).await })
    }
}
