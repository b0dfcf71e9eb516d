//! The event subscriptions of one connection: their limit, and those that the connection's task has
//! to serve.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::kernel::fault::{Fault, Kind};
use crate::registry::{Subscription, SubscriptionItem};

/// The subscriptions of one connection.
pub(crate) struct Subscriptions {
    most: usize,
    state: Mutex<SubscriptionsState>,
}

#[derive(Default)]
struct SubscriptionsState {
    /// Open subscriptions, and reserved ones, whose token has no listener yet.
    open: HashMap<String, CancellationToken>,
    /// New subscriptions that the connection's task has not taken over yet.
    begun: Vec<ServedSubscription>,
}

/// A subscription served by the connection's task.
pub(crate) struct ServedSubscription {
    /// Id of the subscription.
    pub(crate) id: String,
    subscription: Subscription,
    clock: Clock,
    stop: CancellationToken,
}

/// A reserved slot for a subscription, released on drop unless the subscription begins.
pub(crate) struct Reserved {
    subscriptions: Arc<Subscriptions>,
    id: Option<String>,
}

impl Subscriptions {
    /// An empty set that allows `most` subscriptions.
    pub(crate) fn new(most: u32) -> Arc<Self> {
        Arc::new(Subscriptions {
            most: most as usize,
            state: Mutex::default(),
        })
    }

    /// Reserves a slot for a subscription with this id; `limit` if none is free.
    pub(crate) fn reserve(self: &Arc<Self>, id: String) -> Result<Reserved, Fault> {
        let mut state = self.lock();
        if state.open.len() >= self.most {
            return Err(Fault::new(
                Kind::Limit,
                format!(
                    "{} subscriptions are open on this connection, which is the limit",
                    self.most
                ),
            )
            .hint("end one with events.unsubscribe, widen its filter, or open another connection")
            .with("limit", "subscriptions")
            .with("value", self.most)
            .with("counts", "open subscriptions of this connection")
            .with("free", "events.unsubscribe"));
        }
        state.open.insert(id.clone(), CancellationToken::new());
        Ok(Reserved {
            subscriptions: Arc::clone(self),
            id: Some(id),
        })
    }

    /// Ends a subscription: no further event of it is sent. Returns false if it does not exist.
    pub(crate) fn end(&self, id: &str) -> bool {
        let stop = self.lock().open.remove(id);
        if let Some(stop) = &stop {
            stop.cancel();
        }
        stop.is_some()
    }

    /// Removes and returns the subscriptions that began since the last call.
    pub(crate) fn take_begun(&self) -> Vec<ServedSubscription> {
        std::mem::take(&mut self.lock().begun)
    }

    fn lock(&self) -> MutexGuard<'_, SubscriptionsState> {
        // The state is consistent at every moment, also after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reserved {
    /// Registers the subscription and returns its id. The connection's task takes it over after the
    /// response that names the id.
    pub(crate) fn begin(mut self, subscription: Subscription, clock: Clock) -> String {
        let id = self.id.take().unwrap_or_default();
        let mut state = self.subscriptions.lock();
        if let Some(stop) = state.open.get(&id).cloned() {
            state.begun.push(ServedSubscription {
                id: id.clone(),
                subscription,
                clock,
                stop,
            });
        }
        id
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.subscriptions.end(id);
        }
    }
}

impl ServedSubscription {
    /// As [`Served::items`], but returns `self` for the next call.
    pub(crate) async fn next(mut self) -> (ServedSubscription, Option<Vec<SubscriptionItem>>) {
        let items = self.items().await;
        (self, items)
    }

    /// The next items; `None` once the subscription has ended.
    pub(crate) async fn items(&mut self) -> Option<Vec<SubscriptionItem>> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            items = self.subscription.next() => items,
        }
    }

    /// Clock for the timestamps of events that are not stored.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}
