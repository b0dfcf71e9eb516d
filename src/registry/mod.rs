//! The session registry: it spawns, drives, settles, announces, waits for and restores runs. The
//! RPC layer calls the handle [`Registry`], which is cheap to clone; one service loop does the work
//! that follows each commit.

mod access;
mod announce;
pub(crate) mod api;
mod delegate;
mod drive;
mod environment;
mod events;
mod lanes;
mod options;
mod send;
mod service;
mod spawn;
pub(crate) mod upkeep;
mod wait;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use tokio::sync::{mpsc, watch};

pub use access::{AccessTokens, LiveToken, TokenConnection};

pub use crate::registry::api::agents::{ReloadReason, TrustView};
pub use crate::registry::api::answer::*;
pub use crate::registry::api::outputs::OutputPart;
pub use crate::registry::api::request::*;
pub use crate::registry::api::skills::{SkillsReason, SkillsView};
pub use crate::registry::delegate::within::Object;
pub use crate::registry::upkeep::restore::Restored;
pub use crate::registry::upkeep::sweeps::Retention;
pub use events::{
    EventFilter, KindPattern, LiveSnapshot, LogEvent, LogPart, StoredEvent, Subscribe,
    Subscription, SubscriptionItem, TextEvent, TextUpdate, shown,
};
pub use options::{LaneCaps, RegistryOptions, SkillEnvironment};
pub use service::ServiceLoop;

use crate::clock::Clock;
use crate::contract::catalog::Catalog;
use crate::contract::commit::CommitEffect;
use crate::contract::journal::RunEnvironment;
use crate::contract::processes::ProcessTracker;
use crate::contract::runner::Runner;
use crate::contract::servers::SessionServers;
use crate::contract::skills::SkillCatalog;
use crate::kernel::ages::AgeClock;
use crate::kernel::ids::BootId;
use crate::kernel::policy::env::Environment;
use crate::kernel::time::Timestamp;
use crate::registry::api::session_servers::Listing;
use crate::registry::upkeep::drain::Drains;
use crate::store::tables::pins::PinCache;
use crate::store::tables::transcripts::Transcripts;
use crate::store::{Seal, Store};
use events::{Feed, Partials};
use service::Signal;
use wait::Waiters;

/// Cheap handle to the registry; the RPC layer holds clones of it.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<RegistryInner>,
}

pub(crate) struct RegistryInner {
    store: Store,
    /// Cache of pinned bodies (agent, tools, skills) while runs use them.
    pins: Arc<PinCache>,
    /// Cache of recent messages of sessions with an active run.
    transcripts: Arc<Transcripts>,
    clock: Clock,
    catalog: Arc<dyn Catalog>,
    skills: Arc<dyn SkillCatalog>,
    runner: Arc<dyn Runner>,
    processes: Arc<dyn ProcessTracker>,
    session_servers: Arc<dyn SessionServers>,
    /// Servers of sessions that are listing their tools.
    listings: watch::Sender<HashSet<Listing>>,
    /// Base environment of every program that a run starts, taken from the daemon's environment.
    environment: Environment,
    /// The base environment alone, shared by runs that add no variables.
    plain: Arc<RunEnvironment>,
    seal: Seal,
    options: watch::Sender<Arc<RegistryOptions>>,
    boot: BootId,
    access: Arc<AccessTokens>,
    waiters: Waiters,
    feed: Feed,
    partials: Arc<Partials>,
    signals: mpsc::UnboundedSender<Signal>,
    drains: Drains,
    /// Counts requests to deliver dead letters of webhooks again.
    replays: watch::Sender<u64>,
    reloading: tokio::sync::Mutex<()>,
    /// Hash of the default folder's skills at the last full check.
    skills_seen: std::sync::Mutex<Option<String>>,
    restored: AtomicU64,
    to_restore: AtomicU64,
    /// Set to true when the restore finds the disk full and waits for free space.
    lacks_room: watch::Sender<bool>,
    /// True once every open run is restored.
    is_at_work: AtomicBool,
    /// Clock for age limits; `None` until the restore has read it from the store.
    ages: std::sync::Mutex<Option<AgeClock>>,
}

/// Dependencies of a [`Registry`].
pub struct RegistryParts {
    /// The SQLite store.
    pub store: Store,
    /// Effects of each commit, in commit order, for the service loop.
    pub effects: mpsc::UnboundedReceiver<Vec<CommitEffect>>,
    /// Source of time and of new ids.
    pub clock: Clock,
    /// Resolves agent definitions.
    pub catalog: Arc<dyn Catalog>,
    /// Resolves skills.
    pub skills: Arc<dyn SkillCatalog>,
    /// Executes runs.
    pub runner: Arc<dyn Runner>,
    /// Tracks the child processes that steps started.
    pub processes: Arc<dyn ProcessTracker>,
    /// Starts the MCP servers of sessions.
    pub session_servers: Arc<dyn SessionServers>,
    /// Base environment of every program that a run starts, taken from the daemon's environment.
    pub environment: Environment,
    /// Encrypts the environment values that callers pass to runs.
    pub seal: Seal,
    /// Settings at start; [`Registry::configure`] replaces them.
    pub options: RegistryOptions,
    /// Id of this boot of the daemon.
    pub boot: BootId,
}

impl Registry {
    /// Creates the registry and its service loop, which must run for anything to happen. Must be
    /// called inside a tokio runtime.
    pub fn new(parts: RegistryParts) -> (Registry, ServiceLoop) {
        let (signals, received) = mpsc::unbounded_channel();
        let registry = Registry {
            inner: Arc::new(RegistryInner {
                store: parts.store,
                pins: Arc::default(),
                transcripts: Arc::default(),
                access: Arc::new(AccessTokens::new(parts.clock.clone())),
                clock: parts.clock,
                catalog: parts.catalog,
                skills: parts.skills,
                runner: parts.runner,
                processes: parts.processes,
                session_servers: parts.session_servers,
                listings: watch::Sender::default(),
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
                replays: watch::Sender::new(0),
                reloading: tokio::sync::Mutex::default(),
                skills_seen: std::sync::Mutex::default(),
                restored: AtomicU64::new(0),
                to_restore: AtomicU64::new(0),
                lacks_room: watch::Sender::new(false),
                is_at_work: AtomicBool::new(false),
                ages: std::sync::Mutex::default(),
            }),
        };
        let service = ServiceLoop::new(Arc::clone(&registry.inner), parts.effects, received);
        (registry, service)
    }

    /// The catalog that resolves agent definitions.
    pub fn catalog(&self) -> &dyn Catalog {
        self.inner.catalog.as_ref()
    }

    /// The store's own id as UUID text; it is the same after every restart.
    pub fn store_id(&self) -> &str {
        self.inner.store.id()
    }

    /// Once this returns, `options` are in force, also for work already under way.
    pub fn configure(&self, options: RegistryOptions) {
        self.inner.options.send_replace(Arc::new(options));
    }

    /// Progress of the restore at this start: open runs restored so far, and their total.
    pub fn restore_progress(&self) -> (u64, u64) {
        (
            self.inner.restored.load(Ordering::Relaxed),
            self.inner.to_restore.load(Ordering::Relaxed),
        )
    }
}

impl RegistryInner {
    /// The settings in force.
    fn options(&self) -> Arc<RegistryOptions> {
        Arc::clone(&self.options.borrow())
    }

    /// The timestamp that age limits are measured by. While it is `None`, nothing may expire or be
    /// removed because of its age.
    fn aged_at(&self) -> Option<Timestamp> {
        let mut ages = self.ages.lock().unwrap_or_else(PoisonError::into_inner);
        ages.as_mut()?.at(self.clock.moment_with_sleep())
    }
}
