//! One boot of the daemon: its identity, and what it sets up for the process as a whole.

use super::DaemonFailure;
use super::doctor::program;
use super::signals::Signals;
use super::supervisor::Supervisor;
use crate::clock::Clock;
use crate::config::Config;
use crate::kernel::ids::BootId;
use crate::kernel::time::Timestamp;
use crate::process::{Descriptors, Processes};
use crate::telemetry::{self, metrics::metrics};

/// Below this limit on open files the tools of a full set of lanes may run out of them.
const FEW_FILES: u64 = 512;

/// This boot of the daemon.
pub struct Boot {
    /// The daemon's clock.
    pub clock: Clock,
    /// The id of this boot.
    pub id: BootId,
    /// The process id.
    pub pid: u32,
    /// When the process was started.
    pub started_at: Timestamp,
    /// The raised limit of open files; `None` if it was not raised.
    pub descriptors: Option<Descriptors>,
    /// The supervisor of this process.
    pub supervisor: Supervisor,
}

impl Boot {
    /// Once this returns, traces are exported, the limit of open files is raised, orphaned
    /// processes are adopted, and signals no longer kill.
    pub fn begin(config: &Config) -> Result<(Boot, Signals), DaemonFailure> {
        let clock = Clock::system();
        let id = BootId(clock.new_id());
        let started_at = clock.now();
        metrics().started(started_at);
        if let Some(endpoint) = &config.otlp_endpoint {
            let refused = |why| DaemonFailure::Config(format!("telemetry.otlp_endpoint: {why}"));
            telemetry::trace_to(endpoint).map_err(refused)?;
        }
        let descriptors = Descriptors::raise();
        if Descriptors::limit() < FEW_FILES {
            tracing::warn!(
                files = Descriptors::limit(),
                "the limit on open files is low: many concurrent tools may exceed it; raise the \
                 hard limit (ulimit -H -n, LimitNOFILE=)"
            );
        }
        program::note_path();
        Processes::adopt_orphans();
        let signals = Signals::catch()?;
        let boot = Boot {
            clock,
            id,
            pid: std::process::id(),
            started_at,
            descriptors,
            supervisor: Supervisor::from_env()?,
        };
        Ok((boot, signals))
    }
}
