//! The product's name: spawn, drive, settle, announce, wait, restore. The handle is cheap to
//! clone; one service loop does what follows a commit.

mod admit;
mod agents;
mod announce;
mod answer;
mod approvals;
mod audit;
mod below;
mod cancel;
mod care;
mod compact;
mod compare;
mod damage;
mod delegate;
mod drain;
mod drive;
mod environment;
mod events;
mod exchange;
mod folder;
mod gauges;
mod lanes;
mod left;
mod lifecycle;
mod memory;
mod options;
mod outputs;
mod previews;
mod providers;
mod questions;
mod recall;
mod redact;
mod request;
mod restore;
mod review;
mod send;
mod service;
mod shown;
mod skills;
mod spawn;
mod sweeps;
mod timers;
mod trace;
mod usage;
mod view;
mod wait;
mod within;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use tokio::sync::{mpsc, watch};

pub use agents::{ReloadReason, TrustView};
pub use answer::*;
pub use events::{
    EventFilter, Item, KindPattern, LogEvent, Said, Snapshot, StoredEvent, Subscribe, Subscription,
    TextEvent,
};
pub use gauges::LaneUse;
pub use options::{LaneCaps, Options, SkillEnvironment};
pub use outputs::OutputPart;
pub use request::*;
pub use restore::Restored;
pub use service::Service;
pub use skills::{SkillsReason, SkillsRefreshed, SkillsView};
pub use sweeps::Retention;
pub use usage::{UsageQuery, UsageView};
pub use within::Object;

use crate::clock::Clock;
use crate::contract::catalog::Catalog;
use crate::contract::journal::RunEnvironment;
use crate::contract::processes::Processes;
use crate::contract::runner::Runner;
use crate::contract::skills::Skills;
use crate::kernel::ages::Ages;
use crate::kernel::env::Environment;
use crate::kernel::ids::BootId;
use crate::kernel::time::Timestamp;
use crate::store::pins::Pins;
use crate::store::transcripts::Transcripts;
use crate::store::{Effect, Seal, Store};
use drain::Drains;
use events::{Feed, Partials};
use service::Signal;
use wait::Waiters;

/// The registry's handle: what the doors call.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    /// What runs have pinned, as long as it is in use.
    pins: Arc<Pins>,
    /// What was said of late in sessions at work.
    transcripts: Arc<Transcripts>,
    clock: Clock,
    catalog: Arc<dyn Catalog>,
    skills: Arc<dyn Skills>,
    runner: Arc<dyn Runner>,
    processes: Arc<dyn Processes>,
    /// What every program gets of the daemon's environment.
    environment: Environment,
    /// That alone, as runs have it that have nothing more.
    plain: Arc<RunEnvironment>,
    seal: Seal,
    options: watch::Sender<Arc<Options>>,
    boot: BootId,
    waiters: Waiters,
    feed: Feed,
    partials: Arc<Partials>,
    signals: mpsc::UnboundedSender<Signal>,
    drains: Drains,
    reloading: tokio::sync::Mutex<()>,
    /// Hash of the skills of the default folder when all were looked at last.
    skills_seen: std::sync::Mutex<Option<String>>,
    restored: AtomicU64,
    to_restore: AtomicU64,
    /// The restore waits for room on a full disk.
    lacks_room: watch::Sender<bool>,
    /// Every row is restored.
    is_at_work: AtomicBool,
    /// By which time things are old; `None` before the restore has asked the store.
    ages: std::sync::Mutex<Option<Ages>>,
}

/// What a registry is made of.
pub struct Parts {
    /// Its rows.
    pub store: Store,
    /// What its commits leave to be done.
    pub effects: mpsc::UnboundedReceiver<Vec<Effect>>,
    /// Time and ids.
    pub clock: Clock,
    /// Which agents there are.
    pub catalog: Arc<dyn Catalog>,
    /// Which skills they have.
    pub skills: Arc<dyn Skills>,
    /// Who carries out their runs.
    pub runner: Arc<dyn Runner>,
    /// What their steps have started.
    pub processes: Arc<dyn Processes>,
    /// What every program gets of the daemon's environment.
    pub environment: Environment,
    /// Seals what callers give to runs.
    pub seal: Seal,
    /// Settings.
    pub options: Options,
    /// This life of the daemon.
    pub boot: BootId,
}

impl Registry {
    /// A registry, and the service that must run for anything to happen. Called in a runtime.
    pub fn new(parts: Parts) -> (Registry, Service) {
        let (signals, received) = mpsc::unbounded_channel();
        let registry = Registry {
            inner: Arc::new(Inner {
                store: parts.store,
                pins: Arc::default(),
                transcripts: Arc::default(),
                clock: parts.clock,
                catalog: parts.catalog,
                skills: parts.skills,
                runner: parts.runner,
                processes: parts.processes,
                plain: Arc::new(RunEnvironment {
                    variables: parts.environment.clone(),
                    ..RunEnvironment::default()
                }),
                environment: parts.environment,
                seal: parts.seal,
                options: watch::Sender::new(Arc::new(parts.options)),
                boot: parts.boot,
                waiters: Waiters::default(),
                feed: Feed::default(),
                partials: Arc::default(),
                signals,
                drains: Drains::default(),
                reloading: tokio::sync::Mutex::default(),
                skills_seen: std::sync::Mutex::default(),
                restored: AtomicU64::new(0),
                to_restore: AtomicU64::new(0),
                lacks_room: watch::Sender::new(false),
                is_at_work: AtomicBool::new(false),
                ages: std::sync::Mutex::default(),
            }),
        };
        let service = Service::new(Arc::clone(&registry.inner), parts.effects, received);
        (registry, service)
    }

    /// Which agents there are.
    pub fn catalog(&self) -> &dyn Catalog {
        self.inner.catalog.as_ref()
    }

    /// The store's own id, UUID text, the same over restarts.
    pub fn store_id(&self) -> &str {
        self.inner.store.id()
    }

    /// Once this returns, `options` are obeyed, by what goes on already too.
    pub fn configure(&self, options: Options) {
        self.inner.options.send_replace(Arc::new(options));
    }

    /// How many open runs were restored at this start, of how many.
    pub fn restore_progress(&self) -> (u64, u64) {
        (
            self.inner.restored.load(Ordering::Relaxed),
            self.inner.to_restore.load(Ordering::Relaxed),
        )
    }
}

impl Inner {
    /// The settings in force.
    fn options(&self) -> Arc<Options> {
        Arc::clone(&self.options.borrow())
    }

    /// The time by which ages count; `None`: nothing may end or be removed by its age yet.
    fn aged_at(&self) -> Option<Timestamp> {
        let mut ages = self.ages.lock().unwrap_or_else(PoisonError::into_inner);
        ages.as_mut()?.at(self.clock.moment_with_sleep())
    }
}
