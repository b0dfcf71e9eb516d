//! P17: a program on a real node, and what many connected nodes cost the gateway while nothing
//! happens. The program runs on a node process of the daemon's own binary; the many nodes are
//! connections of this process, each with its own key, that answer and send heartbeats.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use abide::kernel::node::{Machine, Offer};
use abide::wire::node_link::{
    Challenge, FromNode, HEARTBEAT, PROTOCOL, PairReply, PairRequest, ToNode, to_hex,
};
use futures_util::future::try_join_all;
use futures_util::{SinkExt, StreamExt};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::Result;
use crate::calls::{self, Asked};
use crate::client::{self, Load, ServerAddress, Socket, Until};
use crate::daemon::{Daemon, Setting};
use crate::figure::Figure;
use crate::machine::{self, processor_time};
use crate::measure::{Round, Samples};
use crate::sample::Sample;

/// Number of connected nodes.
const NODES: usize = 200;
/// Calls before the measured ones.
const WARM_UP: u64 = 20;
/// Deadline for a node to be connected.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The nonces of nodes that do not check what the gateway signs.
const NONCE: &str = "00112233445566778899aabbccddeeff";

/// Both parts, on daemons of their own.
pub fn measure(round: &Round<'_>) -> Result<Samples> {
    let mut samples = of_a_program(round)?;
    samples.extend(of_idle_nodes(round)?);
    Ok(samples)
}

/// `system.run true` through a node, one call in flight.
fn of_a_program(round: &Round<'_>) -> Result<Samples> {
    let folder = round.folder.join("nodes");
    let daemon = Daemon::start(round.binary, &folder, Setting::LanesClosed)?;
    let _node = NodeProcess::connected(round.binary, &folder.join("node"), daemon.door())?;
    let params =
        |_| r#"{"node":"bench","call":{"command":"system.run","argv":["true"]}}"#.to_owned();
    client::run(&Load {
        door: daemon.door(),
        connections: 1,
        each: 1,
        until: Until::Calls(WARM_UP),
        method: "nodes.call",
        params: &params,
        kept: 0,
    })?;
    let asked = Asked {
        figure: Figure::NodeRun,
        door: daemon.door(),
        pid: daemon.pid(),
        method: "nodes.call",
        params: &params,
    };
    Ok(vec![(
        asked.figure,
        calls::load(round, &asked, calls::ONE)?,
    )])
}

/// A setup code for a node of this name.
fn invite(door: ServerAddress<'_>, name: &str) -> Result<String> {
    let invited = client::once(door, "nodes.invite", &format!(r#"{{"name":"{name}"}}"#))?;
    Ok(invited["code"].as_str().ok_or("no setup code")?.to_owned())
}

/// A process of `abide node run`; it is killed on drop.
struct NodeProcess(Child);

impl Drop for NodeProcess {
    fn drop(&mut self) {
        // The kill fails if the process has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl NodeProcess {
    /// A node `bench` that may run everything, once the gateway has it.
    fn connected(binary: &Path, home: &Path, door: ServerAddress<'_>) -> Result<NodeProcess> {
        std::fs::create_dir_all(home)?;
        let command = |words: &[&str]| {
            let mut command = Command::new(binary);
            command
                .args(words)
                .env_clear()
                .env("HOME", home)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command
        };
        let (url, code) = (format!("ws://{}", door.address), invite(door, "bench")?);
        let words = ["node", "pair", "--gateway", &url, "--code", &code];
        let paired = command(&words).status()?;
        if !paired.success() {
            return Err(format!("the node was not paired: {paired}").into());
        }
        std::fs::write(folder_of(home)?.join("allow.toml"), "default = \"allow\"\n")?;
        let process = NodeProcess(command(&["node", "run"]).spawn()?);
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            let shown = client::once(door, "nodes.get", r#"{"node":"bench"}"#)?;
            if shown["state"] == "connected" {
                return Ok(process);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err("the node does not connect".into())
    }
}

/// The folder of the only gateway of the node.
fn folder_of(home: &Path) -> Result<PathBuf> {
    let mut folders = std::fs::read_dir(home.join(".config/abide/node"))?;
    Ok(folders.next().ok_or("the node has no gateway")??.path())
}

/// Memory and processor time of the daemon while [`NODES`] nodes are connected.
fn of_idle_nodes(round: &Round<'_>) -> Result<Samples> {
    let folder = round.folder.join("nodes-idle");
    let daemon = Daemon::start(round.binary, &folder, Setting::LanesClosed)?;
    let (door, pid) = (daemon.door(), daemon.pid());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut nodes = Vec::with_capacity(NODES);
    for number in 0..NODES {
        let name = format!("node-{number}");
        let code = invite(door, &name)?;
        nodes.push(runtime.block_on(PlayedNode::pair(door.address, name, code))?);
    }
    let before = machine::resident_mib(pid);
    let mut links = Vec::with_capacity(NODES);
    for node in &nodes {
        links.push(runtime.block_on(node.link(door.address))?);
    }
    let spent = runtime.block_on(async {
        tokio::select! {
            ended = try_join_all(links.into_iter().map(stay)) => {
                Err(ended.err().unwrap_or_else(|| "a link has ended".into()))
            }
            spent = idle(pid) => Ok(spent),
        }
    })?;
    let mut samples = Vec::new();
    if let (Some(before), Some(after)) = (before, machine::resident_mib(pid)) {
        samples.push((Figure::NodesMemory, Sample::of_amounts(&[after - before])));
    }
    samples.extend(spent.map(|share| (Figure::NodesIdle, Sample::of_amounts(&[share]))));
    Ok(samples)
}

/// Processor time of the process over two heartbeats, percent of a core.
async fn idle(pid: u32) -> Option<f64> {
    // The last of what the connecting has caused.
    tokio::time::sleep(HEARTBEAT / 2).await;
    let (before, begun) = (processor_time(pid)?, Instant::now());
    tokio::time::sleep(2 * HEARTBEAT).await;
    let spent = processor_time(pid)?.saturating_sub(before);
    Some(spent.as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0)
}

/// A node without a process of its own.
struct PlayedNode {
    key: Ed25519KeyPair,
    token: String,
}

impl PlayedNode {
    /// Pairs a new node by this setup code.
    async fn pair(address: SocketAddr, name: String, code: String) -> Result<PlayedNode> {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| "the system gives no random bytes")?;
        let key = Ed25519KeyPair::from_pkcs8(key.as_ref()).map_err(|_| "no key")?;
        let (mut socket, challenge) = open(address, "/pair", None).await?;
        let request = PairRequest {
            protocol: PROTOCOL,
            public_key: to_hex(key.public_key().as_ref()),
            signature: signature(&key, &challenge, "/pair"),
            nonce: NONCE.to_owned(),
            name,
            machine: machine_of_node(),
            offer: Offer::default(),
            invite: Some(code),
        };
        send(&mut socket, &request).await?;
        loop {
            match next::<PairReply>(&mut socket).await? {
                PairReply::Proof { .. } => {}
                PairReply::Paired { token, .. } => return Ok(PlayedNode { key, token }),
                other => return Err(format!("a node was not paired: {other:?}").into()),
            }
        }
    }

    /// Opens the link of the node.
    async fn link(&self, address: SocketAddr) -> Result<Socket> {
        let (mut socket, challenge) = open(address, "/node", Some(&self.token)).await?;
        let hello = FromNode::Hello {
            protocol: PROTOCOL,
            signature: signature(&self.key, &challenge, "/node"),
            nonce: NONCE.to_owned(),
            machine: machine_of_node(),
            offer: Offer::default(),
            calls: Vec::new(),
        };
        send(&mut socket, &hello).await?;
        loop {
            match next::<ToNode>(&mut socket).await? {
                ToNode::Proof { .. } => {}
                ToNode::Welcome { .. } => return Ok(socket),
                other => return Err(format!("a node was not welcomed: {other:?}").into()),
            }
        }
    }
}

fn signature(key: &Ed25519KeyPair, challenge: &Challenge, path: &str) -> String {
    to_hex(key.sign(&challenge.signed_bytes(path)).as_ref())
}

fn machine_of_node() -> Machine {
    Machine {
        host: "bench".to_owned(),
        platform: "linux".to_owned(),
        arch: "any".to_owned(),
        version: "0".to_owned(),
    }
}

/// Keeps a link as a node does: answers heartbeats and sends its own. Ends if the link does.
async fn stay(mut socket: Socket) -> Result<()> {
    let mut ticks = tokio::time::interval(HEARTBEAT);
    loop {
        tokio::select! {
            frame = socket.next() => {
                frame.ok_or("the gateway has closed a link")??;
            }
            _ = ticks.tick() => socket.send(Message::Ping(Default::default())).await?,
        }
    }
}

async fn open(address: SocketAddr, path: &str, token: Option<&str>) -> Result<(Socket, Challenge)> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut request = format!("ws://{address}{path}").into_client_request()?;
    if let Some(token) = token {
        let value = HeaderValue::try_from(format!("Bearer {token}"))?;
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await?;
    let challenge = next(&mut socket).await?;
    Ok((socket, challenge))
}

async fn send(socket: &mut Socket, frame: &impl Serialize) -> Result<()> {
    socket
        .send(Message::text(serde_json::to_string(frame)?))
        .await?;
    Ok(())
}

async fn next<T: DeserializeOwned>(socket: &mut Socket) -> Result<T> {
    loop {
        let frame = socket
            .next()
            .await
            .ok_or("the gateway has closed a link")??;
        if let Message::Text(text) = frame {
            return Ok(serde_json::from_str(&text)?);
        }
    }
}
