//! Tests of the gateway over real sockets, with a small method table made for them.

mod http_tests;
mod limits_tests;
mod messages_tests;
mod socket_tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::Error as WsError;
use tokio_tungstenite::tungstenite::protocol::Message;
use tokio_util::sync::CancellationToken;

use super::methods::{MethodReply as _, Methods, RpcCall};
use super::{ClientLimits, GatewayKey, HttpParts, Listeners, NodeHub, NodeHubParts, open, rpc};
use crate::clock::Clock;
use crate::contract::BoxFuture;
use crate::contract::control::{
    Control, Drain, EffectiveSettings, ModelProvider, Phase, ProgramFile, Reloaded,
    SurroundingGauges, Then,
};
use crate::contract::nodes::{ChangeNode, NodeNote, NodeRows, PairNode, StepOfCall, Stored};
use crate::gateway::access::{auth, peer};
use crate::kernel::fault::Fault;
use crate::kernel::ids::CallId;
use crate::kernel::node::{NodeInvite, PairedNode};
use crate::registry::{AccessTokens, Principal};
use crate::wire::method::{MethodRow, Requires};
use crate::wire::methods::METHODS;

const TOKEN: &str = "a-token-for-tests";

/// State shared by the test methods.
struct Shared {
    /// Number of calls that began.
    begun: AtomicUsize,
    /// One permit per call of `test.hold` or `agent.wait` that was dropped before its end.
    dropped: Arc<Semaphore>,
    /// Each permit lets one of these calls finish.
    go: Semaphore,
}

/// A daemon phase that a test sets.
struct Stage(Mutex<Phase>);

impl Control for Stage {
    fn surroundings(&self) -> Vec<crate::contract::finding::Finding> {
        Vec::new()
    }

    fn gauges(&self) -> SurroundingGauges {
        SurroundingGauges::default()
    }

    fn phase(&self) -> Phase {
        *self.0.lock().unwrap()
    }

    fn program(&self) -> Option<ProgramFile> {
        None
    }

    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    fn drain(&self, _: Drain) -> Result<Duration, Fault> {
        *self.0.lock().unwrap() = Phase::Draining;
        Ok(Duration::ZERO)
    }

    fn settings(&self) -> EffectiveSettings {
        EffectiveSettings::default()
    }

    fn providers(&self) -> Vec<ModelProvider> {
        Vec::new()
    }

    fn reload(&self) -> BoxFuture<'_, Result<Reloaded, Fault>> {
        Box::pin(std::future::ready(Ok(Reloaded::default())))
    }
}

fn no_names() -> tokio::sync::watch::Receiver<super::Names> {
    tokio::sync::watch::channel(super::Names::default()).1
}

fn no_openai() -> tokio::sync::watch::Receiver<crate::config::OpenAiOptions> {
    let options = crate::config::OpenAiOptions {
        tool_calls: crate::config::ShownToolCalls::Hidden,
        on_disconnect: crate::config::OnDisconnect::Continue,
    };
    tokio::sync::watch::channel(options).1
}

/// Rows of a gateway without nodes.
struct NoNodes;

impl NodeRows for NoNodes {
    fn paired_nodes(&self) -> Result<Vec<PairedNode>, Fault> {
        Ok(Vec::new())
    }

    fn pair_node(&self, _: PairNode) -> Stored<PairedNode> {
        unreachable!("no node is paired")
    }

    fn change_node(&self, _: ChangeNode) -> Stored<PairedNode> {
        unreachable!("no node changes")
    }

    fn add_invite(&self, _: NodeInvite) -> Stored<()> {
        unreachable!("no node is invited")
    }

    fn note_node(&self, _: &str, _: NodeNote) -> Stored<()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn steps_of_calls(&self, _: &str, _: Vec<CallId>) -> Stored<HashMap<CallId, StepOfCall>> {
        Box::pin(std::future::ready(Ok(HashMap::new())))
    }
}

/// The hub of a gateway without nodes.
pub(super) fn no_nodes() -> NodeHub {
    let parts = NodeHubParts {
        rows: Arc::new(NoNodes),
        clock: Clock::system(),
        key: GatewayKey::from_seed(&"07".repeat(32)).unwrap(),
        gateway: "gateway".to_owned(),
        org: "default".to_owned(),
    };
    NodeHub::new(parts).unwrap()
}

fn no_numbers() -> crate::gateway::http::metrics::Scrape {
    Box::new(|| Box::pin(std::future::ready(Ok(String::new()))))
}

/// The drain that a stop signal requests.
const STOP: Drain = Drain {
    timeout: None,
    then: Then::Stop,
};

/// Adds a permit if it is dropped before the call ends.
struct Unfinished(Option<Arc<Semaphore>>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(dropped) = self.0.take() {
            dropped.add_permits(1);
        }
    }
}

fn methods(shared: Arc<Shared>) -> Methods {
    let mut methods = Methods::default();
    let mut add = |name, answer: fn(Arc<Shared>, Value) -> BoxFuture<'static, Value>| {
        let shared = Arc::clone(&shared);
        let known = METHODS.iter().find(|row| row.name == name);
        let row = known.copied().unwrap_or_else(|| {
            Box::leak(Box::new(MethodRow {
                name,
                requires: Requires::Room,
                ..**METHODS.first().unwrap()
            }))
        });
        methods.add(row, move |call: RpcCall| {
            let params = call
                .params
                .and_then(|text| serde_json::from_str(&text).ok());
            let answer = answer(Arc::clone(&shared), params.unwrap_or_default());
            Box::pin(async move { answer.await.into_text() })
        });
    };
    add("test.echo", |shared, params| {
        Box::pin(async move {
            shared.begun.fetch_add(1, Ordering::SeqCst);
            params
        })
    });
    add("test.big", |shared, params| {
        Box::pin(async move {
            shared.begun.fetch_add(1, Ordering::SeqCst);
            let bytes = params["bytes"].as_u64().unwrap();
            "x".repeat(usize::try_from(bytes).unwrap()).into()
        })
    });
    add("test.panic", |_, _| {
        Box::pin(async move {
            if true {
                panic!("as the test wants it");
            }
            Value::Null
        })
    });
    for name in ["test.hold", "agent.wait", "sessions.spawn"] {
        add(name, |shared, _| {
            Box::pin(async move {
                shared.begun.fetch_add(1, Ordering::SeqCst);
                let mut unfinished = Unfinished(Some(Arc::clone(&shared.dropped)));
                shared.go.acquire().await.unwrap().forget();
                unfinished.0 = None;
                json!("released")
            })
        });
    }
    add("gateway.ping", |_, _| Box::pin(async { json!({}) }));
    methods
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared {
        begun: AtomicUsize::new(0),
        dropped: Arc::new(Semaphore::new(0)),
        go: Semaphore::new(0),
    })
}

fn dispatcher(shared: Arc<Shared>, limits: ClientLimits) -> Arc<rpc::Dispatcher> {
    let stage = Arc::new(Stage(Mutex::new(Phase::Ready)));
    Arc::new(rpc::Dispatcher::new(
        methods(shared),
        stage,
        Clock::system(),
        limits,
    ))
}

/// The gateway on a free port.
fn no_tokens() -> Arc<AccessTokens> {
    Arc::new(AccessTokens::new(Clock::system()))
}

struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    stage: Arc<Stage>,
    shutdown: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start() -> Server {
        Server::with(ClientLimits::default()).await
    }

    async fn with(limits: ClientLimits) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = shared();
        let stage = Arc::new(Stage(Mutex::new(Phase::Ready)));
        let shutdown = CancellationToken::new();
        let dispatcher = rpc::Dispatcher::new(
            methods(Arc::clone(&shared)),
            Arc::clone(&stage) as Arc<dyn Control>,
            Clock::system(),
            limits,
        );
        let guard = auth::Guard::new(TOKEN, no_tokens(), no_names(), Clock::system());
        let listeners = Listeners {
            tcp: listener,
            identity: None,
            unix: None,
        };
        let gate = peer::PeerGate::new(guard, Principal::owner());
        let serving = tokio::spawn(open(
            listeners,
            gate,
            dispatcher,
            HttpParts {
                metrics: no_numbers(),
                nodes: no_nodes(),
                openai: no_openai(),
                hooks: tokio::sync::watch::channel(Arc::default()).1,
                refused_delivery: Box::new(|_, _| {}),
            },
            shutdown.clone(),
        ));
        Server {
            address,
            shared,
            stage,
            shutdown,
            serving,
        }
    }

    /// Sends raw bytes on a new connection and reads until it closes.
    async fn raw(&self, bytes: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).await.unwrap();
        Reply::read(&text)
    }

    /// One request with the given header lines; `Host`, length and `Connection: close` are added.
    async fn http(&self, first: &str, heads: &[&str], body: &[u8]) -> Reply {
        let mut bytes = format!(
            "{first} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.address,
            body.len()
        );
        for head in heads {
            bytes.push_str(head);
            bytes.push_str("\r\n");
        }
        bytes.push_str("\r\n");
        let mut bytes = bytes.into_bytes();
        bytes.extend_from_slice(body);
        self.raw(&bytes).await
    }

    /// Posts one message with all required headers.
    async fn post(&self, body: &[u8]) -> Reply {
        let token = format!("Authorization: Bearer {TOKEN}");
        let heads = [token.as_str(), "Content-Type: application/json"];
        self.http("POST /", &heads, body).await
    }

    /// A WebSocket of a standard client.
    async fn socket(&self) -> Socket {
        let url = format!("ws://{}/", self.address);
        let mut request = url.into_client_request().unwrap();
        let value = format!("Bearer {TOKEN}").parse().unwrap();
        request.headers_mut().insert("Authorization", value);
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (socket, _) = tokio_tungstenite::client_async(request, stream)
            .await
            .unwrap();
        Socket(socket)
    }
}

/// An HTTP response.
#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn read(bytes: &[u8]) -> Reply {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").expect("an HTTP answer");
        Reply {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Asserts an error response that was sent before the message was parsed.
    fn refused(&self, status: u16, kind: &str) {
        assert_eq!(self.status, status, "{self:?}");
        let body = self.json();
        assert_eq!(body["jsonrpc"], "2.0");
        assert_eq!(body["id"], Value::Null);
        assert_eq!(body["error"]["data"]["kind"], kind, "{body}");
        assert!(body["error"]["data"]["hint"].is_string(), "{body}");
    }
}

struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    async fn send(&mut self, text: impl Into<String>) {
        self.0.send(Message::text(text.into())).await.unwrap();
    }

    /// The next message that is not a ping.
    async fn message(&mut self) -> Option<Result<Message, WsError>> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => return other,
            }
        }
    }

    async fn read(&mut self) -> Value {
        match self.message().await {
            Some(Ok(Message::Text(text))) => serde_json::from_str(&text).unwrap(),
            other => panic!("no text: {other:?}"),
        }
    }

    async fn ask(&mut self, text: impl Into<String>) -> Value {
        self.send(text).await;
        self.read().await
    }

    /// Asserts that the connection still answers calls.
    async fn lives(&mut self) {
        let text = r#"{"jsonrpc":"2.0","id":"alive","method":"test.echo","params":{"a":1}}"#;
        let answer = self.ask(text).await;
        assert_eq!(
            answer,
            json!({"jsonrpc": "2.0", "id": "alive", "result": {"a": 1}})
        );
    }

    /// Asserts that the daemon closes the connection with this code.
    async fn closes(&mut self, code: u16) {
        match self.message().await {
            Some(Ok(Message::Close(Some(frame)))) => assert_eq!(u16::from(frame.code), code),
            other => panic!("no close: {other:?}"),
        }
    }
}

fn call(id: impl Into<Value>, method: &str, params: Value) -> String {
    let id: Value = id.into();
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}
