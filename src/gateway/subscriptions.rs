//! The event subscriptions of one connection: how many there are, and which of them its task
//! has to serve.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::kernel::fault::{Fault, Kind};
use crate::registry::{Item, Subscription};

/// The subscriptions of one connection.
pub(crate) struct Subscriptions {
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Those that are open, and those that are being made, which have no token yet.
    open: HashMap<String, CancellationToken>,
    /// Those that were made and that the connection's task has not taken over yet.
    begun: Vec<Served>,
}

/// A subscription that the connection's task serves.
pub(crate) struct Served {
    /// Its id.
    pub(crate) id: String,
    subscription: Subscription,
    clock: Clock,
    stop: CancellationToken,
}

/// A place among the subscriptions of a connection, until the subscription is made or not.
pub(crate) struct Reserved {
    subscriptions: Arc<Subscriptions>,
    id: Option<String>,
}

impl Subscriptions {
    /// None yet, and so many at most.
    pub(crate) fn new(most: u32) -> Arc<Self> {
        Arc::new(Subscriptions {
            most: most as usize,
            state: Mutex::default(),
        })
    }

    /// Takes a place for a subscription of this id, or says that there is none.
    pub(crate) fn reserve(self: &Arc<Self>, id: String) -> Result<Reserved, Fault> {
        let mut state = self.lock();
        if state.open.len() >= self.most {
            return Err(Fault::new(
                Kind::Limit,
                format!(
                    "{} subscriptions are open on this connection, the most there may be",
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

    /// Ends a subscription: nothing of it is sent any more. `false`: there is none.
    pub(crate) fn end(&self, id: &str) -> bool {
        let stop = self.lock().open.remove(id);
        if let Some(stop) = &stop {
            stop.cancel();
        }
        stop.is_some()
    }

    /// The subscriptions that were made since the last time.
    pub(crate) fn take_begun(&self) -> Vec<Served> {
        std::mem::take(&mut self.lock().begun)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole at every moment, also where somebody panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reserved {
    /// The subscription is made; the connection's task takes it over after the answer that
    /// names its id. Gives that id.
    pub(crate) fn begin(mut self, subscription: Subscription, clock: Clock) -> String {
        let id = self.id.take().unwrap_or_default();
        let mut state = self.subscriptions.lock();
        if let Some(stop) = state.open.get(&id).cloned() {
            state.begun.push(Served {
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

impl Served {
    /// As [`Served::items`]; gives itself back to be asked again.
    pub(crate) async fn next(mut self) -> (Served, Option<Vec<Item>>) {
        let items = self.items().await;
        (self, items)
    }

    /// What comes next; `None`: it has ended.
    pub(crate) async fn items(&mut self) -> Option<Vec<Item>> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            items = self.subscription.next() => items,
        }
    }

    /// The clock of what is not stored.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}
