//! What counts against the address of a client: failed attempts to authenticate, also behind
//! proxies, and what may be sent before authentication.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UnixStream};

use crate::harness::{Daemon, Link, Place, Script, run};
use crate::tenants::token;

/// Failed attempts from one address that are answered with 401; then 429 is answered.
const FREE: usize = 20;

/// Connects to the daemon from this address of the machine.
async fn connect(daemon: &Daemon, from: Ipv4Addr) -> TcpStream {
    let target = daemon.url().strip_prefix("http://").unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((IpAddr::V4(from), 0).into()).unwrap();
    socket.connect(target.parse().unwrap()).await.unwrap()
}

/// The head of a request for metrics with these further lines.
fn head(lines: &[String]) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{lines}\r\n")
}

/// The HTTP status of the answer to a request with these header lines.
async fn status(daemon: &Daemon, from: Ipv4Addr, lines: &[String]) -> u16 {
    let mut stream = connect(daemon, from).await;
    stream.write_all(head(lines).as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The answer to a call with these header lines.
async fn post(daemon: &Daemon, from: Ipv4Addr, lines: &[String], body: &str) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let mut stream = connect(daemon, from).await;
    let request = format!(
        "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\n{lines}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// The output of `abide audit --json`.
fn audited(mut command: Command) -> Value {
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn wrong() -> String {
    "authorization: Bearer wrong".to_owned()
}

fn right(daemon: &Daemon) -> String {
    format!("authorization: Bearer {}", daemon.token())
}

fn behind(client: &str) -> String {
    format!("x-forwarded-for: {client}")
}

#[test]
fn failed_attempts_count_per_address_and_lock_nobody_out() {
    run(async {
        let place = Place::new(Script::new());
        let daemon = place.start().await;
        let [one, other] = [2, 3].map(|last| Ipv4Addr::new(127, 0, 0, last));
        for _ in 0..FREE {
            assert_eq!(status(&daemon, one, &[wrong()]).await, 401);
        }
        assert_eq!(status(&daemon, one, &[wrong()]).await, 429);
        assert_eq!(status(&daemon, one, &[]).await, 429);
        assert_eq!(status(&daemon, other, &[wrong()]).await, 401);
        // The right token passes from there, too, and that of a user.
        assert_eq!(status(&daemon, one, &[right(&daemon)]).await, 200);
        let owner = daemon.client().await;
        let params = json!({ "user": "ann", "scopes": ["read", "admin"] });
        let issued = token(&owner, params).await;
        let shown = [format!("authorization: Bearer {issued}")];
        assert_eq!(status(&daemon, one, &shown).await, 200);
        let listed = owner.call("tokens.list", json!({})).await;
        let id = &listed["tokens"][0]["id"];
        owner.call("tokens.revoke", json!({ "id": id })).await;
        assert_eq!(status(&daemon, one, &shown).await, 429, "it has ended");
        assert!(
            place.log().contains("\"client\":\"127.0.0.2\""),
            "{}",
            place.log()
        );

        // More addresses than are counted: the others share one counter.
        for number in 0..1100_u16 {
            let [high, low] = number.to_be_bytes();
            let from = Ipv4Addr::new(127, 1, high, low.max(1));
            let seen = status(&daemon, from, &[wrong()]).await;
            assert!(seen == 401 || seen == 429, "{from}: {seen}");
        }
        let last = Ipv4Addr::new(127, 2, 0, 1);
        assert_eq!(status(&daemon, last, &[wrong()]).await, 429);
        assert_eq!(status(&daemon, last, &[right(&daemon)]).await, 200);
        assert_eq!(
            status(&daemon, Ipv4Addr::LOCALHOST, &[right(&daemon)]).await,
            200
        );

        // The socket has no limit: the system says who connects.
        let socket = place.state().join("abide.sock");
        for _ in 0..2 * FREE {
            let mut stream = UnixStream::connect(&socket).await.unwrap();
            stream.write_all(head(&[wrong()]).as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        }
        let link = Link::local(&socket).await.unwrap();
        link.call("gateway.status", json!({})).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn behind_a_trusted_proxy_its_clients_are_counted_and_nobody_else_is_believed() {
    run(async {
        let proxy = Ipv4Addr::new(127, 0, 0, 2);
        let place = Place::new(Script::new()).with("gateway.trusted_proxies", "[\"127.0.0.2\"]");
        let daemon = place.start().await;
        let seen = async |from, client: &str| {
            let lines = [wrong(), behind(client)];
            status(&daemon, from, &lines).await
        };
        for _ in 0..FREE {
            assert_eq!(seen(proxy, "192.0.2.1").await, 401);
        }
        assert_eq!(seen(proxy, "192.0.2.1").await, 429);
        assert!(
            place.log().contains("\"client\":\"192.0.2.1\""),
            "{}",
            place.log()
        );
        assert_eq!(seen(proxy, "192.0.2.2").await, 401);
        // Only what the proxy itself has appended is believed.
        assert_eq!(seen(proxy, "192.0.2.3, 192.0.2.1").await, 429);
        // Another header of the client changes nothing.
        let both = [
            wrong(),
            behind("192.0.2.1"),
            "forwarded: for=192.0.2.9".to_owned(),
        ];
        for _ in 0..FREE {
            assert_eq!(
                status(&daemon, proxy, &both).await,
                401,
                "counted for the proxy"
            );
        }
        assert_eq!(status(&daemon, proxy, &both).await, 429);
        // What a client behind it changes is recorded with the client's address.
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "sessions.create",
            "params": { "agent": "build" } });
        let from = |address: &str| behind(address);
        for (peer, lines, client) in [
            (
                proxy,
                vec![right(&daemon), from("192.0.2.77")],
                "192.0.2.77",
            ),
            (
                Ipv4Addr::new(127, 0, 0, 4),
                vec![right(&daemon), from("192.0.2.77")],
                "127.0.0.4",
            ),
        ] {
            let answer = post(&daemon, peer, &lines, &body.to_string()).await;
            assert!(answer.contains("\"result\""), "{answer}");
            let shown = place.command(&["audit", "--method", "sessions.create", "--json"]);
            let shown = audited(shown);
            assert_eq!(shown["entries"][0]["client"], client, "{shown}");
            let mut table = place.command(&["audit", "--limit", "1"]);
            let table = String::from_utf8(table.output().unwrap().stdout).unwrap();
            assert!(table.contains(client), "{table}");
        }
        // The address in the header gives no right.
        let named = [behind("127.0.0.1")];
        assert_eq!(status(&daemon, proxy, &named).await, 401);

        let stranger = Ipv4Addr::new(127, 0, 0, 3);
        for number in 0..FREE {
            assert_eq!(
                seen(stranger, &format!("192.0.2.{}", 100 + number)).await,
                401
            );
        }
        assert_eq!(seen(stranger, "192.0.2.99").await, 429);

        // A reload takes the trust away.
        let set = ["config", "set", "gateway.trusted_proxies", "127.0.0.9"];
        let output = place.command(&set).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(seen(proxy, "192.0.2.200").await, 429);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_endless_head_is_refused_before_it_fills_memory() {
    run(async {
        let place = Place::new(Script::new());
        let daemon = place.start().await;
        let mut stream = connect(&daemon, Ipv4Addr::LOCALHOST).await;
        let begin = "GET / HTTP/1.1\r\nhost: localhost\r\nx-long: ";
        stream.write_all(begin.as_bytes()).await.unwrap();
        let more = [b'a'; 64 * 1024];
        let mut sent = 0;
        // The daemon answers and closes; what is sent after that fails.
        while sent < 16 << 20 {
            match stream.write(&more).await {
                Ok(count) => sent += count,
                Err(_) => break,
            }
        }
        // What the system buffers of a connection is beside the daemon's own limit.
        assert!(sent < 16 << 20, "{sent}");
        daemon
            .client()
            .await
            .call("gateway.status", json!({}))
            .await;
        assert_eq!(daemon.stop().await, 0);
    });
}
