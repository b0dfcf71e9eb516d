//! A WebSocket of a node: JSON text frames with limits on size, rate and silence.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

use crate::clock::Clock;
use crate::wire::node_link::{FRAME_LIMIT, SILENCE};

/// Read buffer per link; small, because idle links have one, too.
const READ_BUFFER: usize = 8 * 1024;
/// Frames are combined up to this size before they are written.
const WRITE_BUFFER: usize = 16 * 1024;
/// Length of a window in which frames and bytes of a node are counted.
const WINDOW: Duration = Duration::from_secs(5);
/// Maximum number of frames of a node within a window.
const FRAMES: u32 = 5_000;
/// Maximum number of bytes of a node within a window.
const BYTES: usize = 64 * 1024 * 1024;

/// What a node's frames are read from.
pub(super) struct FrameReader<S> {
    stream: SplitStream<WebSocketStream<S>>,
    clock: Clock,
    began: Duration,
    frames: u32,
    bytes: usize,
    /// When the last frame was received.
    pub(super) heard_at: Duration,
}

/// What frames to a node are written to.
pub(super) struct FrameWriter<S> {
    sink: SplitSink<WebSocketStream<S>, Message>,
}

/// Why a link ends.
#[derive(Debug)]
pub(super) enum LinkEnd {
    /// The node has closed it, or the network has.
    Gone,
    /// The gateway closes it with this code and reason.
    Close(CloseCode, String),
}

/// A WebSocket over `io`, whose upgrade was answered.
pub(super) async fn open<S>(io: S, limit: usize, clock: Clock) -> (FrameReader<S>, FrameWriter<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let limit = limit.min(FRAME_LIMIT);
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_message_size(Some(limit))
        .max_frame_size(Some(limit));
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let (sink, stream) = socket.split();
    let now = clock.monotonic();
    let reader = FrameReader {
        stream,
        clock,
        began: now,
        frames: 0,
        bytes: 0,
        heard_at: now,
    };
    (reader, FrameWriter { sink })
}

impl<S: AsyncRead + AsyncWrite + Unpin> FrameReader<S> {
    /// The next frame; pings are answered meanwhile. Fails if nothing is received for [`SILENCE`].
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<T, LinkEnd> {
        loop {
            let Ok(received) = tokio::time::timeout(SILENCE, self.stream.next()).await else {
                let seconds = SILENCE.as_secs();
                let reason = format!("nothing was received for {seconds} s");
                return Err(LinkEnd::Close(CloseCode::Away, reason));
            };
            let message = match received {
                None => return Err(LinkEnd::Gone),
                Some(Ok(message)) => message,
                Some(Err(error)) => return Err(broken(&error)),
            };
            self.heard_at = self.clock.monotonic();
            self.count(message.len())?;
            match message {
                Message::Text(text) => {
                    return serde_json::from_str(&text).map_err(|error| {
                        tracing::debug!(%error, "a frame of a node could not be read");
                        LinkEnd::Close(CloseCode::Invalid, "a frame is not valid".to_owned())
                    });
                }
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
                Message::Close(_) => return Err(LinkEnd::Gone),
                Message::Binary(_) => {
                    let reason = "frames are JSON text".to_owned();
                    return Err(LinkEnd::Close(CloseCode::Unsupported, reason));
                }
            }
        }
    }

    /// As [`FrameReader::next`], within this time.
    pub(super) async fn within<T: DeserializeOwned>(
        &mut self,
        time: Duration,
    ) -> Result<T, LinkEnd> {
        let next = tokio::time::timeout(time, self.next()).await;
        next.unwrap_or_else(|_| {
            let seconds = time.as_secs();
            let reason = format!("no request was received within {seconds} s");
            Err(LinkEnd::Close(CloseCode::Policy, reason))
        })
    }

    /// Waits until the peer has gone; frames are an error.
    pub(super) async fn gone(&mut self) -> LinkEnd {
        match self.next::<serde::de::IgnoredAny>().await {
            Ok(_) => LinkEnd::Close(CloseCode::Policy, "no frame was expected".to_owned()),
            Err(end) => end,
        }
    }

    fn count(&mut self, bytes: usize) -> Result<(), LinkEnd> {
        if self.heard_at.saturating_sub(self.began) >= WINDOW {
            (self.began, self.frames, self.bytes) = (self.heard_at, 0, 0);
        }
        self.frames += 1;
        self.bytes += bytes;
        if self.frames > FRAMES || self.bytes > BYTES {
            let reason = "too many frames or bytes within five seconds".to_owned();
            return Err(LinkEnd::Close(CloseCode::Policy, reason));
        }
        Ok(())
    }
}

fn broken(error: &Error) -> LinkEnd {
    let (code, reason) = match error {
        Error::Capacity(CapacityError::MessageTooLong { .. }) => {
            (CloseCode::Size, "a frame is too large")
        }
        Error::Utf8(_) => (CloseCode::Invalid, "a frame is not UTF-8"),
        // A peer that has gone without a close frame.
        Error::Protocol(
            tokio_tungstenite::tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
        ) => return LinkEnd::Gone,
        Error::Protocol(_) => (CloseCode::Protocol, "a frame is broken"),
        _ => return LinkEnd::Gone,
    };
    LinkEnd::Close(code, reason.to_owned())
}

impl<S: AsyncRead + AsyncWrite + Unpin> FrameWriter<S> {
    /// Writes a frame and everything before it.
    pub(super) async fn send(&mut self, frame: &impl Serialize) -> Result<(), LinkEnd> {
        let text = serde_json::to_string(frame).map_err(|_| LinkEnd::Gone)?;
        self.feed(text).await?;
        self.flush().await
    }

    /// Adds the text of a frame to what is written next.
    pub(super) async fn feed(&mut self, text: String) -> Result<(), LinkEnd> {
        let fed = self.sink.feed(Message::text(text)).await;
        fed.map_err(|_| LinkEnd::Gone)
    }

    /// Writes what was added.
    pub(super) async fn flush(&mut self) -> Result<(), LinkEnd> {
        self.sink.flush().await.map_err(|_| LinkEnd::Gone)
    }

    /// Writes a ping.
    pub(super) async fn ping(&mut self) -> Result<(), LinkEnd> {
        let sent = self.sink.send(Message::Ping(Default::default())).await;
        sent.map_err(|_| LinkEnd::Gone)
    }

    /// Closes the link with this code and reason.
    pub(super) async fn close(&mut self, code: CloseCode, reason: &str) {
        let frame = CloseFrame {
            code,
            reason: reason.into(),
        };
        // Best effort: the link ends either way.
        let _ = self.sink.send(Message::Close(Some(frame))).await;
    }
}

/// Reads and discards what is still in transit: if a connection is closed with unread data, the
/// peer's system discards the close frame.
pub(super) async fn discard_rest<S: AsyncRead + AsyncWrite + Unpin>(mut reader: FrameReader<S>) {
    let rest = async { while let Some(Ok(_)) = reader.stream.next().await {} };
    let _ = tokio::time::timeout(Duration::from_secs(2), rest).await;
}
