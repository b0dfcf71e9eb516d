//! The drain order and its observers: the service loop, the drive tasks, open waits, and the RPC
//! layer, which refuses new work during a drain.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Sleep;

use crate::contract::control::{Drain, Then};
use crate::kernel::fault::{Fault, Kind};
use crate::registry::service::Signal;
use crate::registry::{Registry, RegistryInner};

/// A drain that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ActiveDrain {
    /// Maximum time that steps in flight may take.
    pub timeout: Duration,
    /// What follows the drain: stop, restart or resume.
    pub then: Then,
}

/// The order in force, as a watch channel for every task that must act on it.
#[derive(Debug)]
pub(crate) struct Drains {
    order: watch::Sender<Option<ActiveDrain>>,
    hurried: watch::Sender<bool>,
}

impl Default for Drains {
    fn default() -> Self {
        Drains {
            order: watch::Sender::new(None),
            hurried: watch::Sender::new(false),
        }
    }
}

impl Drains {
    /// A receiver with the order in force and each later one.
    pub fn orders(&self) -> watch::Receiver<Option<ActiveDrain>> {
        self.order.subscribe()
    }

    /// True while a drain is under way.
    pub fn is_under_way(&self) -> bool {
        self.order.borrow().is_some()
    }

    /// True while a drain is under way after which this process ends.
    pub fn is_ending(&self) -> bool {
        self.order.borrow().is_some_and(|order| ends(order.then))
    }

    /// Decides the end of a drain once all work is at rest: returns what the process ends with, or
    /// `None` for a resume, after which new work is accepted. This is atomic with a
    /// [`Registry::drain`] that turns a resume into an end.
    pub fn settle(&self) -> Option<Then> {
        let mut ending = None;
        self.order.send_if_modified(|current| {
            ending = current.map(|order| order.then).filter(|then| ends(*then));
            if ending.is_none() {
                *current = None;
            }
            ending.is_none()
        });
        if ending.is_none() {
            self.hurried.send_replace(false);
        }
        ending
    }
}

fn ends(then: Then) -> bool {
    then != Then::Resume
}

/// The loop's timeout for steps in flight.
pub(crate) struct DrainTimer {
    over: std::pin::Pin<Box<Sleep>>,
    hurried: watch::Receiver<bool>,
    /// True once the timeout has passed and the steps in flight were told to stop.
    pub is_over: bool,
}

impl DrainTimer {
    /// Starts the timeout of `order` now.
    pub fn new(drains: &Drains, order: ActiveDrain) -> Self {
        DrainTimer {
            over: Box::pin(tokio::time::sleep(order.timeout)),
            hurried: drains.hurried.subscribe(),
            is_over: false,
        }
    }

    /// Returns once, when the timeout passes or is cut short; otherwise never.
    pub async fn passed(patience: Option<&mut Self>) {
        match patience {
            Some(patience) if !patience.is_over => {
                tokio::select! {
                    () = &mut patience.over => {}
                    // The sender lives as long as the registry, so an error cannot occur here.
                    _ = patience.hurried.wait_for(|hurried| *hurried) => {}
                }
                patience.is_over = true;
            }
            _ => std::future::pending().await,
        }
    }
}

impl Registry {
    /// Once this returns, a drain is under way: nothing new starts, waits return, and runs park at
    /// their step boundaries. Returns the timeout for steps in flight. An order that ends the
    /// process replaces one that resumes; any other second order is refused with `conflict`.
    pub fn drain(&self, order: Drain) -> Result<Duration, Fault> {
        let timeout = order.timeout.unwrap_or(self.inner.options().drain_timeout);
        let mut before = None;
        let begun = self.inner.drains.order.send_if_modified(|current| {
            before = current.map(|order| order.then);
            let takes_over = match current {
                None => true,
                Some(under_way) => !ends(under_way.then) && ends(order.then),
            };
            if takes_over {
                *current = Some(ActiveDrain {
                    timeout,
                    then: order.then,
                });
            }
            takes_over
        });
        match before {
            Some(then) if !begun => Err(Fault::new(
                Kind::Conflict,
                format!("the daemon is already draining and then {}s", then.as_str()),
            )
            .hint("wait until the drain has finished; gateway.status shows its phase")),
            _ => Ok(timeout),
        }
    }

    /// Cuts the drain's timeout short: steps in flight are cut off and continue when work is
    /// accepted again.
    pub fn hurry(&self) {
        self.inner.drains.hurried.send_replace(true);
    }

    /// True while a drain is under way.
    pub fn is_draining(&self) -> bool {
        self.inner.drains.is_under_way()
    }

    /// Returns when no drain is under way.
    pub async fn resumed(&self) {
        // The sender lives in `self`, so this cannot fail.
        let _ = self.inner.drains.orders().wait_for(Option::is_none).await;
    }

    /// True once every row is restored, so that runs may continue.
    pub fn is_at_work(&self) -> bool {
        self.inner.is_at_work.load(Ordering::Acquire)
    }

    /// Liveness probe: returns once the store's writer and the service loop have both answered.
    pub async fn answers(&self) {
        self.inner.store.ping().await;
        if !self.is_at_work() {
            // The restore is still going on, or waits for space on a full disk.
            return;
        }
        let (answer, answered) = oneshot::channel();
        let asked = self.inner.signals.send(Signal::Ping(answer));
        // If the loop is gone, the probe must not return.
        if asked.is_err() || answered.await.is_err() {
            std::future::pending().await
        }
    }

    /// Returns when a drain has begun after which the process ends.
    pub async fn ending(&self) {
        let mut orders = self.inner.drains.orders();
        // The sender lives in `self`, so this cannot fail.
        let _ = orders
            .wait_for(|order| order.is_some_and(|order| ends(order.then)))
            .await;
    }

    /// Returns when a drain's timeout was cut short by [`Registry::hurry`].
    pub async fn hurried(&self) {
        let mut hurried = self.inner.drains.hurried.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let _ = hurried.wait_for(|hurried| *hurried).await;
    }
}

impl RegistryInner {
    /// Returns when a drain has begun, immediately if one is under way.
    pub(crate) async fn drained(&self) {
        // The sender lives in `self`, so this cannot fail.
        let _ = self.drains.orders().wait_for(Option::is_some).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(then: Then) -> ActiveDrain {
        let timeout = Duration::from_secs(1);
        ActiveDrain { timeout, then }
    }

    #[test]
    fn a_resume_leaves_nothing_behind_and_an_end_stays_one() {
        let drains = Drains::default();
        assert!(!drains.is_under_way());
        drains.order.send_replace(Some(order(Then::Resume)));
        drains.hurried.send_replace(true);
        assert!(drains.is_under_way() && !drains.is_ending());
        assert_eq!(drains.settle(), None);
        assert!(!drains.is_under_way() && !*drains.hurried.borrow());
        for then in [Then::Stop, Then::Restart] {
            drains.order.send_replace(Some(order(then)));
            assert!(drains.is_ending());
            assert_eq!(drains.settle(), Some(then));
            assert!(drains.is_under_way(), "nothing starts any more");
        }
    }
}
