//! What a door needs of a daemon: calls of its methods, and its events. The gateway implements it
//! with its own dispatch, the command line with a connection.

use futures_util::stream::BoxStream;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::contract::BoxFuture;
use crate::kernel::fault::{Fault, Kind};
use crate::wire::error::WireError;
use crate::wire::events::{Event, SubscribeEvents};
use crate::wire::method::Method;

/// Events of a subscription, in their order; it ends with the connection, or if its reader is too
/// slow.
pub(crate) type EventFeed = BoxStream<'static, Event>;

/// The API of a daemon, with the rights of one caller.
pub(crate) trait Api: Clone + Send + Sync + 'static {
    /// True if calls go on after a restart of the daemon, over a new connection.
    const OUTLIVES_DAEMON: bool;

    /// Calls a method. Where calls outlive the daemon, the parameters have an id or idempotency
    /// key, or the method may be repeated.
    fn call(
        &self,
        method: &'static str,
        params: Value,
    ) -> BoxFuture<'static, Result<Value, WireError>>;

    /// Subscribes to events.
    fn follow(&self, request: SubscribeEvents) -> BoxFuture<'static, Result<EventFeed, WireError>>;
}

/// Calls the method with these parameters and decodes its result.
pub(crate) async fn ask<M: Method>(api: &impl Api, params: &M) -> Result<M::Answer, WireError> {
    let params = serde_json::to_value(params).map_err(unreadable)?;
    let answer = api.call(M::ROW.name, params).await?;
    decoded(answer)
}

fn decoded<T: DeserializeOwned>(answer: Value) -> Result<T, WireError> {
    serde_json::from_value(answer).map_err(unreadable)
}

fn unreadable(error: serde_json::Error) -> WireError {
    let message = format!("an answer of the daemon cannot be read: {error}");
    Fault::new(Kind::Internal, message).into()
}
