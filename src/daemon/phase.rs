//! How far the process has come, for the doors.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use super::settings::InForce;
use crate::contract::BoxFuture;
use crate::contract::control::{Control, Phase, Reloaded, Settings};
use crate::kernel::fault::Fault;
use crate::registry::Registry;

/// The process as its doors see it.
pub struct Process {
    registry: Registry,
    in_force: InForce,
    ready: AtomicBool,
    stop: CancellationToken,
}

impl Process {
    /// A process that is starting.
    pub fn new(registry: Registry, in_force: InForce) -> Self {
        Process {
            registry,
            in_force,
            ready: AtomicBool::new(false),
            stop: CancellationToken::new(),
        }
    }

    /// Every row is restored: work may come.
    pub fn ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Returns when a stop was asked for.
    pub async fn stop_asked(&self) {
        self.stop.cancelled().await;
    }
}

impl Control for Process {
    fn phase(&self) -> Phase {
        if self.stop.is_cancelled() {
            Phase::Draining
        } else if self.ready.load(Ordering::Acquire) {
            Phase::Ready
        } else {
            let (done, total) = self.registry.restore_progress();
            Phase::Starting { done, total }
        }
    }

    fn drain(&self) {
        self.stop.cancel();
    }

    fn settings(&self) -> Settings {
        self.in_force.show()
    }

    fn reload(&self) -> BoxFuture<'_, Result<Reloaded, Fault>> {
        Box::pin(self.in_force.reload())
    }
}
