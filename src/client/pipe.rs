//! Exchanges raw messages with a daemon, for programs that implement the protocol themselves. Used
//! by `rpc --stdio` of the command line.

use std::path::Path;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http::header::{AUTHORIZATION, HeaderValue};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::Error;
use tokio_tungstenite::tungstenite::protocol::{Message, WebSocketConfig};

use super::tls::{self, Trust};
use super::{ClientError, GatewayUrl, MESSAGE_LIMIT, reach_socket, refusal};

/// A TCP or Unix socket stream to a daemon.
trait SocketStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> SocketStream for S {}

type Socket = WebSocketStream<Box<dyn SocketStream>>;

/// Sends messages to the daemon.
pub struct Up(SplitSink<Socket, Message>);

/// Receives messages from the daemon.
pub struct Down(SplitStream<Socket>);

/// Connects over TCP to `url`; see [`super::Client::connect_trusting`]. Use both halves concurrently: a daemon whose responses are not read
/// stops reading requests.
pub async fn connect(url: &str, trust: Trust, token: &str) -> Result<(Up, Down), ClientError> {
    let (stream, _) = tls::connect(url, trust).await?;
    over(Box::new(stream), url, Some(token)).await
}

/// Connects over the Unix socket at `path`; see [`super::Client::connect_socket_with`].
pub async fn connect_socket(path: &Path, token: Option<&str>) -> Result<(Up, Down), ClientError> {
    let stream = reach_socket(path).await?;
    let opened = over(Box::new(stream), "http://localhost", token).await;
    opened.map_err(|error| error.at(&path.display().to_string()))
}

async fn over(
    stream: Box<dyn SocketStream>,
    url: &str,
    token: Option<&str>,
) -> Result<(Up, Down), ClientError> {
    let request = format!("ws://{}/", GatewayUrl::parse(url)?.authority()).into_client_request();
    let mut request = request.map_err(|error| refused(url, error))?;
    if let Some(token) = token {
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let value = value.map_err(|_| ClientError::Unauthorized {
            url: url.to_owned(),
        })?;
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let most = Some(MESSAGE_LIMIT as usize);
    let config = WebSocketConfig::default()
        .max_message_size(most)
        .max_frame_size(most);
    let opened = tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
    let (socket, _) = opened.map_err(|error| refused(url, error))?;
    let (up, down) = socket.split();
    Ok((Up(up), Down(down)))
}

impl Up {
    /// Sends one message.
    pub async fn send(&mut self, text: String) -> Result<(), ClientError> {
        self.0.send(Message::text(text)).await.map_err(lost)
    }
}

impl Down {
    /// The next message; `LinkLost` once the connection has ended. Cancel-safe: dropping the future
    /// loses no message.
    pub async fn next(&mut self) -> Result<String, ClientError> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return Ok(text.as_str().to_owned()),
                Some(Ok(Message::Close(Some(frame)))) => {
                    return Err(ClientError::LinkLost(frame.reason.as_str().to_owned()));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(lost(error)),
                None => {
                    return Err(ClientError::LinkLost(
                        "the connection was closed".to_owned(),
                    ));
                }
            }
        }
    }
}

fn lost(error: Error) -> ClientError {
    ClientError::LinkLost(error.to_string())
}

fn refused(url: &str, error: Error) -> ClientError {
    let url = url.to_owned();
    match error {
        Error::Http(answer) => refusal(url, answer.status().as_u16()),
        error => ClientError::NoDaemon {
            url,
            message: error.to_string(),
        },
    }
}
