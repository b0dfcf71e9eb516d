//! Readers over plain HTTP that read nothing: their connections are closed, whatever they
//! requested.

use futures_util::future::join_all;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::harness::{Daemon, Link, Place, Script, eventually, run, says};

fn place() -> Place {
    Place::new(Script::new().on("*", [says("a")])).with("gateway.write_timeout", "\"300ms\"")
}

/// Sends a request over a new connection and reads nothing of the answer.
async fn asked(daemon: &Daemon, head: &str, body: &str) -> TcpStream {
    let address = daemon.url().strip_prefix("http://").unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    // The receive buffer is close to zero.
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
    let token = daemon.token();
    let request = format!(
        "{head} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// The number of connections of the daemon, including that of the client.
async fn connections(daemon: &Daemon) -> usize {
    let mut stream = asked(daemon, "GET /metrics", "").await;
    let mut text = String::new();
    loop {
        let mut bytes = [0; 4096];
        let count = tokio::io::AsyncReadExt::read(&mut stream, &mut bytes)
            .await
            .unwrap();
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        let line = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .find_map(|line| line.strip_prefix("abide_connections "));
        if let Some(number) = line {
            // The connection of this request is not counted.
            return number.trim().parse::<usize>().unwrap() - 1;
        }
        assert!(count > 0, "no number of connections: {text}");
    }
}

/// Waits until the client's connection is the only one: those of the start may still be closing.
async fn client_alone(daemon: &Daemon) -> usize {
    eventually("the client alone", || async {
        (connections(daemon).await == 1).then_some(1)
    })
    .await
}

/// Creates more event data than the operating system buffers for a client that does not read.
async fn make_much(client: &Link) {
    let meta = json!({ "long": "m".repeat(4000) });
    for _ in 0..32 {
        let spawns = (0..50).map(|_| client.spawn(json!({ "task": "[a]", "meta": meta })));
        join_all(spawns).await;
    }
}

#[test]
fn g9_1_a_reader_of_events_that_never_reads_loses_its_seat() {
    run(async {
        // Accepted runs cause events, but nothing runs.
        let place = place().with("lanes.global", "0");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let before = client_alone(&daemon).await;
        let mut readers = Vec::new();
        for _ in 0..4 {
            readers.push(asked(&daemon, "GET /events?since=0", "").await);
        }
        eventually("four readers", || async {
            (connections(&daemon).await == before + 4).then_some(())
        })
        .await;
        make_much(&client).await;
        eventually("their seats", || async {
            (connections(&daemon).await == before).then_some(())
        })
        .await;
        // A client that reads, however late, is kept.
        let mut events = client.subscribe(json!({ "since": 0 })).await;
        assert!(events.next().await.is_some());
        assert_eq!(daemon.stop().await, 0);
        drop(readers);
    });
}

/// Takes some 5 s: the answer must exceed every system buffer, so it has many megabytes.
#[test]
fn g9_1_an_answer_that_nobody_reads_costs_no_seat() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let talk = client.session("agent", "agent:build:talk").await;
        let long = "long ".repeat(100_000);
        for _ in 0..12 {
            let turn = client.turn(&talk, &long).await;
            client.ended(&turn.id).await;
        }
        let before = client_alone(&daemon).await;
        let history = json!({
            "jsonrpc": "2.0", "id": 1, "method": "sessions.history",
            "params": { "sessionKey": talk, "limit": 100 },
        });
        let batch = json!([history, history, history, history, history, history]).to_string();
        let reader = asked(&daemon, "POST /", &batch).await;
        eventually("its seat taken", || async {
            (connections(&daemon).await == before + 1).then_some(())
        })
        .await;
        eventually("its seat", || async {
            (connections(&daemon).await == before).then_some(())
        })
        .await;
        drop(reader);
        assert_eq!(daemon.stop().await, 0);
    });
}
