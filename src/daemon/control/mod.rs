//! The phase of the daemon process, its drains and its reloads, as offered to the gateway and to
//! signals.

mod settings;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use settings::{Followers, InForce};

use super::doctor::program;
use super::doctor::surroundings::{self, Surroundings};
use super::supervisor::Supervisor;
use crate::contract::BoxFuture;
use crate::contract::control::{
    Control, Drain, EffectiveSettings, ModelProvider, Phase, ProgramFile, Reloaded,
    SurroundingGauges, Then,
};
use crate::contract::finding::Finding;
use crate::kernel::fault::Fault;
use crate::registry::Registry;

/// The process as the gateway sees it.
pub struct Process {
    registry: Registry,
    in_force: InForce,
    supervisor: Supervisor,
    ready: AtomicBool,
    surroundings: Surroundings,
}

impl Process {
    /// A process that is starting.
    pub fn new(
        registry: Registry,
        supervisor: Supervisor,
        in_force: InForce,
        surroundings: Surroundings,
    ) -> Self {
        Process {
            registry,
            in_force,
            supervisor,
            ready: AtomicBool::new(false),
            surroundings,
        }
    }

    /// Marks the start as complete: every row is restored, or waits for space on a full disk.
    pub fn ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Handles a signal to end. The first one starts a drain; if a drain that ends the process is
    /// in progress, it is cut short.
    pub fn terminate(&self) {
        let stop = Drain {
            timeout: None,
            then: Then::Stop,
        };
        if self.drain(stop).is_err() {
            tracing::warn!(
                "second stop signal: running steps are interrupted and continue at the next start"
            );
            self.registry.hurry();
        }
    }
}

impl Control for Process {
    fn gauges(&self) -> SurroundingGauges {
        self.surroundings.gauges()
    }

    fn phase(&self) -> Phase {
        if !self.ready.load(Ordering::Acquire) {
            let (done, total) = self.registry.restore_progress();
            Phase::Starting { done, total }
        } else if self.registry.is_draining() {
            Phase::Draining
        } else if !self.registry.is_at_work() {
            Phase::Full
        } else {
            Phase::Ready
        }
    }

    fn surroundings(&self) -> Vec<Finding> {
        let mut findings = self.surroundings.look(false);
        findings.extend(surroundings::of_providers(&self.providers()));
        findings.extend(surroundings::of_servers(&self.in_force.servers()));
        findings.extend(surroundings::of_hooks(&self.in_force.hook_problems()));
        findings
    }

    fn program(&self) -> Option<ProgramFile> {
        program::of_this_process()
    }

    fn notices(&self) -> Vec<String> {
        self.surroundings.notices()
    }

    fn drain(&self, order: Drain) -> Result<Duration, Fault> {
        let timeout = self.registry.drain(order)?;
        let supervisor = self.supervisor.clone();
        let registry = self.registry.clone();
        tokio::spawn(async move {
            supervisor.draining(order.then, timeout).await;
            if order.then == Then::Resume {
                registry.resumed().await;
                supervisor.resumed();
            }
        });
        Ok(timeout)
    }

    fn settings(&self) -> EffectiveSettings {
        self.in_force.show()
    }

    fn providers(&self) -> Vec<ModelProvider> {
        self.in_force.providers()
    }

    fn reload(&self) -> BoxFuture<'_, Result<Reloaded, Fault>> {
        Box::pin(self.in_force.reload())
    }
}
