//! Tests of the time limits of nodes that connect, over a stream in memory and with stepped time.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};
use tokio_util::sync::CancellationToken;

use super::pairing::{PairingEnd, serve};
use super::waiting::LIFETIME;
use crate::gateway::tests::no_nodes;
use crate::wire::node_link::{Challenge, SILENCE, to_hex};

type Node = WebSocketStream<DuplexStream>;

/// A connection for pairing, served in a task.
async fn connection() -> (Node, tokio::task::JoinHandle<PairingEnd>) {
    let (node, gateway) = tokio::io::duplex(64 * 1024);
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let serving = serve(gateway, no_nodes(), address, CancellationToken::new());
    let node = WebSocketStream::from_raw_socket(node, Role::Client, None).await;
    (node, tokio::spawn(serving))
}

/// The next frame, or the reason of the close.
async fn next(node: &mut Node) -> Result<Value, String> {
    loop {
        match node.next().await {
            Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
            Some(Ok(Message::Close(Some(frame)))) => return Err(frame.reason.to_string()),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return Err(String::new()),
        }
    }
}

async fn ask(node: &mut Node) {
    let seed = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let key = Ed25519KeyPair::from_pkcs8(seed.as_ref()).unwrap();
    let challenge = next(node).await.unwrap();
    let challenge: Challenge = serde_json::from_value(challenge).unwrap();
    let signature = key.sign(&challenge.signed_bytes("/pair"));
    let request = json!({
        "protocol": 1,
        "publicKey": to_hex(key.public_key().as_ref()),
        "signature": to_hex(signature.as_ref()),
        "nonce": "00",
        "name": "mac",
        "machine": { "host": "mac", "platform": "macos", "arch": "aarch64", "version": "0.1.0" },
        "offer": { "commands": ["system.run"] },
    });
    node.send(Message::text(request.to_string())).await.unwrap();
    assert_eq!(next(node).await.unwrap()["type"], "proof");
    assert_eq!(next(node).await.unwrap()["type"], "waiting");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_no_operator_admits_is_told_so_after_five_minutes() {
    let (mut node, serving) = connection().await;
    ask(&mut node).await;
    let second = Duration::from_secs(1);
    // Reading answers the gateway's pings.
    let early = timeout(LIFETIME - second, next(&mut node)).await;
    assert!(early.is_err(), "{early:?}");
    let last = timeout(2 * second, next(&mut node)).await.unwrap().unwrap();
    assert_eq!(
        (&last["type"], &last["reason"]),
        (&json!("refused"), &json!("expired"))
    );
    assert_eq!(next(&mut node).await, Err("expired".to_owned()));
    drop(node);
    assert_eq!(serving.await.unwrap(), PairingEnd::Other);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_nothing_keeps_its_seat_for_seconds() {
    let (mut node, serving) = connection().await;
    next(&mut node).await.unwrap();
    let closed = timeout(Duration::from_secs(11), next(&mut node)).await;
    let why = closed.unwrap().unwrap_err();
    assert!(why.contains("within 10 s"), "{why}");
    drop(node);
    serving.await.unwrap();

    // The same for a node that waits and does not even answer pings.
    let (mut node, serving) = connection().await;
    ask(&mut node).await;
    let ended = timeout(SILENCE + Duration::from_secs(10), serving).await;
    ended.unwrap().unwrap();
}
