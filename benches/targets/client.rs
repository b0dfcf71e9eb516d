//! The load generator: WebSocket connections with a fixed number of calls in flight, all on one
//! thread. It is the same for floor and daemon, and light, since it shares their processors.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, SinkExt, StreamExt, TryStreamExt};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::Result;
use crate::sample::Sample;

/// Number of connections that are opened at the same time. The daemon closes the oldest connection
/// without a token when more than 64 of them are open.
const GROUP: usize = 16;

/// An open connection.
pub type Socket = WebSocketStream<TcpStream>;

/// Address and token of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerAddress<'a> {
    /// The socket address that the server listens on.
    pub address: SocketAddr,
    /// The bearer token that the server requires, if any.
    pub token: Option<&'a str>,
}

/// When a load ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this duration.
    Time(Duration),
    /// After this number of calls.
    Calls(u64),
}

/// One kind of call, sent repeatedly.
pub struct Load<'a> {
    /// The server to call.
    pub door: ServerAddress<'a>,
    /// Number of connections.
    pub connections: usize,
    /// Number of calls in flight on each connection.
    pub each: usize,
    /// When the load ends.
    pub until: Until,
    /// The method to call.
    pub method: &'a str,
    /// The parameters of call `n`, as JSON.
    pub params: &'a dyn Fn(u64) -> String,
    /// Number of results to keep in [`Answers::results`].
    pub kept: usize,
}

/// The outcome of a load.
pub struct Answers {
    /// The duration of each call.
    pub sample: Sample,
    /// The first results, at most [`Load::kept`].
    pub results: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    id: usize,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// State that the connections of one load share.
struct Shared<'a> {
    load: &'a Load<'a>,
    begun: Instant,
    sent: Cell<u64>,
}

/// Runs a load to its end. An error answer fails the benchmark.
pub fn run(load: &Load<'_>) -> Result<Answers> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let sockets = connect_all(load.door, load.connections).await?;
        let shared = Shared {
            load,
            begun: Instant::now(),
            sent: Cell::new(0),
        };
        let calling: FuturesUnordered<_> = sockets
            .into_iter()
            .map(|socket| calls(socket, &shared))
            .collect();
        let parts: Vec<_> = calling.try_collect().await?;
        let whole = shared.begun.elapsed();
        let mut times = Vec::new();
        let mut results = Vec::new();
        for (part, kept) in parts {
            times.extend(part);
            results.extend(kept);
        }
        results.truncate(load.kept);
        let sample = Sample::of(times, whole);
        Ok(Answers { sample, results })
    })
}

/// Makes one call and reads its result.
pub fn once(door: ServerAddress<'_>, method: &str, params: &str) -> Result<serde_json::Value> {
    let answers = run(&Load {
        door,
        connections: 1,
        each: 1,
        until: Until::Calls(1),
        method,
        params: &|_| params.to_owned(),
        kept: 1,
    })?;
    let result = answers.results.first().ok_or("no answer")?;
    Ok(serde_json::from_str(result.get())?)
}

/// Opens a new connection.
pub async fn connect(door: ServerAddress<'_>) -> Result<Socket> {
    let stream = TcpStream::connect(door.address).await?;
    stream.set_nodelay(true)?;
    let mut request = format!("ws://{}/", door.address).into_client_request()?;
    if let Some(token) = door.token {
        let value = HeaderValue::try_from(format!("Bearer {token}"))?;
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    match tokio_tungstenite::client_async(request, stream).await {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(response)) => {
            let body = response.body().as_deref().unwrap_or_default();
            let body = String::from_utf8_lossy(body);
            Err(format!(
                "a connection was refused with {}: {body}",
                response.status()
            )
            .into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens `count` connections in groups of [`GROUP`]; all tokens of a group have arrived before the
/// next one begins.
pub async fn connect_all(door: ServerAddress<'_>, count: usize) -> Result<Vec<Socket>> {
    let mut sockets = Vec::with_capacity(count);
    while sockets.len() < count {
        let group = GROUP.min(count - sockets.len());
        sockets.extend(try_join_all((0..group).map(|_| connect(door))).await?);
    }
    Ok(sockets)
}

impl Shared<'_> {
    /// The next call with `id`, unless the load is over.
    fn next(&self, id: usize) -> Option<Message> {
        let n = self.sent.get();
        let over = match self.load.until {
            Until::Time(time) => self.begun.elapsed() >= time,
            Until::Calls(calls) => n >= calls,
        };
        if over {
            return None;
        }
        self.sent.set(n + 1);
        let (method, params) = (self.load.method, (self.load.params)(n));
        Some(Message::text(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
        )))
    }
}

type Part = (Vec<Duration>, Vec<Box<RawValue>>);

/// Runs the calls of one connection: each answer is followed by the next call, under the same id.
async fn calls(mut socket: Socket, shared: &Shared<'_>) -> Result<Part> {
    let mut times = Vec::new();
    let mut kept = Vec::new();
    let mut since = vec![shared.begun; shared.load.each];
    let mut open = 0;
    for (id, since) in since.iter_mut().enumerate() {
        if let Some(message) = shared.next(id) {
            *since = Instant::now();
            socket.feed(message).await?;
            open += 1;
        }
    }
    socket.flush().await?;
    while open > 0 {
        let mut arrived = socket.next().await;
        loop {
            let message = arrived.ok_or("the server closed a connection")??;
            if let Message::Text(text) = message {
                let answer: Answer<'_> = serde_json::from_str(&text)?;
                if let Some(error) = answer.error {
                    return Err(format!("{}: {error}", shared.load.method).into());
                }
                let since = since.get_mut(answer.id).ok_or("an id that nobody gave")?;
                times.push(since.elapsed());
                if let (Some(result), true) = (answer.result, kept.len() < shared.load.kept) {
                    kept.push(result.to_owned());
                }
                open -= 1;
                if let Some(message) = shared.next(answer.id) {
                    *since = Instant::now();
                    socket.feed(message).await?;
                    open += 1;
                }
            }
            // All answers that have already arrived are handled before the next flush.
            match socket.next().now_or_never() {
                Some(more) if open > 0 => arrived = more,
                _ => break,
            }
        }
        socket.flush().await?;
    }
    Ok((times, kept))
}
