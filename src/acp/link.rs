//! The connection to the daemon. It is opened when it is first needed, and again after it was lost.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::acp_protocol::{Answered, RpcError, code};
use crate::client::{Client, ClientError, EventSubscription};
use crate::clock::Clock;
use crate::kernel::fault::Kind;
use crate::wire::events::SubscribeEvents;
use crate::wire::method::Method;

/// How long a request waits for a daemon that does not answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two attempts.
pub(super) const RETRY: Duration = Duration::from_millis(250);

/// Why no connection was opened.
#[derive(Clone, Debug)]
pub struct Unreachable {
    /// What happened and what to do.
    pub message: String,
    /// True if a later attempt may succeed: no daemon answers now.
    pub is_absent: bool,
    /// True if the daemon does not accept the caller's token.
    pub is_unauthorized: bool,
}

/// A connection that is being opened.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Client, Unreachable>> + 'a>>;

/// Opens connections to the daemon: the command line knows where it is.
pub trait Connect {
    /// Opens a connection. `is_first`: none was open before, so a daemon may be started.
    fn connect(&self, is_first: bool) -> Connecting<'_>;
}

/// The connection, shared by all requests and subscriptions.
pub(super) struct Link {
    connector: Box<dyn Connect>,
    current: Mutex<Option<Rc<Client>>>,
    had_one: Cell<bool>,
    clock: Clock,
}

impl Link {
    pub(super) fn new(connector: impl Connect + 'static) -> Link {
        Link {
            connector: Box::new(connector),
            current: Mutex::new(None),
            had_one: false.into(),
            clock: Clock::system(),
        }
    }

    /// The connection. A daemon that is gone is waited for, up to [`PATIENCE`].
    pub(super) async fn client(&self) -> Answered<Rc<Client>> {
        // The wait for another caller counts, too.
        let began = self.clock.monotonic();
        // The caller that holds the lock connects for all.
        let mut current = self.current.lock().await;
        if let Some(client) = &*current {
            return Ok(Rc::clone(client));
        }
        loop {
            let is_first = !self.had_one.get();
            match self.connector.connect(is_first).await {
                Ok(client) => {
                    self.had_one.set(true);
                    let client = Rc::new(client);
                    *current = Some(Rc::clone(&client));
                    return Ok(client);
                }
                Err(gone)
                    if gone.is_absent && !is_first && self.clock.monotonic() - began < PATIENCE => {
                }
                Err(gone) => {
                    let code = match gone.is_unauthorized {
                        true => code::AUTH_REQUIRED,
                        false => code::INTERNAL,
                    };
                    return Err(RpcError::new(code, gone.message));
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// The connection, however long it takes until there is one.
    pub(super) async fn client_at_last(&self) -> Rc<Client> {
        loop {
            match self.client().await {
                Ok(client) => return client,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// Drops this connection, which is broken; the next use opens another one.
    pub(super) async fn lost(&self, broken: &Rc<Client>) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|now| Rc::ptr_eq(now, broken)) {
            *current = None;
        }
    }

    /// Subscribes to events. If the log after the cursor is no longer kept, the subscription begins
    /// with a snapshot.
    pub(super) async fn subscribe(
        &self,
        request: &mut SubscribeEvents,
    ) -> Answered<EventSubscription> {
        let began = self.clock.monotonic();
        loop {
            let client = self.client().await?;
            match client.subscribe(request).await {
                Ok(events) => return Ok(events),
                Err(error @ ClientError::LinkLost(_)) => {
                    self.lost(&client).await;
                    if self.clock.monotonic() - began >= PATIENCE {
                        return Err(error.into());
                    }
                }
                Err(ClientError::Rpc(error)) => match error.kind() {
                    Some(Kind::CursorExpired | Kind::CursorUnknown) => {
                        request.since = None;
                        request.store_id = None;
                        continue;
                    }
                    Some(Kind::Unavailable | Kind::Busy)
                        if self.clock.monotonic() - began < PATIENCE => {}
                    _ => return Err(ClientError::Rpc(error).into()),
                },
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Subscribes to events, however long it takes until a daemon answers.
    pub(super) async fn subscribe_at_last(
        &self,
        request: &mut SubscribeEvents,
    ) -> EventSubscription {
        loop {
            match self.subscribe(request).await {
                Ok(events) => return events,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// Calls a method. After a lost connection, and while the daemon starts or stops, the call is
    /// repeated, up to [`PATIENCE`]: it must have an id or key so that a repeat does nothing more.
    pub(super) async fn call<M: Method>(&self, params: &M) -> Answered<M::Answer> {
        let began = self.clock.monotonic();
        loop {
            let client = self.client().await?;
            match client.call(M::ROW.name, params).await {
                Ok(answer) => return Ok(answer),
                Err(error @ ClientError::LinkLost(_)) => {
                    self.lost(&client).await;
                    if self.clock.monotonic() - began >= PATIENCE {
                        return Err(error.into());
                    }
                }
                Err(ClientError::Rpc(error))
                    if matches!(error.kind(), Some(Kind::Unavailable | Kind::Busy))
                        && self.clock.monotonic() - began < PATIENCE => {}
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}
