//! Retention: archives one-task sessions, removes old runs and events, and purges deleted sessions.
//! Driven by rows; the store processes a bounded part per command.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::command::{Purge, Sweep, Swept, is_due};
use crate::kernel::fault::Fault;
use crate::kernel::ids::SessionId;
use crate::kernel::time::Timestamp;
use crate::kernel::webhook::{DEAD_MS, REMOVED_MS};
use crate::registry::RegistryInner;
use crate::store::tables::{purges, sessions};

/// Retention limits; `None` means forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// A one-task session is archived this many milliseconds after its last run ended.
    pub archive_after_ms: Option<u64>,
    /// Age at which ended runs, and archived sessions without runs, are removed, in milliseconds.
    pub runs_ms: Option<u64>,
    /// Age at which events are removed, in milliseconds.
    pub events_ms: Option<u64>,
    /// Minimum time that an idempotency key is remembered, in milliseconds.
    pub keys_ms: u64,
    /// Interval of the sweeps.
    pub sweep_each: Duration,
}

/// Maximum number of steps of each kind per sweep; the next sweep continues from there.
const STEPS: usize = 20;

/// Minimum time that the id of a removed run is remembered, in milliseconds, so that late waiters
/// get `expired` instead of `not found`.
const IDS_MS: u64 = 24 * 3600 * 1000;

/// Runs the sweeps, one at a time.
pub(crate) struct Sweeper {
    /// Positions of the last sweep; `None` while a sweep is under way.
    at: Arc<Mutex<Option<Places>>>,
}

/// Positions at which the last sweep stopped.
#[derive(Clone, Debug, Default)]
struct Places {
    org: String,
    session: i64,
    run: i64,
}

impl Sweeper {
    pub fn new() -> Self {
        Sweeper {
            at: Arc::new(Mutex::new(Some(Places::default()))),
        }
    }

    /// Starts a sweep, unless one is under way.
    pub fn sweep(&self, inner: &Arc<RegistryInner>, tasks: &TaskTracker) {
        let Some(mut places) = lock(&self.at).take() else {
            return;
        };
        let (inner, at) = (Arc::clone(inner), Arc::clone(&self.at));
        tasks.spawn(async move {
            tokio::select! {
                swept = sweep(&inner, &mut places) => {
                    if let Err(fault) = swept {
                        tracing::warn!(%fault, "a sweep did not finish; the next one continues");
                    }
                }
                () = inner.drained() => {}
            }
            *lock(&at) = Some(places);
        });
    }

    /// Purges a bounded part of a deleted session; an effect follows if more is left.
    pub fn purge(&self, inner: &Arc<RegistryInner>, tasks: &TaskTracker, session: SessionId) {
        let inner = Arc::clone(inner);
        tasks.spawn(async move {
            if let Err(fault) = purge(&inner, session).await {
                tracing::warn!(%session, %fault, "could not purge a deleted session; the next sweep will retry");
            }
        });
    }
}

fn lock(at: &Mutex<Option<Places>>) -> std::sync::MutexGuard<'_, Option<Places>> {
    at.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn purge(inner: &RegistryInner, session: SessionId) -> Result<(), Fault> {
    let command = Purge { session };
    inner.store.submit_waiting(command).await.map(|_| ())
}

async fn sweep(inner: &RegistryInner, places: &mut Places) -> Result<(), Fault> {
    for session in inner.store.read(purges::sessions).await? {
        purge(inner, session).await?;
    }
    let retention = inner.options().retention;
    // Without a trusted clock nothing counts as old enough to remove.
    let Some(now) = inner.aged_at() else {
        return Ok(());
    };
    let ago = |ms: u64| now.minus_ms(ms);
    if let Some(age) = retention.archive_after_ms {
        archive(inner, places, ago(age)).await?;
    }
    if let Some(age) = retention.runs_ms {
        for _ in 0..STEPS {
            let what = Sweep::Runs {
                before: ago(age),
                keys_before: ago(retention.keys_ms),
                after: places.run,
            };
            places.run = step(inner, what).await?.next.unwrap_or(0);
            if places.run == 0 {
                break;
            }
        }
        repeat(inner, || Sweep::Leftovers {
            before: ago(age),
            ids_before: ago(age.max(IDS_MS)),
        })
        .await?;
    }
    step(
        inner,
        Sweep::Webhooks {
            dead_before: ago(DEAD_MS),
            removed_before: ago(REMOVED_MS),
        },
    )
    .await?;
    if let Some(age) = retention.events_ms {
        repeat(inner, || Sweep::Events { before: ago(age) }).await?;
    }
    Ok(())
}

/// Archives sessions, tenant by tenant.
async fn archive(
    inner: &RegistryInner,
    places: &mut Places,
    before: Timestamp,
) -> Result<(), Fault> {
    for _ in 0..STEPS {
        if places.session == 0 {
            let last = places.org.clone();
            let next = inner
                .store
                .read(move |tx| sessions::next_org(tx, &last))
                .await?;
            let Some(org) = next else {
                places.org.clear();
                break;
            };
            places.org = org;
        }
        let what = Sweep::Archive {
            before,
            org: places.org.clone(),
            after: places.session,
        };
        places.session = step(inner, what).await?.next.unwrap_or(0);
    }
    Ok(())
}

async fn repeat(inner: &RegistryInner, what: impl Fn() -> Sweep) -> Result<(), Fault> {
    for _ in 0..STEPS {
        if step(inner, what()).await?.next.is_none() {
            break;
        }
    }
    Ok(())
}

async fn step(inner: &RegistryInner, what: Sweep) -> Result<Swept, Fault> {
    let due = what.clone();
    if !inner.store.read(move |tx| is_due(tx, &due)).await? {
        return Ok(Swept::default());
    }
    inner.store.submit_waiting(what).await
}
