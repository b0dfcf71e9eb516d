//! Health of a provider, shared by all runs: a circuit breaker per key, and what its models do not
//! accept. Kept in memory; `remote` consults it before each request.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::adapt::Switches;
use crate::clock::Clock;
use crate::kernel::provider_health::{
    Breaker, BreakerDecision, BreakerPermit, Condition, HealthReport,
};
use crate::kernel::time::Timestamp;

/// Maximum number of remembered keys per provider; bounds the list if a key is rotated often.
const KEYS: usize = 4;
/// Maximum number of models per provider for which something is remembered.
const MODELS: usize = 256;

/// Shorter pauses are not announced, milliseconds.
const ANNOUNCED_PAUSE_MS: u64 = 1000;

/// Called with the provider's name and its new health when a pause of a second or more is set, and
/// when it ends.
pub type OnChange = Arc<dyn Fn(&str, HealthReport) + Send + Sync>;

/// What is known about a provider across all its keys.
pub(super) struct Record {
    name: String,
    clock: Clock,
    on_change: OnChange,
    gates: Mutex<Vec<(KeyHash, Arc<Gates>)>>,
    switches: Mutex<BTreeMap<String, Switches>>,
}

/// Identifies a key without storing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyHash([u8; 32]);

impl KeyHash {
    /// Hashes the key, given as all header values that carry a secret.
    pub(super) fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        KeyHash(*hasher.finalize().as_bytes())
    }
}

/// The circuit breakers of one key.
struct Gates {
    all: Arc<BreakerGate>,
    /// For fallback models of the same provider: a limit of the first model need not apply to them.
    fallbacks: Mutex<HashMap<String, Arc<BreakerGate>>>,
}

impl Record {
    pub(super) fn new(name: &str, clock: Clock, on_change: OnChange) -> Arc<Self> {
        Arc::new(Record {
            name: name.to_owned(),
            clock,
            on_change,
            gates: Mutex::default(),
            switches: Mutex::default(),
        })
    }

    /// The gate for requests with this key. `stands_in`: the model's name if it is a fallback,
    /// which has a gate of its own.
    pub(super) fn gate(
        self: &Arc<Self>,
        key: KeyHash,
        stands_in: Option<&str>,
    ) -> Arc<BreakerGate> {
        let gates = {
            let mut known = lock(&self.gates);
            let found = known.iter().position(|(hash, _)| *hash == key);
            let entry = match found {
                Some(at) => known.remove(at),
                None => (key, Arc::new(self.fresh())),
            };
            let gates = Arc::clone(&entry.1);
            known.insert(0, entry);
            known.truncate(KEYS);
            gates
        };
        let Some(model) = stands_in else {
            return Arc::clone(&gates.all);
        };
        let mut standing_in = lock(&gates.fallbacks);
        if standing_in.len() >= MODELS {
            standing_in.clear();
        }
        let gate = standing_in.entry(model.to_owned());
        Arc::clone(gate.or_insert_with(|| Arc::new(BreakerGate::new(self, false))))
    }

    fn fresh(self: &Arc<Self>) -> Gates {
        Gates {
            all: Arc::new(BreakerGate::new(self, true)),
            fallbacks: Mutex::default(),
        }
    }

    /// Health of the provider with the most recently used key; `None` if it was never used.
    pub(super) fn seen(&self) -> Option<HealthReport> {
        let gates = lock(&self.gates)
            .first()
            .map(|(_, gates)| Arc::clone(gates))?;
        Some(lock(&gates.all.breaker).seen(self.clock.now()))
    }

    /// What was learned about this model; the default if nothing.
    pub(super) fn switches(&self, model: &str) -> Switches {
        lock(&self.switches).get(model).cloned().unwrap_or_default()
    }

    /// Stores what was learned about the model, in memory only.
    pub(super) fn learn(&self, model: &str, switches: Switches) {
        let mut known = lock(&self.switches);
        if known.len() >= MODELS && !known.contains_key(model) {
            known.clear();
        }
        known.insert(model.to_owned(), switches);
    }

    /// What was learned, one line per model.
    pub(super) fn learned(&self) -> Vec<String> {
        let known = lock(&self.switches);
        let lines = known
            .iter()
            .map(|(model, switches)| format!("{model}: {}", switches.shown().join(", ")));
        lines.collect()
    }
}

/// A circuit breaker that requests pass before they are sent.
pub(super) struct BreakerGate {
    breaker: Mutex<Breaker>,
    changed: Notify,
    record: std::sync::Weak<Record>,
    clock: Clock,
    /// Changes are reported to `on_change`; gates of fallback models are not shown.
    is_shown: bool,
    /// A pause was announced and its end not yet.
    is_pause_announced: AtomicBool,
}

impl BreakerGate {
    fn new(record: &Arc<Record>, is_shown: bool) -> Self {
        BreakerGate {
            breaker: Mutex::default(),
            changed: Notify::new(),
            record: Arc::downgrade(record),
            clock: record.clock.clone(),
            is_shown,
            is_pause_announced: AtomicBool::new(false),
        }
    }

    /// Returns a permit if a request may be sent now.
    pub(super) fn enter(self: &Arc<Self>) -> Result<Permit, ProviderPause> {
        let mut breaker = lock(&self.breaker);
        match breaker.enter(self.clock.now()) {
            BreakerDecision::Go(pass) => Ok(Permit {
                gate: Arc::clone(self),
                pass: Some(pass),
            }),
            BreakerDecision::Wait { until, busy } => Err(ProviderPause {
                remaining: Duration::from_millis(until.since(self.clock.now())),
                until,
                busy,
                failures: breaker.failures(),
                reason: breaker.reason().to_owned(),
            }),
        }
    }

    /// Waits until the breaker changes, for at most `at_most`.
    pub(super) async fn wait(&self, at_most: Duration) {
        let _ = tokio::time::timeout(at_most, self.changed.notified()).await;
    }

    fn announce(&self, changed: bool, breaker: MutexGuard<'_, Breaker>) {
        let now = self.clock.now();
        let seen = breaker.seen(now);
        drop(breaker);
        if !changed {
            return;
        }
        self.changed.notify_waiters();
        let is_held = seen
            .until
            .is_some_and(|until| until.since(now) >= ANNOUNCED_PAUSE_MS);
        let is_back = matches!(seen.condition, Condition::Ok | Condition::Recovering);
        let is_news = match (is_held, is_back) {
            (true, _) => {
                self.is_pause_announced.store(true, Ordering::Relaxed);
                true
            }
            (_, true) => self.is_pause_announced.swap(false, Ordering::Relaxed),
            _ => false,
        };
        if let Some(record) = self.record.upgrade().filter(|_| is_news && self.is_shown) {
            (record.on_change)(&record.name, seen);
        }
    }
}

/// Why no request may be sent now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProviderPause {
    /// When to ask again.
    pub until: Timestamp,
    /// Time remaining until then.
    pub remaining: Duration,
    /// The provider reported that it is busy; otherwise requests have failed.
    pub busy: bool,
    /// Consecutive failures since the last answered request.
    pub failures: u32,
    /// Message of the last failure.
    pub reason: String,
}

/// Permission to send one request. Dropping it without an outcome counts neither as success nor as
/// failure.
pub(super) struct Permit {
    gate: Arc<BreakerGate>,
    pass: Option<BreakerPermit>,
}

impl Permit {
    /// The provider accepted the request: its answer begins.
    pub(super) fn accepted(&mut self) {
        if let Some(pass) = &mut self.pass {
            let mut breaker = lock(&self.gate.breaker);
            let changed = breaker.taken(pass, self.gate.clock.now());
            self.gate.announce(changed, breaker);
        }
    }

    /// Records that the provider answered, or refused the request for reasons of its own.
    pub(super) fn answered(self) -> Timestamp {
        self.over(Breaker::answered)
    }

    /// Records that the provider is busy. The pause is `asked` if the provider named one, at most
    /// `most`. Returns when requests may be sent again.
    pub(super) fn busy(
        self,
        reason: &str,
        base: Duration,
        asked: Option<Duration>,
        most: Duration,
    ) -> Timestamp {
        let asked = (asked.map(millis), millis(most));
        self.over(|breaker, pass, now| breaker.busy(pass, now, reason, millis(base), asked))
    }

    /// Records a transient failure. Returns when requests may be sent again.
    pub(super) fn failed(self, reason: &str, base: Duration) -> Timestamp {
        self.over(|breaker, pass, now| breaker.failed(pass, now, reason, millis(base)))
    }

    fn over(
        mut self,
        change: impl FnOnce(&mut Breaker, &mut BreakerPermit, Timestamp) -> bool,
    ) -> Timestamp {
        let now = self.gate.clock.now();
        let Some(mut pass) = self.pass.take() else {
            return now;
        };
        let mut breaker = lock(&self.gate.breaker);
        let changed = change(&mut breaker, &mut pass, now);
        let until = breaker.seen(now).until.unwrap_or(now);
        self.gate.announce(changed, breaker);
        until
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(mut pass) = self.pass.take() {
            let mut breaker = lock(&self.gate.breaker);
            breaker.given_up(&mut pass, self.gate.clock.now());
            drop(breaker);
            self.gate.changed.notify_waiters();
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is complete before anything can panic.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
