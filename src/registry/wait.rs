//! Waiting for runs: subscribe, then read the row. A wait changes nothing, blocks no thread and
//! holds no slot.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::{Principal, Registry};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::RunId;
use crate::registry::api::answer::{AwaitedRun, RunDetail, WaitAnswer, WaitCause};
use crate::registry::api::view::EXPIRED;
use crate::store::tables::read;

/// The waiters of each run.
#[derive(Default)]
pub struct Waiters {
    by_run: Mutex<HashMap<RunId, Vec<Arc<Notify>>>>,
}

impl Waiters {
    /// Wakes the waiters of an ended run; they read its row.
    pub fn ended(&self, run: RunId) {
        for waiter in self.lock().remove(&run).unwrap_or_default() {
            waiter.notify_one();
        }
    }

    /// Wakes all waiters; they read the rows again.
    pub fn all_look(&self) {
        for waiter in self.lock().values().flatten() {
            waiter.notify_one();
        }
    }

    fn subscribe<'a>(&'a self, runs: &'a [RunId]) -> RegisteredWaiter<'a> {
        let waiter = Arc::new(Notify::new());
        let mut by_run = self.lock();
        for run in runs {
            by_run.entry(*run).or_default().push(Arc::clone(&waiter));
        }
        RegisteredWaiter {
            waiters: self,
            runs,
            waiter,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, Vec<Arc<Notify>>>> {
        self.by_run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registered waiter; dropping it unregisters, also when the client disconnects.
struct RegisteredWaiter<'a> {
    waiters: &'a Waiters,
    runs: &'a [RunId],
    waiter: Arc<Notify>,
}

impl Drop for RegisteredWaiter<'_> {
    fn drop(&mut self) {
        let mut by_run = self.waiters.lock();
        for run in self.runs {
            if let Some(waiting) = by_run.get_mut(run) {
                waiting.retain(|other| !Arc::ptr_eq(other, &self.waiter));
                if waiting.is_empty() {
                    by_run.remove(run);
                }
            }
        }
    }
}

impl Registry {
    /// Waits until the runs (`all`) or one of them have ended, the timeout passes, or the daemon
    /// stops. A missing run counts as ended and is reported as missing.
    pub async fn wait(
        &self,
        who: &Principal,
        ids: Vec<RunId>,
        all: bool,
        window: Duration,
    ) -> Result<WaitAnswer, Fault> {
        let inner = &self.inner;
        let subscription = inner.waiters.subscribe(&ids);
        let over = tokio::time::sleep(window);
        let drained = inner.drained();
        tokio::pin!(over, drained);
        let mut open = ids.clone();
        let cause = loop {
            let before = open.len();
            let mut still = Vec::with_capacity(before);
            inner.store.read_now(|tx| {
                for id in &open {
                    if read::is_terminal(tx, &who.org, *id)? == Some(false) {
                        still.push(*id);
                    }
                }
                Ok(())
            })?;
            open = still;
            let enough = if all {
                open.is_empty()
            } else {
                open.len() < ids.len()
            };
            if enough {
                break WaitCause::Ended;
            }
            tokio::select! {
                () = subscription.waiter.notified() => {}
                () = &mut over => break WaitCause::TimedOut,
                () = &mut drained => break WaitCause::Draining,
            }
            // Usually one run is awaited and this is its end, so the answer is read right away.
            if let [id] = ids[..] {
                let waited = self.waited(who, id).await?;
                if is_over(&waited) {
                    return Ok(WaitAnswer {
                        runs: vec![waited],
                        done: true,
                        cause: WaitCause::Ended,
                    });
                }
            }
        };
        let mut runs = Vec::with_capacity(ids.len());
        for id in &ids {
            runs.push(self.waited(who, *id).await?);
        }
        // Rows are read after the cause was determined; a run that ended in between counts as done.
        let ended = runs.iter().filter(|waited| is_over(waited)).count();
        let done = if all { ended == runs.len() } else { ended > 0 };
        Ok(WaitAnswer {
            runs,
            done,
            cause: if done { WaitCause::Ended } else { cause },
        })
    }
}

impl Registry {
    /// The run as it is now.
    async fn waited(&self, who: &Principal, id: RunId) -> Result<AwaitedRun, Fault> {
        Ok(match self.run(who, id).await {
            Ok(detail) => AwaitedRun::Run(Box::new(detail)),
            Err(fault) if fault.data.contains_key(EXPIRED) => AwaitedRun::Expired(id),
            Err(fault) if fault.kind == Kind::NotFound => AwaitedRun::NotFound(id),
            Err(fault) => return Err(fault),
        })
    }
}

fn is_over(waited: &AwaitedRun) -> bool {
    match waited {
        AwaitedRun::NotFound(_) | AwaitedRun::Expired(_) => true,
        AwaitedRun::Run(detail) => {
            let detail: &RunDetail = detail;
            detail.run.state.is_terminal()
        }
    }
}
