//! JSON-RPC client over WebSocket, on TCP with or without TLS, or on the Unix socket. Used by the
//! command line and by tests.
//!
//! Finding a daemon and its token is the caller's job.

mod address;
pub mod pipe;
pub mod tls;

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt;
use jsonrpsee::client_transport::ws::{WsHandshakeError, WsTransportClientBuilder};
use jsonrpsee::core::client::{ClientT, Error as RpcError, Subscription, SubscriptionClientT};
use jsonrpsee::core::traits::ToRpcParams;
use jsonrpsee_ws_client::{PingConfig, WsClient, WsClientBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

pub use self::address::GatewayUrl;
use self::tls::Trust;
use crate::tls::Fingerprint;
use crate::wire::error::WireError;
use crate::wire::events::{Event, SubscribeEvents};
use crate::wire::input::WAIT_LIMIT;
use crate::wire::nodes::{NodeOutputPart, OUTPUT};

/// Maximum message size in either direction: the server's limits plus room for the envelope.
const MESSAGE_LIMIT: u32 = 11 * 1024 * 1024;
/// Timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of buffered events per subscription; beyond that the subscription ends.
const EVENTS: usize = 4096;
/// Maximum number of calls in flight: the server's limits for calls and waits together.
const CALLS: usize = 64 + 1024;

/// Why a call returned no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL is not one that this client supports.
    #[error("{url} is not a daemon's URL: {message}")]
    Url {
        /// The given URL.
        url: String,
        /// What is wrong with it.
        message: String,
    },
    /// Could not connect. Nothing was sent.
    #[error("cannot connect to a daemon at {url}: {message}")]
    NoDaemon {
        /// URL or socket path.
        url: String,
        /// Error of the operating system.
        message: String,
    },
    /// The system does not let this user open the socket. Nothing was sent. Another way to the daemon
    /// would be one with other rights, so none is tried.
    #[error("no permission to connect to the socket {url}: {message}. Nothing was sent")]
    NotPermitted {
        /// Socket path.
        url: String,
        /// Error of the operating system.
        message: String,
    },
    /// The daemon does not accept this token. Nothing was done.
    #[error("the daemon at {url} does not accept this token")]
    Unauthorized {
        /// URL or socket path.
        url: String,
    },
    /// The daemon refused the connection for another reason. Nothing was done.
    #[error("the daemon at {url} refused the connection with HTTP status {status}")]
    Refused {
        /// URL or socket path.
        url: String,
        /// The HTTP status of the refusal.
        status: u16,
    },
    /// The certificate is not accepted. Nothing was sent.
    #[error(
        "the certificate of {url} is not trusted: {why}. Its SHA-256 fingerprint is {shown}. \
         Nothing was sent"
    )]
    Untrusted {
        /// URL.
        url: String,
        /// The fingerprint of the certificate.
        shown: Fingerprint,
        /// Why it is refused.
        why: String,
        /// Whether it would be accepted if it were pinned.
        may_be_pinned: bool,
    },
    /// The certificate is not the pinned one. Nothing was sent.
    #[error(
        "the certificate of {url} is not the pinned one: its SHA-256 fingerprint is {shown}, and \
         {pinned} is pinned. Nothing was sent"
    )]
    OtherCertificate {
        /// URL.
        url: String,
        /// The pinned fingerprint.
        pinned: Fingerprint,
        /// The fingerprint of the certificate.
        shown: Fingerprint,
    },
    /// The server does not speak TLS although the URL asks for it. Nothing was sent.
    #[error("the server at {url} does not speak TLS; nothing was sent")]
    NoTls {
        /// URL.
        url: String,
    },
    /// The server speaks TLS, and the URL does not ask for it. Nothing was done.
    #[error("the daemon at {url} speaks TLS; nothing was done")]
    NeedsTls {
        /// URL.
        url: String,
    },
    /// The connection was lost before the response arrived. The call may have been executed.
    #[error("the connection to the daemon was lost before it answered: {0}")]
    LinkLost(String),
    /// The daemon responded with an error.
    #[error("{0}")]
    Rpc(WireError),
    /// The response does not have the expected shape.
    #[error("the daemon's response cannot be decoded: {0}")]
    Answer(String),
}

impl ClientError {
    /// The same error with `place`, which the user knows, instead of the URL.
    fn at(mut self, place: &str) -> Self {
        if let ClientError::Url { url, .. }
        | ClientError::NoDaemon { url, .. }
        | ClientError::Unauthorized { url }
        | ClientError::Untrusted { url, .. }
        | ClientError::OtherCertificate { url, .. }
        | ClientError::NoTls { url }
        | ClientError::NeedsTls { url }
        | ClientError::Refused { url, .. } = &mut self
        {
            place.clone_into(url);
        }
        self
    }

    /// Exit code of the command line.
    pub fn exit(&self) -> u8 {
        match self {
            ClientError::Url { .. } => 2,
            ClientError::NoDaemon { .. } | ClientError::LinkLost(_) => 10,
            ClientError::Unauthorized { .. }
            | ClientError::Untrusted { .. }
            | ClientError::OtherCertificate { .. } => 11,
            ClientError::Refused { .. }
            | ClientError::NotPermitted { .. }
            | ClientError::NoTls { .. }
            | ClientError::NeedsTls { .. } => 9,
            ClientError::Rpc(error) => error.exit(),
            ClientError::Answer(_) => 1,
        }
    }
}

/// A connection to a daemon. Calls may be made concurrently.
#[derive(Debug)]
pub struct Client {
    rpc: WsClient,
}

impl Client {
    /// Connects over TCP to `url`; see [`Client::connect_trusting`]. A certificate is checked by
    /// the system's authorities.
    pub async fn connect(url: &str, token: Option<&str>) -> Result<Client, ClientError> {
        Client::connect_trusting(url, Trust::System, token).await
    }

    /// Connects over TCP to `url` (`ws://`, `wss://`, `http://` or `https://`, host and port).
    pub async fn connect_trusting(
        url: &str,
        trust: Trust,
        token: Option<&str>,
    ) -> Result<Client, ClientError> {
        let (stream, _) = tls::connect(url, trust).await?;
        Client::over(stream, url, token).await
    }

    /// Connects over the Unix socket at `path` without a token: the daemon identifies the
    /// connecting process.
    pub async fn connect_socket(path: &Path) -> Result<Client, ClientError> {
        Client::connect_socket_with(path, None).await
    }

    /// Connects over the Unix socket at `path`. With the token the caller may also make decisions
    /// that are reserved for users, such as approvals.
    pub async fn connect_socket_with(
        path: &Path,
        token: Option<&str>,
    ) -> Result<Client, ClientError> {
        let opened = Client::over(reach_socket(path).await?, "http://localhost", token).await;
        opened.map_err(|error| error.at(&path.display().to_string()))
    }

    /// Connects over an open stream; `url` gives the host name for the upgrade request.
    pub async fn over<S>(stream: S, url: &str, token: Option<&str>) -> Result<Client, ClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let invalid = |message: String| ClientError::Url {
            url: url.to_owned(),
            message,
        };
        let mut headers = http::HeaderMap::new();
        if let Some(token) = token {
            let value = http::HeaderValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_| ClientError::Unauthorized {
                url: url.to_owned(),
            })?;
            value.set_sensitive(true);
            headers.insert(http::header::AUTHORIZATION, value);
        }
        let transport = WsTransportClientBuilder {
            max_request_size: MESSAGE_LIMIT,
            max_response_size: MESSAGE_LIMIT,
            connection_timeout: CONNECT_TIMEOUT,
            headers,
            ..WsTransportClientBuilder::default()
        };
        // Over TLS, too: the stream is encrypted already.
        let target = format!("ws://{}/", GatewayUrl::parse(url)?.authority())
            .parse()
            .map_err(|error| invalid(format!("{error}")))?;
        let (sender, receiver) = transport
            .build_with_stream(target, stream)
            .await
            .map_err(|error| handshake(url, error))?;
        let rpc = WsClientBuilder::default()
            // A wait is the longest call and the server ends it; this timeout is only a fallback.
            .request_timeout(WAIT_LIMIT + Duration::from_secs(60))
            .max_concurrent_requests(CALLS)
            .max_buffer_capacity_per_subscription(EVENTS)
            .enable_ws_ping(PingConfig::default())
            .build_with_transport(sender, receiver);
        Ok(Client { rpc })
    }

    /// Makes one call and decodes its result.
    pub async fn call<P, R>(&self, method: &str, params: P) -> Result<R, ClientError>
    where
        P: Serialize + Send,
        R: DeserializeOwned,
    {
        self.rpc
            .request(method, ByName(params))
            .await
            .map_err(answer)
    }
}

/// Opens a connection to the Unix socket at `path`.
async fn reach_socket(path: &Path) -> Result<UnixStream, ClientError> {
    let stream = UnixStream::connect(path).await;
    stream.map_err(|error| {
        let (url, message) = (path.display().to_string(), error.to_string());
        match error.kind() {
            ErrorKind::PermissionDenied => ClientError::NotPermitted { url, message },
            _ => ClientError::NoDaemon { url, message },
        }
    })
}

impl Client {
    /// Subscribes to events; the subscription ends when the returned value is dropped.
    pub async fn subscribe(
        &self,
        request: &SubscribeEvents,
    ) -> Result<EventSubscription, ClientError> {
        self.rpc
            .subscribe("events.subscribe", ByName(request), "events.unsubscribe")
            .await
            .map(EventSubscription)
            .map_err(answer)
    }
}

impl Client {
    /// Receives the output of programs that this connection follows, until the returned value is
    /// dropped.
    pub async fn node_output(&self) -> Result<NodeOutputParts, ClientError> {
        let parts = self.rpc.subscribe_to_method(OUTPUT).await;
        parts.map(NodeOutputParts).map_err(answer)
    }
}

/// The output of programs on nodes.
#[derive(Debug)]
pub struct NodeOutputParts(Subscription<NodeOutputPart>);

impl NodeOutputParts {
    /// The next part; `None` if the connection was lost.
    pub async fn next(&mut self) -> Option<NodeOutputPart> {
        loop {
            // A part that cannot be read is in the result of its call.
            if let Ok(part) = self.0.next().await? {
                return Some(part);
            }
        }
    }

    /// The next part, if it has arrived.
    pub fn ready(&mut self) -> Option<NodeOutputPart> {
        self.next().now_or_never().flatten()
    }
}

/// An event subscription; it ends when it is dropped.
#[derive(Debug)]
pub struct EventSubscription(Subscription<Event>);

impl EventSubscription {
    /// The next event. `None` if the connection was lost or this program read too slowly; in both
    /// cases resume from the last cursor received.
    pub async fn next(&mut self) -> Option<Result<Event, ClientError>> {
        let next = self.0.next().await?;
        Some(next.map_err(|error| ClientError::Answer(error.to_string())))
    }
}

/// Serializes any request type as parameters by name.
struct ByName<P>(P);

impl<P: Serialize> ToRpcParams for ByName<P> {
    fn to_rpc_params(self) -> Result<Option<Box<RawValue>>, serde_json::Error> {
        serde_json::value::to_raw_value(&self.0).map(Some)
    }
}

/// The daemon's answer to a request without TLS at a port that speaks TLS.
const UPGRADE_REQUIRED: u16 = 426;

/// The error for an upgrade request that was answered with this HTTP status.
fn refusal(url: String, status: u16) -> ClientError {
    match status {
        401 => ClientError::Unauthorized { url },
        UPGRADE_REQUIRED => ClientError::NeedsTls { url },
        status => ClientError::Refused { url, status },
    }
}

fn handshake(url: &str, error: WsHandshakeError) -> ClientError {
    let url = url.to_owned();
    match error {
        WsHandshakeError::Rejected { status_code } => refusal(url, status_code),
        error => ClientError::NoDaemon {
            url,
            message: error.to_string(),
        },
    }
}

fn answer(error: RpcError) -> ClientError {
    match error {
        RpcError::Call(error) => {
            let data = error
                .data()
                .and_then(|data| serde_json::from_str(data.get()).ok())
                .unwrap_or_default();
            ClientError::Rpc(WireError {
                code: error.code(),
                message: error.message().to_owned(),
                data,
            })
        }
        RpcError::ParseError(error) => ClientError::Answer(error.to_string()),
        RpcError::RestartNeeded(cause) => ClientError::LinkLost(cause.to_string()),
        error => ClientError::LinkLost(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_there_is_not_a_lost_link() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", free.local_addr().unwrap());
        drop(free);
        let error = Client::connect(&url, None).await.unwrap_err();
        assert!(matches!(error, ClientError::NoDaemon { .. }), "{error}");
        assert_eq!(error.exit(), 10);
    }
}
