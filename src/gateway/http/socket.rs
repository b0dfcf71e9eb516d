//! Serves one WebSocket connection: messages in and responses out, in one task.
//!
//! Nothing is read while responses cannot be written: a client that sends without reading blocks
//! only itself, and the daemon buffers no more for it than the calls in flight.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, SinkExt, StreamExt};
use jsonrpsee::types::Id;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};
use tokio_util::sync::CancellationToken;

use crate::contract::BoxFuture;
use crate::gateway::rpc::subscriptions::{ServedSubscription, Subscriptions};
use crate::gateway::rpc::{Connection, Dispatcher, RpcAnswer, error_text};
use crate::kernel::fault::{Fault, Kind};
use crate::registry::{Principal, SubscriptionItem};

/// Ping interval. Pings detect a dead link; a peer that is alive but slow to read is not
/// disconnected.
const PING: Duration = Duration::from_secs(30);
/// Read buffer per connection; small, because idle connections have one, too.
const READ_BUFFER: usize = 8 * 1024;
/// Ready responses are combined up to this size before they are written.
const WRITE_BUFFER: usize = 16 * 1024;
/// Maximum number of notifications of calls that wait to be written; further ones are left out.
const NOTES: usize = 64;
/// Maximum number of bytes read and discarded after a close frame, so that the peer gets to read
/// the reason.
const DISCARD_LIMIT: u64 = 64 * 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

type CallsInFlight = FuturesUnordered<BoxFuture<'static, String>>;
type SubscriptionReads =
    FuturesUnordered<BoxFuture<'static, (ServedSubscription, Option<Vec<SubscriptionItem>>)>>;

/// Why a connection ends.
enum ConnectionEnd {
    /// The peer disconnected, or does not speak the protocol.
    Gone,
    /// The daemon closes the connection with this code and reason.
    Close(CloseCode, &'static str),
    /// A message was too large; its remainder cannot be separated from the next message.
    TooLarge,
}

/// Serves one connection until the peer disconnects, or until `shutdown` is cancelled and all calls
/// in flight have been answered.
pub(crate) async fn serve<S>(
    io: S,
    dispatcher: Arc<Dispatcher>,
    who: Arc<Principal>,
    is_program: bool,
    shutdown: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let limits = dispatcher.limits();
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_message_size(Some(limits.payload))
        .max_frame_size(Some(limits.payload));
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let end = match talk(&mut socket, &dispatcher, (&who, is_program), &shutdown).await {
        Ok(end) => end,
        Err(error) => {
            tracing::debug!(%error, "a connection ended");
            ConnectionEnd::Gone
        }
    };
    match end {
        ConnectionEnd::Gone => {}
        // On shutdown the daemon does not wait for peers to read.
        ConnectionEnd::Close(CloseCode::Away, reason) => {
            close(&mut socket, CloseCode::Away, reason).await
        }
        ConnectionEnd::Close(code, reason) => {
            close(&mut socket, code, reason).await;
            discard_rest(&mut socket, &shutdown).await;
        }
        ConnectionEnd::TooLarge => {
            let most = dispatcher.limits().payload;
            let fault = Fault::new(
                Kind::TooLarge,
                format!("the message exceeds the limit of {most} bytes"),
            )
            .with("limit", "payload")
            .with("value", most);
            let text = error_text(Id::Null, fault);
            if socket.send(Message::text(text)).await.is_ok() {
                close(&mut socket, CloseCode::Size, "message too large").await;
                discard_rest(&mut socket, &shutdown).await;
            }
        }
    }
}

async fn talk<S>(
    socket: &mut WebSocketStream<S>,
    dispatcher: &Arc<Dispatcher>,
    (who, is_program): (&Arc<Principal>, bool),
    shutdown: &CancellationToken,
) -> Result<ConnectionEnd, Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let subscriptions = Subscriptions::new(dispatcher.limits().subscriptions);
    let (notes, mut noted) = mpsc::channel(NOTES);
    let connection = Connection::with(Arc::clone(&subscriptions)).with_notes(notes);
    let connection = Arc::new(connection);
    connection.set_is_program(is_program);
    let mut calls = CallsInFlight::new();
    let mut events = SubscriptionReads::new();
    // A child token: waiting for shutdown takes no lock shared between connections.
    let shutdown = shutdown.child_token();
    let mut stop = std::pin::pin!(shutdown.cancelled());
    let mut ping = tokio::time::interval(PING);
    ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ping.tick().await;
    let mut token_ended = std::pin::pin!(who.ended());
    let mut unwritten = false;
    let mut reading = true;
    loop {
        // Received data is processed first; responses are flushed together once nothing else is
        // ready (or the write buffer is full).
        tokio::select! {
            biased;
            // Calls in flight are abandoned: their answers and events are for a valid token.
            _ = &mut token_ended => {
                return Ok(ConnectionEnd::Close(
                    CloseCode::Policy,
                    "the token is revoked or has expired",
                ));
            }
            // Before the result of the call that they belong to.
            Some(text) = noted.recv() => {
                socket.feed(Message::text(text)).await?;
                unwritten = true;
            }
            Some(text) = calls.next(), if !calls.is_empty() => {
                if !text.is_empty() {
                    socket.feed(Message::text(text)).await?;
                    unwritten = true;
                }
                // Started only after the response that names the subscription id.
                for served in subscriptions.take_begun() {
                    events.push(served.next().boxed());
                }
            }
            message = socket.next(), if reading => {
                let text = match message {
                    None => return Ok(ConnectionEnd::Gone),
                    Some(Ok(Message::Text(text))) => text,
                    Some(Ok(Message::Binary(bytes))) => match bytes.try_into() {
                        Ok(text) => text,
                        Err(_) => return Ok(ConnectionEnd::Close(CloseCode::Invalid, "not UTF-8")),
                    },
                    Some(Ok(_)) => continue,
                    Some(Err(Error::Capacity(CapacityError::MessageTooLong { .. }))) => {
                        return Ok(ConnectionEnd::TooLarge);
                    }
                    Some(Err(Error::Utf8(_))) => {
                        return Ok(ConnectionEnd::Close(CloseCode::Invalid, "not UTF-8"));
                    }
                    Some(Err(Error::Protocol(error))) => {
                        tracing::debug!(%error, "a peer violated the WebSocket protocol");
                        return Ok(ConnectionEnd::Close(CloseCode::Protocol, "broken frame"));
                    }
                    Some(Err(error)) => return Err(error),
                };
                match dispatcher.answer(&connection, who, &text) {
                    RpcAnswer::None => {}
                    RpcAnswer::Later(call) => calls.push(call),
                    RpcAnswer::Now(text) => {
                        socket.feed(Message::text(text)).await?;
                        unwritten = true;
                    }
                }
            }
            // New items are fetched only after the previous ones were written: a peer that does not
            // read costs only a cursor into the log.
            Some((served, items)) = events.next(), if !events.is_empty() => match items {
                Some(items) => {
                    for item in &items {
                        let text = crate::gateway::methods::events::notification(&served.id, item, served.clock());
                        socket.feed(Message::text(text)).await?;
                    }
                    unwritten = true;
                    events.push(served.next().boxed());
                }
                None => drop(subscriptions.end(&served.id)),
            },
            () = std::future::ready(()), if unwritten => {
                socket.flush().await?;
                unwritten = false;
            }
            () = &mut stop, if reading => reading = false,
            _ = ping.tick() => {
                socket.send(Message::Ping(Default::default())).await?;
            }
        }
        if !reading && calls.is_empty() && !unwritten {
            return Ok(ConnectionEnd::Close(
                CloseCode::Away,
                "the daemon is stopping",
            ));
        }
    }
}

/// Reads and discards data still in transit: if a connection is closed with unread data, the peer's
/// system discards the close frame.
async fn discard_rest<S>(socket: &mut WebSocketStream<S>, shutdown: &CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut rest, mut nowhere) = (socket.get_mut().take(DISCARD_LIMIT), tokio::io::sink());
    let gone = tokio::io::copy(&mut rest, &mut nowhere);
    // Best effort: any outcome is fine, and shutdown does not wait for it.
    tokio::select! {
        _ = tokio::time::timeout(DISCARD_TIMEOUT, gone) => {}
        () = shutdown.cancelled() => {}
    }
}

async fn close<S>(socket: &mut WebSocketStream<S>, code: CloseCode, reason: &'static str)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let frame = CloseFrame {
        code,
        reason: reason.into(),
    };
    if let Err(error) = socket.close(Some(frame)).await {
        tracing::debug!(%error, "the close frame could not be sent");
    }
}
