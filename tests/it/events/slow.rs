//! Slow readers, and the limits of a connection.

use std::fs;

use abide::wire::events::Event;
use futures_util::future::join_all;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::{is_mark, logged, mark, stored_events, until};
use crate::harness::{Daemon, Link, Place, Script, TEST_TIMEOUT, kind_of, run, says};

/// A WebSocket that receives only what the test reads.
struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    async fn open(daemon: &Daemon, buffer: u32) -> Socket {
        let address = daemon.url().strip_prefix("http://").unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(buffer).unwrap();
        let stream = socket.connect(address.parse().unwrap()).await.unwrap();
        let mut request = format!("ws://{address}/").into_client_request().unwrap();
        let token = format!("Bearer {}", daemon.token()).parse().unwrap();
        request.headers_mut().insert("authorization", token);
        let (socket, _) = tokio_tungstenite::client_async(request, stream)
            .await
            .unwrap();
        Socket(socket)
    }

    async fn send(&mut self, text: &str) {
        self.0.send(Message::text(text)).await.unwrap();
    }

    /// The next message.
    async fn read(&mut self) -> Value {
        loop {
            let next = tokio::time::timeout(TEST_TIMEOUT, self.0.next());
            if let Message::Text(text) = next.await.unwrap().unwrap().unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.send(&ask.to_string()).await;
        loop {
            let message = self.read().await;
            if message["id"] == 1 {
                return message;
            }
        }
    }

    /// The next item of subscription `id`.
    async fn item(&mut self, id: &str) -> Event {
        let message = self.read().await;
        assert_eq!(message["method"], "events.event", "{message}");
        assert_eq!(message["params"]["subscription"], id);
        serde_json::from_value(message["params"]["result"].clone()).unwrap()
    }
}

/// Receive buffer of a client that reads, in bytes.
const AMPLE: u32 = 1024 * 1024;
/// Receive buffer of a client that does not read, in bytes.
const TINY: u32 = 4096;

/// A daemon with closed lanes: each spawn causes exactly three events.
fn closed() -> Place {
    let place = Place::new(Script::new().on("[a]", [says("a")]));
    ["main", "subagent", "global"]
        .into_iter()
        .fold(place, |place, lane| {
            place.with(&format!("lanes.{lane}"), "0")
        })
}

async fn spawn_many(client: &Link, count: usize) {
    for _ in 0..count / 50 {
        let spawns = (0..50).map(|_| client.spawn(json!({ "task": "[a]" })));
        join_all(spawns).await;
    }
}

fn resident_kib(daemon: &Daemon) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Takes some 6 s: the memory of readers that never read shows only after thousands of events.
#[test]
fn g9_1_readers_that_never_read_cost_a_bounded_amount_and_delay_nobody() {
    run(async {
        let place = closed().with("gateway.max_events_behind", "1000");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let subscribe = |id: usize| json!({ "jsonrpc": "2.0", "id": id, "method": "events.subscribe", "params": {} });
        let mut stuck = Vec::new();
        for _ in 0..16 {
            let mut socket = Socket::open(&daemon, TINY).await;
            let id = socket.ask("events.subscribe", json!({})).await;
            // Further subscriptions of the same connection wait behind the first.
            socket.send(&subscribe(2).to_string()).await;
            stuck.push((id["result"].as_str().unwrap().to_owned(), socket));
        }
        // The first ones fill the caches.
        spawn_many(&client, 500).await;
        let before = resident_kib(&daemon);
        let start = mark(&client, "client:start").await;
        let mut socket = Socket::open(&daemon, AMPLE).await;
        let id = socket.ask("events.subscribe", json!({ "since": 0 })).await;
        let id = id["result"].as_str().unwrap().to_owned();
        let reader = tokio::spawn(async move {
            let mut seen = vec![socket.item(&id).await];
            while !is_mark(seen.last().unwrap(), "client:end") {
                seen.push(socket.item(&id).await);
            }
            seen
        });
        spawn_many(&client, 5000).await;
        mark(&client, "client:end").await;
        let seen = reader.await.unwrap();
        // A client that reads has received everything meanwhile.
        let last = seen.last().unwrap().cursor.unwrap();
        let bytes: usize = seen
            .iter()
            .map(|event| serde_json::to_string(event).unwrap().len())
            .sum();
        assert!(bytes > 4 * 1024 * 1024, "{bytes} bytes are no load");
        if let (Some(before), Some(after)) = (before, resident_kib(&daemon)) {
            let grown = after.saturating_sub(before) * 1024;
            let queued = 16 * bytes as u64;
            assert!(
                grown < queued / 2,
                "{grown} bytes more, where queues would be {queued}"
            );
        }
        // A reader that was too slow gets the cursor to resume from, and misses nothing.
        let (id, socket) = &mut stuck[0];
        let mut theirs = Vec::new();
        let lagged = loop {
            let message = socket.read().await;
            if message["params"]["subscription"] != id.as_str() {
                continue;
            }
            let event: Event = serde_json::from_value(message["params"]["result"].clone()).unwrap();
            if event.kind == "lagged" {
                break event;
            }
            theirs.push(event);
        };
        assert_eq!(lagged.data["setting"], "gateway.max_events_behind");
        let from = lagged.data["resumeFrom"].as_i64().unwrap();
        let mut again = Socket::open(&daemon, AMPLE).await;
        let resumed = again
            .ask("events.subscribe", json!({ "since": from }))
            .await;
        let resumed = resumed["result"].as_str().unwrap();
        while !is_mark(theirs.last().unwrap(), "client:end") {
            theirs.push(again.item(resumed).await);
        }
        // The subscription has ended: its id is now unknown.
        let gone = socket
            .ask("events.unsubscribe", json!({ "subscription": id.as_str() }))
            .await;
        assert_eq!(gone["error"]["data"]["kind"], "not_found", "{gone}");
        drop(stuck);
        daemon.kill().await;
        let book = place.book();
        assert!(seen.iter().any(|event| is_mark(event, &start)));
        assert_eq!(stored_events(&seen), logged(&book, 0, last));
        let first = theirs[0].data["cursor"].as_i64().unwrap();
        assert_eq!(stored_events(&theirs), logged(&book, first, last));
    });
}

#[test]
fn a_subscription_belongs_to_a_message_and_a_websocket_of_its_own() {
    run(async {
        let place = closed();
        let daemon = place.start().await;
        let mut socket = Socket::open(&daemon, AMPLE).await;
        let subscribe = json!({ "jsonrpc": "2.0", "id": 7, "method": "events.subscribe" });
        socket.send(&json!([subscribe]).to_string()).await;
        let refused = socket.read().await;
        assert_eq!(refused[0]["error"]["data"]["kind"], "invalid_request");
        let bad = socket
            .ask("events.subscribe", json!({ "kinds": ["run.*", "R*N"] }))
            .await;
        assert_eq!(bad["error"]["data"]["kind"], "invalid_params");
        assert_eq!(bad["error"]["data"]["path"], "kinds[1]");

        // The answer with the id precedes the first item.
        socket.send(&subscribe.to_string()).await;
        let answer = socket.read().await;
        assert_eq!(answer["id"], 7);
        let id = answer["result"].as_str().unwrap().to_owned();
        assert_eq!(socket.item(&id).await.kind, "snapshot");

        // With positional parameters, as subscription clients send it.
        let ended = socket.ask("events.unsubscribe", json!([id])).await;
        assert_eq!(ended["result"], json!({}));
        let client = daemon.client().await;
        mark(&client, "client:after").await;
        let again = socket
            .ask("events.unsubscribe", json!({ "subscription": id }))
            .await;
        assert_eq!(again["error"]["data"]["kind"], "not_found");
        // No item came meanwhile: the next message is the answer.
        socket
            .send(&json!({ "jsonrpc": "2.0", "id": 8, "method": "gateway.ping" }).to_string())
            .await;
        assert_eq!(socket.read().await["id"], 8);
        drop(client);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g14_10_one_subscription_too_many_is_refused_and_says_how_to_free_a_place() {
    run(async {
        let place = closed();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let hello = client.call("gateway.hello", json!({})).await;
        let most = hello["limits"]["subscriptions"].as_u64().unwrap();
        assert_eq!(most, 256);
        let mut held = Vec::new();
        for _ in 0..most {
            held.push(client.subscribe(json!({ "since": 0 })).await);
        }
        let refused = client.refused("events.subscribe", json!({})).await;
        assert_eq!(kind_of(&refused), "limit");
        assert_eq!(refused.data["limit"], "subscriptions");
        assert_eq!(refused.data["value"], most);
        drop(held.pop());
        // The subscription is released once the daemon has processed the drop, which precedes the
        // next call.
        let mut again = client.subscribe(json!({})).await;
        let first = again.next().await.unwrap().unwrap();
        assert_eq!(first.kind, "snapshot");
        // All subscribers are still served.
        mark(&client, "client:end").await;
        for events in held.iter_mut().take(5) {
            until(events, |event| is_mark(event, "client:end")).await;
        }
        assert_eq!(daemon.stop().await, 0);
    });
}
