//! The folder of a node, its process, and a gateway that the test plays.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use abide::kernel::ids::CallId;
use abide::kernel::node::{NodeCall, Offer, RunCall};
use abide::wire::node_link::{Challenge, FromNode, PairReply, PairRequest, ToNode, proof_bytes};
use futures_util::{SinkExt, StreamExt};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use uuid::Uuid;

use crate::harness::{Place, Script, TEST_TIMEOUT, eventually};

/// An allow-list that permits everything.
pub(crate) const ALLOW: &str = "default = \"allow\"\n";

/// The token that the gateway of the tests gives.
pub(crate) const TOKEN: &str = "token-of-a-node-0123456789";

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// A gateway on a loopback port.
pub(crate) struct Gateway {
    listener: TcpListener,
    key: Ed25519KeyPair,
    pub(crate) id: String,
}

impl Gateway {
    pub(crate) async fn new() -> Gateway {
        Gateway::at("127.0.0.1:0").await
    }

    /// A gateway with a new key at this address.
    pub(crate) async fn at(address: &str) -> Gateway {
        let document = Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new()).unwrap();
        Gateway {
            listener: TcpListener::bind(address).await.unwrap(),
            key: Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap(),
            id: "the-gateway".to_owned(),
        }
    }

    pub(crate) fn address(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}", self.address())
    }

    /// The next connection as TCP.
    pub(crate) async fn tcp(&self) -> TcpStream {
        let accepted = tokio::time::timeout(TEST_TIMEOUT, self.listener.accept()).await;
        accepted.expect("no node connects").unwrap().0
    }

    /// The next connection, after the challenge was sent.
    pub(crate) async fn accept(&self) -> Link {
        let mut seen = (String::new(), None);
        #[expect(
            clippy::result_large_err,
            reason = "the callback's type is the library's"
        )]
        let look = |request: &Request, response: Response| {
            let token = request.headers().get("authorization");
            let token = token.map(|value| value.to_str().unwrap().to_owned());
            seen = (request.uri().path().to_owned(), token);
            Ok(response)
        };
        let stream = self.tcp().await;
        let socket = tokio_tungstenite::accept_hdr_async(stream, look)
            .await
            .unwrap();
        let challenge = Challenge {
            protocol: 1,
            gateway: self.id.clone(),
            public_key: hex(self.key.public_key().as_ref()),
            nonce: Uuid::now_v7_of_test(),
        };
        let mut link = Link {
            socket,
            path: seen.0,
            token: seen.1,
            challenge,
        };
        let challenge = link.challenge.clone();
        link.send(&challenge).await;
        link
    }

    pub(crate) fn sign(&self, bytes: &[u8]) -> String {
        hex(self.key.sign(bytes).as_ref())
    }

    /// Accepts a pairing request and proves the gateway's key.
    pub(crate) async fn request(&self) -> (Link, PairRequest) {
        let mut link = self.accept().await;
        assert_eq!((link.path.as_str(), &link.token), ("/pair", &None));
        let request: PairRequest = link.next().await;
        link.check(&request.public_key, &request.signature);
        let signature = self.sign(&proof_bytes("/pair", &request.nonce));
        link.send(&PairReply::Proof { signature }).await;
        (link, request)
    }

    /// Accepts a link and welcomes the node; returns the ids of the calls that it has begun.
    pub(crate) async fn welcome(&self, node: &Node) -> (Link, Vec<CallId>) {
        let mut link = self.accept().await;
        assert_eq!(link.path, "/node");
        assert_eq!(link.token.as_deref(), Some(&*format!("Bearer {TOKEN}")));
        let hello: FromNode = link.next().await;
        let FromNode::Hello {
            signature,
            nonce,
            offer,
            calls,
            ..
        } = hello
        else {
            panic!("{hello:?}");
        };
        link.check(&node.public_key(), &signature);
        let signature = self.sign(&proof_bytes("/node", &nonce));
        link.send(&ToNode::Proof { signature }).await;
        link.send(&ToNode::Welcome {
            name: "node".to_owned(),
            approved: offer,
        })
        .await;
        (link, calls)
    }
}

/// Ids of tests, which need no clock.
trait OfTest {
    fn now_v7_of_test() -> String;
}

impl OfTest for Uuid {
    fn now_v7_of_test() -> String {
        abide::clock::Clock::system().new_id().simple().to_string()
    }
}

/// One connection of a node.
pub(crate) struct Link {
    socket: WebSocketStream<TcpStream>,
    pub(crate) path: String,
    pub(crate) token: Option<String>,
    pub(crate) challenge: Challenge,
}

impl Link {
    pub(crate) async fn send(&mut self, frame: &impl Serialize) {
        let text = serde_json::to_string(frame).unwrap();
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// The next frame; `None` once the node has closed the connection.
    pub(crate) async fn try_next<T: DeserializeOwned>(&mut self) -> Option<T> {
        loop {
            let next = tokio::time::timeout(TEST_TIMEOUT, self.socket.next()).await;
            match next.expect("no frame arrives") {
                Some(Ok(Message::Text(text))) => {
                    return Some(serde_json::from_str(text.as_str()).unwrap());
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                _ => return None,
            }
        }
    }

    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> T {
        self.try_next().await.expect("the node has closed the link")
    }

    /// The node has signed the challenge with this key.
    pub(crate) fn check(&self, public_key: &str, signature: &str) {
        let key = UnparsedPublicKey::new(&ED25519, from_hex(public_key));
        let signed = self.challenge.signed_bytes(&self.path);
        key.verify(&signed, &from_hex(signature)).unwrap();
    }

    pub(crate) async fn call(&mut self, id: CallId, call: NodeCall) {
        self.send(&ToNode::Call {
            id,
            begin_within_ms: 600_000,
            call,
        })
        .await;
    }

    /// Carries out a call and returns its end as JSON; other frames are dropped.
    pub(crate) async fn end_of(&mut self, id: CallId) -> Value {
        loop {
            if let FromNode::Result { id: of, end } = self.next().await {
                assert_eq!(of, id);
                return serde_json::to_value(end).unwrap();
            }
        }
    }

    /// Calls, and waits for the end.
    pub(crate) async fn does(&mut self, id: CallId, call: NodeCall) -> Value {
        self.call(id, call).await;
        self.end_of(id).await
    }
}

pub(crate) fn id(number: u128) -> CallId {
    CallId(Uuid::from_u128(number))
}

/// A call of `system.run`.
pub(crate) fn runs(argv: &[&str]) -> RunCall {
    serde_json::from_value(serde_json::json!({
        "argv": argv, "timeoutMs": 600_000, "keep": 65_536,
    }))
    .unwrap()
}

/// A call that runs a line of shell.
pub(crate) fn shell(line: &str) -> NodeCall {
    NodeCall::Run(runs(&["sh", "-c", line]))
}

/// The second machine: its home folder, in which its processes run one after another.
pub(crate) struct Node {
    place: Place,
    /// Its name at the gateway.
    pub(crate) name: &'static str,
}

impl Node {
    pub(crate) fn new() -> Node {
        Node::named("mac")
    }

    /// A node that has this name once it is paired with a real gateway.
    pub(crate) fn named(name: &'static str) -> Node {
        let place = Place::new(Script::new());
        Node { place, name }
    }

    /// A node that is paired with the gateway and may run everything.
    pub(crate) async fn paired(gateway: &Gateway) -> Node {
        let node = Node::new();
        node.pair(gateway, &[]).await;
        node.allows(ALLOW);
        node
    }

    /// Pairs the node; the gateway admits it.
    pub(crate) async fn pair(&self, gateway: &Gateway, more: &[&str]) {
        let pairing = self.pairing(gateway, more);
        let (mut link, request) = gateway.request().await;
        link.send(&paired(&request)).await;
        let output = ended(pairing).await;
        assert!(output.status.success(), "{output:?}");
    }

    /// Starts `abide node pair`.
    pub(crate) fn pairing(&self, gateway: &Gateway, more: &[&str]) -> Child {
        let url = gateway.url();
        let mut words = vec!["node", "pair", "--gateway", &url];
        words.extend(more);
        spawned(self.command(&words))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.place.path().canonicalize().unwrap()
    }

    /// The folder of the only gateway.
    pub(crate) fn folder(&self) -> PathBuf {
        let node = self.path().join(".config/abide/node");
        let mut folders: Vec<PathBuf> = fs::read_dir(node)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(folders.len(), 1, "{folders:?}");
        folders.remove(0)
    }

    /// Replaces the allow-list.
    pub(crate) fn allows(&self, text: &str) {
        fs::write(self.folder().join("allow.toml"), text).unwrap();
    }

    /// Replaces the settings.
    pub(crate) fn offers(&self, text: &str) {
        fs::write(self.folder().join("node.toml"), text).unwrap();
    }

    fn public_key(&self) -> String {
        let text = fs::read_to_string(self.folder().join("key")).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(&from_hex(text.trim())).unwrap();
        hex(pair.public_key().as_ref())
    }

    /// The number of calls in the journal.
    pub(crate) fn journaled(&self) -> usize {
        fs::read_dir(self.folder().join("calls")).unwrap().count()
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        self.place.command(words)
    }

    /// The output of a command that ends by itself.
    pub(crate) async fn output(&self, words: &[&str]) -> Output {
        ended(spawned(self.command(words))).await
    }

    /// Starts `abide node run`.
    pub(crate) fn start(&self) -> NodeProcess {
        self.start_with("")
    }

    /// Starts `abide node run` with failpoints.
    pub(crate) fn start_with(&self, orders: &str) -> NodeProcess {
        let mut command = self.command(&["node", "run"]);
        if !orders.is_empty() {
            command.env("ABIDE_FAILPOINTS", orders);
        }
        self.started(command)
    }

    pub(crate) fn started(&self, mut command: Command) -> NodeProcess {
        let log = self.path().join("node.log");
        let file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        command.stderr(file).stdout(Stdio::null());
        NodeProcess {
            child: command.spawn().unwrap(),
            log,
        }
    }

    /// The lines of a file in which programs leave traces; none if it does not exist.
    pub(crate) fn traces(&self) -> Vec<String> {
        let text = fs::read_to_string(self.trace()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn trace(&self) -> PathBuf {
        self.path().join("trace")
    }
}

/// A node that is paired with a new gateway and linked to it; its allow-list has this text.
pub(crate) async fn linked(allow: &str) -> (Gateway, Node, NodeProcess, Link) {
    let gateway = Gateway::new().await;
    let node = Node::paired(&gateway).await;
    node.allows(allow);
    let process = node.start();
    let (link, _) = gateway.welcome(&node).await;
    (gateway, node, process, link)
}

/// The reply that admits a node.
pub(crate) fn paired(request: &PairRequest) -> PairReply {
    PairReply::Paired {
        node: "the-node".to_owned(),
        name: request.name.clone(),
        token: TOKEN.to_owned(),
        approved: Offer::default(),
    }
}

/// Starts a command with captured output.
pub(crate) fn spawned(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits for the end of a process.
pub(crate) async fn ended(child: Child) -> Output {
    let waiting = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    tokio::time::timeout(TEST_TIMEOUT, waiting)
        .await
        .expect("it does not end")
        .unwrap()
}

/// A process of `abide node run`; killed on drop.
pub(crate) struct NodeProcess {
    child: Child,
    log: PathBuf,
}

impl NodeProcess {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        let _ = kill_process(pid, signal);
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        eventually("the end of the node", || {
            let ended = self.child.try_wait().unwrap();
            async move { ended }
        })
        .await
    }

    /// Kills it and waits until it is gone.
    pub(crate) async fn kill(mut self) {
        self.signal(Signal::KILL);
        self.ended().await;
    }

    /// Stops it with SIGTERM; returns the exit code.
    pub(crate) async fn stop(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.ended().await.code()
    }

    /// The log of all processes of this node.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// True while a process with this pid exists that is no zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .trim_start()
            .starts_with('Z')
    })
}

/// The pid that a program has written to this file.
pub(crate) async fn pid_in(file: &Path) -> u32 {
    eventually("a pid", || {
        let text = fs::read_to_string(file).unwrap_or_default();
        let pid = text.trim().parse().ok();
        async move { pid }
    })
    .await
}

/// The standard error of a finished command.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
