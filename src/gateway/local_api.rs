//! The API for doors in this process: their calls go through the same dispatch as those of clients,
//! with the rights and limits of the caller, and are audited alike.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::contract::BoxFuture;
use crate::doors::api::{Api, EventFeed};
use crate::gateway::methods::events;
use crate::gateway::rpc::subscriptions::{ServedSubscription, Subscriptions};
use crate::gateway::rpc::{Connection, Dispatcher, RpcAnswer};
use crate::kernel::fault::{Fault, Kind};
use crate::registry::Principal;
use crate::wire::error::WireError;
use crate::wire::events::{Event, SubscribeEvents};

/// The API with the rights of one caller.
#[derive(Clone)]
pub(crate) struct LocalApi {
    dispatcher: Arc<Dispatcher>,
    connection: Arc<Connection>,
    who: Arc<Principal>,
}

/// A response to a call.
#[derive(Deserialize)]
struct Reply {
    result: Option<Value>,
    error: Option<WireError>,
}

impl LocalApi {
    /// The API for `who`, whose calls are counted for `connection`.
    pub(crate) fn new(
        dispatcher: Arc<Dispatcher>,
        connection: Arc<Connection>,
        who: Arc<Principal>,
    ) -> Self {
        LocalApi {
            dispatcher,
            connection,
            who,
        }
    }

    /// Source of time and ids.
    pub(crate) fn clock(&self) -> &Clock {
        self.dispatcher.clock()
    }

    /// Maximum size of a request in bytes.
    pub(crate) fn payload(&self) -> usize {
        self.dispatcher.limits().payload
    }

    async fn answer(
        &self,
        connection: &Arc<Connection>,
        method: &str,
        params: Value,
    ) -> Result<Value, WireError> {
        let message = json!({ "jsonrpc": "2.0", "id": 0, "method": method, "params": params });
        let answer = self
            .dispatcher
            .answer(connection, &self.who, &message.to_string());
        let text = match answer {
            RpcAnswer::Later(answer) => answer.await,
            RpcAnswer::Now(text) => text,
            RpcAnswer::None => String::new(),
        };
        let reply: Reply = serde_json::from_str(&text).map_err(Fault::internal)?;
        match reply.error {
            Some(error) => Err(error),
            None => Ok(reply.result.unwrap_or_default()),
        }
    }
}

impl Api for LocalApi {
    const OUTLIVES_DAEMON: bool = false;

    fn call(
        &self,
        method: &'static str,
        params: Value,
    ) -> BoxFuture<'static, Result<Value, WireError>> {
        let api = self.clone();
        Box::pin(async move { api.answer(&api.connection, method, params).await })
    }

    fn follow(&self, request: SubscribeEvents) -> BoxFuture<'static, Result<EventFeed, WireError>> {
        let api = self.clone();
        Box::pin(async move {
            let subscriptions = Subscriptions::new(1);
            let connection = Arc::new(Connection::with(Arc::clone(&subscriptions)));
            let params = serde_json::to_value(request).map_err(Fault::internal)?;
            api.answer(&connection, "events.subscribe", params).await?;
            let Some(served) = subscriptions.take_begun().pop() else {
                let message = "a subscription has not begun";
                return Err(Fault::new(Kind::Internal, message).into());
            };
            Ok(feed(served, api.who))
        })
    }
}

/// The events of a subscription, until its caller's token ends.
fn feed(served: ServedSubscription, who: Arc<Principal>) -> EventFeed {
    let ready: VecDeque<Event> = VecDeque::new();
    stream::unfold(
        (served, who, ready),
        async |(mut served, who, mut ready)| {
            while ready.is_empty() {
                let items = tokio::select! {
                    biased;
                    _ = who.ended() => None,
                    items = served.items() => items,
                };
                for item in items? {
                    let text = events::text(&item, served.clock());
                    match serde_json::from_str(&text) {
                        Ok(event) => ready.push_back(event),
                        Err(error) => tracing::error!(%error, "an event cannot be read"),
                    }
                }
            }
            let event = ready.pop_front()?;
            Some((event, (served, who, ready)))
        },
    )
    .boxed()
}
