//! How far the process has come, for the doors, and its drains, whoever asks for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::settings::InForce;
use super::supervisor::Supervisor;
use super::surroundings::{self, Surroundings};
use crate::contract::BoxFuture;
use crate::contract::control::{Control, Drain, ModelProvider, Phase, Reloaded, Settings, Then};
use crate::contract::finding::Finding;
use crate::kernel::fault::Fault;
use crate::registry::Registry;

/// The process as its doors see it.
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

    /// Every row is restored, or waits for room on a full disk: calls may come.
    pub fn ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// A signal asks for the end. The first one drains; where a drain to the end is under way
    /// already, its patience is over.
    pub fn terminate(&self) {
        let stop = Drain {
            timeout: None,
            then: Then::Stop,
        };
        if self.drain(stop).is_err() {
            tracing::warn!("a second call to stop: what is in flight goes on at the next start");
            self.registry.hurry();
        }
    }
}

impl Control for Process {
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
        findings
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

    fn settings(&self) -> Settings {
        self.in_force.show()
    }

    fn providers(&self) -> Vec<ModelProvider> {
        self.in_force.providers()
    }

    fn reload(&self) -> BoxFuture<'_, Result<Reloaded, Fault>> {
        Box::pin(self.in_force.reload())
    }
}
