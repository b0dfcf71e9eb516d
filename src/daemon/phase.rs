//! How far the process has come, for the doors.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use super::surroundings;
use crate::clock::Clock;
use crate::contract::control::{Control, Phase};
use crate::contract::finding::Finding;
use crate::registry::Registry;

/// The process as its doors see it.
pub struct Process {
    registry: Registry,
    ready: AtomicBool,
    stop: CancellationToken,
    folder: PathBuf,
    min_free: u64,
    clock: Clock,
}

impl Process {
    /// A process that is starting.
    pub fn new(registry: Registry, folder: &Path, min_free: u64, clock: Clock) -> Self {
        Process {
            registry,
            ready: AtomicBool::new(false),
            stop: CancellationToken::new(),
            folder: folder.to_owned(),
            min_free,
            clock,
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

    fn surroundings(&self) -> Vec<Finding> {
        surroundings::look(&self.folder, self.min_free, &self.clock, false)
    }

    fn drain(&self) {
        self.stop.cancel();
    }
}
