//! A WebSocket to a gateway: frames as JSON text, pings in both directions, and the end of a link
//! on which nothing arrives any more.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http::header::{AUTHORIZATION, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::Error as WsError;
use tokio_tungstenite::tungstenite::protocol::{Message, WebSocketConfig};

use super::error::NodeError;
use super::identity::{NodeKey, fingerprint, is_signed};
use super::settings::PinnedGateway;
use crate::client::GatewayUrl;
use crate::client::tls::{self, GatewayStream, Trust};
use crate::failpoint;
use crate::kernel::node::RefusalReason;
use crate::kernel::secret::Secret;
use crate::tls::Fingerprint;
use crate::wire::node_link::{Challenge, FRAME_LIMIT, HEARTBEAT, PROTOCOL, SILENCE, proof_bytes};

type Socket = WebSocketStream<GatewayStream>;

/// Receives frames of the gateway.
pub(super) struct LinkReader(SplitStream<Socket>);

/// Sends frames to the gateway.
pub(super) struct LinkWriter(SplitSink<Socket, Message>);

/// Connects to a path of the gateway. Also returns the fingerprint of its certificate, if it has
/// one.
pub(super) async fn open(
    url: &str,
    path: &str,
    trust: Trust,
    token: Option<&Secret>,
) -> Result<(LinkReader, LinkWriter, Option<Fingerprint>), NodeError> {
    let (stream, certificate) = tls::connect(url, trust).await?;
    let target = format!("ws://{}{path}", GatewayUrl::parse(url)?.authority());
    let mut request = target
        .into_client_request()
        .map_err(|fault| NodeError::Settings(format!("{url}: {fault}")))?;
    if let Some(token) = token {
        let value = HeaderValue::try_from(format!("Bearer {}", token.expose()));
        let mut value = value.map_err(|_| NodeError::Unauthorized {
            url: url.to_owned(),
        })?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let config = WebSocketConfig::default()
        .max_message_size(Some(FRAME_LIMIT))
        .max_frame_size(Some(FRAME_LIMIT));
    let opening = tokio_tungstenite::client_async_with_config(request, stream, Some(config));
    let (socket, _) = timeout(SILENCE, opening)
        .await
        .map_err(|_| NodeError::Lost(format!("the gateway at {url} does not answer")))?
        .map_err(|fault| refused(url, fault))?;
    let (writer, reader) = socket.split();
    Ok((LinkReader(reader), LinkWriter(writer), certificate))
}

fn refused(url: &str, fault: WsError) -> NodeError {
    let url = url.to_owned();
    match fault {
        WsError::Http(answer) => match answer.status().as_u16() {
            401 | 403 => NodeError::Unauthorized { url },
            404 => NodeError::Lost(format!("the daemon at {url} has no gateway for nodes")),
            status => NodeError::Lost(format!(
                "the gateway at {url} refused the connection with HTTP status {status}"
            )),
        },
        fault => NodeError::Lost(format!(
            "the gateway at {url} is no WebSocket server: {fault}"
        )),
    }
}

impl LinkReader {
    /// The next frame. The error says why there is none; also if nothing has arrived for
    /// [`SILENCE`]. Cancel-safe.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<T, NodeError> {
        loop {
            let message = timeout(silence(), self.0.next()).await.map_err(|_| {
                NodeError::Lost("the gateway has been silent for too long".to_owned())
            })?;
            match message {
                Some(Ok(Message::Text(text))) => {
                    return serde_json::from_str(text.as_str()).map_err(|fault| {
                        NodeError::Lost(format!(
                            "a frame of the gateway cannot be decoded: {fault}"
                        ))
                    });
                }
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame.map(|frame| frame.reason.as_str().to_owned());
                    let reason = reason.filter(|reason| !reason.is_empty());
                    return Err(NodeError::Lost(
                        reason.unwrap_or_else(|| "the gateway has closed the link".to_owned()),
                    ));
                }
                // Pings and pongs show that the gateway is there.
                Some(Ok(_)) => {}
                Some(Err(fault)) => {
                    return Err(NodeError::Lost(format!("the link was lost: {fault}")));
                }
                None => return Err(NodeError::Lost("the link was closed".to_owned())),
            }
        }
    }
}

/// How long a gateway may be silent.
fn silence() -> Duration {
    let ms = failpoint::substituted("node.silence");
    ms.map_or(SILENCE, Duration::from_millis)
}

impl LinkWriter {
    /// Sends a frame; gives up when the gateway does not take it in time.
    pub(super) async fn send(&mut self, frame: &impl Serialize) -> Result<(), NodeError> {
        let text = serde_json::to_string(frame)
            .map_err(|fault| NodeError::Local(format!("a frame cannot be encoded: {fault}")))?;
        self.message(Message::text(text)).await
    }

    /// Sends a ping.
    pub(super) async fn ping(&mut self) -> Result<(), NodeError> {
        self.message(Message::Ping(Vec::new().into())).await
    }

    async fn message(&mut self, message: Message) -> Result<(), NodeError> {
        match timeout(SILENCE, self.0.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(fault)) => Err(NodeError::Lost(format!("the link was lost: {fault}"))),
            Err(_) => Err(NodeError::Lost(
                "the gateway takes no frames any more".to_owned(),
            )),
        }
    }

    /// Closes the connection, if the gateway still takes it.
    pub(super) async fn close(&mut self) {
        let _ = timeout(HEARTBEAT, self.0.close()).await;
    }
}

/// Ticks at which pings are due.
pub(super) fn heartbeat() -> tokio::time::Interval {
    let mut ticks = interval(HEARTBEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Checks a challenge against the pinned gateway, if there is one.
pub(super) fn check_challenge(
    challenge: &Challenge,
    url: &str,
    pinned: Option<&PinnedGateway>,
) -> Result<(), NodeError> {
    if challenge.protocol != PROTOCOL {
        return Err(NodeError::Refused {
            reason: RefusalReason::Protocol,
            message: format!(
                "the gateway at {url} speaks version {} of the link, this node version {PROTOCOL}; \
                 upgrade the older of the two",
                challenge.protocol
            ),
        });
    }
    if let Some(pinned) = pinned
        && (pinned.public_key != challenge.public_key || pinned.id != challenge.gateway)
    {
        return Err(NodeError::KeyChanged {
            url: url.to_owned(),
            known: fingerprint(&pinned.public_key),
            found: fingerprint(&challenge.public_key),
        });
    }
    Ok(())
}

/// The node's answer to a challenge on `path`.
pub(super) fn sign(key: &NodeKey, challenge: &Challenge, path: &str) -> String {
    key.sign(&challenge.signed_bytes(path))
}

/// Checks that the gateway has the key that its challenge shows.
pub(super) fn check_proof(
    challenge: &Challenge,
    path: &str,
    nonce: &str,
    signature: &str,
) -> Result<(), NodeError> {
    match is_signed(&challenge.public_key, &proof_bytes(path, nonce), signature) {
        true => Ok(()),
        false => Err(NodeError::Untrusted(
            "the gateway does not have the key that it shows".to_owned(),
        )),
    }
}
