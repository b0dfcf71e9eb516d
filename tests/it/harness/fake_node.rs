//! A node without its program: a key, and a connection on which a test sends what it wants.

use std::collections::HashMap;

use abide::wire::node_link::{Challenge, from_hex, proof_bytes, to_hex};
use futures_util::{SinkExt, StreamExt};
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::Error;
use tokio_tungstenite::tungstenite::protocol::Message;

use super::TEST_TIMEOUT;

/// The key of a node.
pub(crate) struct NodeKey {
    pair: Ed25519KeyPair,
    /// The public key, hexadecimal.
    pub(crate) public: String,
}

impl NodeKey {
    pub(crate) fn new() -> NodeKey {
        let seed = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(seed.as_ref()).unwrap();
        let public = to_hex(pair.public_key().as_ref());
        NodeKey { pair, public }
    }

    pub(crate) fn sign(&self, bytes: &[u8]) -> String {
        to_hex(self.pair.sign(bytes).as_ref())
    }
}

/// A connection of a node.
pub(crate) struct FakeLink {
    socket: WebSocketStream<TcpStream>,
    /// The gateway's first frame.
    pub(crate) challenge: Challenge,
}

/// Why a connection gave no frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The gateway has closed it with this code and reason.
    Closed(u16, String),
    /// It was cut.
    Lost,
}

/// What a fake node offers unless a test says otherwise.
pub(crate) fn offer() -> Value {
    json!({ "commands": ["system.which", "system.run", "fs.read"], "roots": ["/srv"] })
}

pub(crate) fn machine() -> Value {
    json!({ "host": "mac.lan", "platform": "macos", "arch": "aarch64", "version": "0.1.0" })
}

impl FakeLink {
    /// Connects at `path` and reads the challenge; `Err` is the HTTP status of a refusal, or 0 if
    /// there is no gateway.
    pub(crate) async fn open(url: &str, path: &str, token: Option<&str>) -> Result<FakeLink, u16> {
        let address = url.strip_prefix("http://").unwrap();
        let mut request = format!("ws://{address}{path}")
            .into_client_request()
            .unwrap();
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().unwrap();
            request.headers_mut().insert("Authorization", value);
        }
        let stream = TcpStream::connect(address).await.map_err(|_| 0_u16)?;
        let socket = match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => socket,
            Err(Error::Http(answer)) => return Err(answer.status().as_u16()),
            Err(_) => return Err(0),
        };
        let challenge = Challenge {
            protocol: 0,
            gateway: String::new(),
            public_key: String::new(),
            nonce: String::new(),
        };
        let mut link = FakeLink { socket, challenge };
        let first = link.next().await.map_err(|_| 0_u16)?;
        link.challenge = serde_json::from_value(first).unwrap();
        Ok(link)
    }

    /// Sends a request to be paired; `with` has fields that differ from those of an honest node.
    pub(crate) async fn ask(&mut self, key: &NodeKey, with: Value) {
        let mut request = json!({
            "protocol": 1,
            "publicKey": key.public,
            "signature": key.sign(&self.challenge.signed_bytes("/pair")),
            "nonce": "00112233",
            "name": "mac",
            "machine": machine(),
            "offer": offer(),
        });
        merge(&mut request, with);
        self.send(&request).await;
    }

    /// Sends the first frame of a paired node; `with` as in [`FakeLink::ask`].
    pub(crate) async fn hello(&mut self, key: &NodeKey, with: Value) {
        let mut hello = json!({
            "type": "hello",
            "protocol": 1,
            "signature": key.sign(&self.challenge.signed_bytes("/node")),
            "nonce": "00112233",
            "machine": machine(),
            "offer": offer(),
            "calls": [],
        });
        merge(&mut hello, with);
        self.send(&hello).await;
    }

    /// Reads the proof of the gateway's key and checks it.
    pub(crate) async fn proof(&mut self, path: &str) -> Result<(), Cut> {
        let proof = self.next().await?;
        assert_eq!(proof["type"], "proof", "{proof}");
        let signature = from_hex(proof["signature"].as_str().unwrap()).unwrap();
        let key = from_hex(&self.challenge.public_key).unwrap();
        let signed = proof_bytes(path, "00112233");
        UnparsedPublicKey::new(&ED25519, key)
            .verify(&signed, &signature)
            .expect("the gateway has the key that it shows");
        Ok(())
    }

    pub(crate) async fn send(&mut self, frame: &Value) {
        self.text(frame.to_string()).await;
    }

    /// Sends a text; a connection that was cut shows at the next read.
    pub(crate) async fn text(&mut self, text: String) {
        let _ = self.socket.send(Message::text(text)).await;
    }

    pub(crate) async fn binary(&mut self, bytes: Vec<u8>) {
        let _ = self.socket.send(Message::binary(bytes)).await;
    }

    /// The next frame.
    pub(crate) async fn next(&mut self) -> Result<Value, Cut> {
        let reading = async {
            loop {
                return match self.socket.next().await {
                    Some(Ok(Message::Text(text))) => Ok(serde_json::from_str(&text).unwrap()),
                    Some(Ok(Message::Close(Some(frame)))) => {
                        Err(Cut::Closed(frame.code.into(), frame.reason.to_string()))
                    }
                    Some(Ok(Message::Close(None)) | Err(_)) | None => Err(Cut::Lost),
                    Some(Ok(_)) => continue,
                };
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, reading)
            .await
            .expect("a frame")
    }

    /// The next frame of this type; others before it are skipped.
    pub(crate) async fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.next().await;
            let frame = frame.unwrap_or_else(|cut| panic!("no {kind}: {cut:?}"));
            if frame["type"] == kind {
                return frame;
            }
        }
    }

    /// The last frame before the gateway closes, and how it closes.
    pub(crate) async fn end(&mut self) -> (Option<Value>, Cut) {
        let mut last = None;
        loop {
            match self.next().await {
                Ok(frame) => last = Some(frame),
                Err(cut) => return (last, cut),
            }
        }
    }

    /// Answers a call as a node does whose program ended with status 0.
    pub(crate) async fn done(&mut self, call: &Value, stdout: &str) {
        let id = &call["id"];
        self.send(&json!({ "type": "accepted", "id": id })).await;
        self.send(&result(id.as_str().unwrap(), stdout)).await;
    }
}

/// The result of a program.
pub(crate) fn result(id: &str, stdout: &str) -> Value {
    let value = json!({
        "status": 0, "stdout": stdout, "stderr": "", "stdoutBytes": stdout.len(),
        "stderrBytes": 0, "ranMs": 1,
    });
    json!({ "type": "result", "id": id, "end": { "type": "done", "value": value } })
}

/// The result of a program whose end the node has not seen.
pub(crate) fn uncertain(id: &str) -> Value {
    let end = json!({ "type": "uncertain", "message": "the node was killed during the call" });
    json!({ "type": "result", "id": id, "end": end })
}

fn merge(frame: &mut Value, with: Value) {
    let Value::Object(with) = with else {
        return;
    };
    for (name, value) in with {
        frame[name] = value;
    }
}

/// A node that keeps what a node keeps over any number of connections: its key, its token, the calls
/// that it has carried out, and their results until they are released.
pub(crate) struct HonestNode {
    pub(crate) key: NodeKey,
    pub(crate) token: Option<String>,
    /// The ids of the calls, in the order in which they ran.
    pub(crate) ran: Vec<String>,
    /// The result of each call that the gateway has not released.
    kept: HashMap<String, Value>,
    /// The number of next calls that end without a known outcome.
    pub(crate) doubts: usize,
    /// Why the gateway has refused it.
    pub(crate) refused: Option<String>,
}

impl HonestNode {
    pub(crate) fn new() -> HonestNode {
        HonestNode {
            key: NodeKey::new(),
            token: None,
            ran: Vec::new(),
            kept: HashMap::new(),
            doubts: 0,
            refused: None,
        }
    }

    /// Asks to be paired, by an invitation or by waiting; returns whether it is.
    pub(crate) async fn pair(&mut self, url: &str, name: &str, invite: Option<&str>) -> bool {
        let Ok(mut link) = FakeLink::open(url, "/pair", None).await else {
            return false;
        };
        link.ask(&self.key, json!({ "name": name, "invite": invite }))
            .await;
        if link.proof("/pair").await.is_err() {
            return false;
        }
        while let Ok(frame) = link.next().await {
            match frame["type"].as_str().unwrap() {
                "paired" => {
                    self.token = Some(frame["token"].as_str().unwrap().to_owned());
                    return true;
                }
                "refused" => {
                    self.refused = Some(frame["reason"].as_str().unwrap().to_owned());
                    return false;
                }
                _ => {}
            }
        }
        false
    }

    /// Connects and carries out calls until the link ends.
    pub(crate) async fn serve(&mut self, url: &str) {
        let token = self.token.clone().unwrap();
        let Ok(mut link) = FakeLink::open(url, "/node", Some(&token)).await else {
            return;
        };
        link.hello(
            &self.key,
            json!({ "calls": self.kept.keys().collect::<Vec<_>>() }),
        )
        .await;
        if link.proof("/node").await.is_err() {
            return;
        }
        for result in self.kept.values() {
            link.send(result).await;
        }
        while let Ok(frame) = link.next().await {
            let id = frame["id"].as_str().unwrap_or_default().to_owned();
            match frame["type"].as_str().unwrap() {
                "call" => {
                    if !self.kept.contains_key(&id) {
                        self.ran.push(id.clone());
                        let end = match self.doubts {
                            0 => result(&id, "once"),
                            _ => uncertain(&id),
                        };
                        self.doubts = self.doubts.saturating_sub(1);
                        self.kept.insert(id.clone(), end);
                    }
                    link.send(&json!({ "type": "accepted", "id": id })).await;
                    link.send(&self.kept[&id]).await;
                }
                "release" => {
                    self.kept.remove(&id);
                }
                "refused" => {
                    self.refused = Some(frame["reason"].as_str().unwrap().to_owned());
                }
                _ => {}
            }
        }
    }
}
