//! Tests of WebSocket connections: start, end, and misbehaving peers.

use std::time::Duration;

use tokio_tungstenite::tungstenite::protocol::{Role, frame::Frame, frame::coding};

use super::*;
use crate::client::{Client, ClientError};
use crate::gateway::http::socket;
use crate::gateway::http::write_timeout::WriteTimeout;

#[tokio::test]
async fn the_own_client_speaks_with_the_doors() {
    let server = Server::start().await;
    let url = format!("http://{}", server.address);
    let client = Client::connect(&url, Some(TOKEN)).await.unwrap();
    let answer: Value = client.call("test.echo", json!({"a": "ä"})).await.unwrap();
    assert_eq!(answer, json!({"a": "ä"}));
    let error = client
        .call::<_, Value>("no.such", json!({}))
        .await
        .unwrap_err();
    let ClientError::Rpc(error) = error else {
        panic!("{error:?}");
    };
    assert_eq!(
        error.kind(),
        Some(crate::kernel::fault::Kind::UnknownMethod)
    );
    assert_eq!(error.exit(), 2);
    let fat = json!({"text": "x".repeat(5_000_000)});
    let answer: Value = client.call("test.echo", fat.clone()).await.unwrap();
    assert_eq!(answer, fat);

    let error = Client::connect(&url, Some("wrong")).await.unwrap_err();
    assert!(matches!(error, ClientError::Unauthorized { .. }), "{error}");
    let error = Client::connect(&url, None).await.unwrap_err();
    assert!(matches!(error, ClientError::Unauthorized { .. }), "{error}");
    assert_eq!(error.exit(), 11);

    server.serving.abort();
    server.shutdown.cancel();
    let error = loop {
        // Calls are answered until the connection is closed.
        if let Err(error) = client.call::<_, Value>("test.echo", json!({})).await {
            break error;
        }
    };
    assert!(matches!(error, ClientError::LinkLost(_)), "{error:?}");
}

#[tokio::test]
async fn a_huge_message_is_answered_and_the_connection_closed() {
    let limits = ClientLimits {
        payload: 100_000,
        ..ClientLimits::default()
    };
    let server = Server::with(limits).await;
    let mut socket = server.socket().await;
    let text = call(1, "test.echo", json!({"text": "x".repeat(5_000_000)}));
    let answer = socket.ask(text).await;
    assert_eq!(answer["error"]["data"]["kind"], "too_large");
    assert_eq!(answer["error"]["data"]["value"], 100_000);
    socket.closes(1009).await;
    assert_eq!(server.shared.begun.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn g9_10_invalid_text_ends_its_connection_cleanly() {
    let server = Server::start().await;
    let bad = b"{\"a\":\"\xff\"}".as_slice();
    for opcode in [coding::Data::Text, coding::Data::Binary] {
        let mut socket = server.socket().await;
        let frame = Frame::message(bad, coding::OpCode::Data(opcode), true);
        socket.0.send(Message::Frame(frame)).await.unwrap();
        // The reason arrives although more data is in transit.
        let more = call(2, "test.echo", json!({ "text": "x".repeat(10_000) }));
        for _ in 0..100 {
            let _ = socket.0.feed(Message::text(more.clone())).await;
        }
        let _ = socket.0.flush().await;
        socket.closes(1007).await;
    }
    // Text in a binary message is accepted.
    let mut socket = server.socket().await;
    let text = call(1, "test.echo", json!({}));
    socket
        .0
        .send(Message::binary(text.into_bytes()))
        .await
        .unwrap();
    assert_eq!(socket.read().await["id"], 1);
}

#[tokio::test]
async fn a_client_that_leaves_gives_up_its_calls() {
    let server = Server::start().await;
    let mut socket = server.socket().await;
    socket.send(call(1, "agent.wait", json!({}))).await;
    socket.lives().await;
    drop(socket);
    // The same over HTTP POST.
    let body = call(1, "agent.wait", json!({}));
    let text = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        server.address,
        body.len()
    );
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    while server.shared.begun.load(Ordering::SeqCst) < 3 {
        tokio::task::yield_now().await;
    }
    drop(stream);
    server
        .shared
        .dropped
        .acquire_many(2)
        .await
        .unwrap()
        .forget();
    server.socket().await.lives().await;
}

#[tokio::test]
async fn a_stop_answers_what_is_in_flight() {
    let server = Server::start().await;
    let mut socket = server.socket().await;
    let mut idle = server.socket().await;
    socket.send(call(1, "test.hold", json!({}))).await;
    socket.lives().await;
    server.shutdown.cancel();
    idle.closes(1001).await;
    server.shared.go.add_permits(1);
    assert_eq!(socket.read().await["result"], "released");
    socket.closes(1001).await;
    drop((socket, idle));
    server.serving.await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

/// An in-memory connection whose client sends as much as it can and reads nothing. With a paused
/// clock, time advances only when no task can make progress.
async fn flood(shared: &Arc<Shared>) -> (tokio::io::DuplexStream, usize, JoinHandle<()>) {
    const PIPE: usize = 64 * 1024;
    let dispatcher = dispatcher(Arc::clone(shared), ClientLimits::default());
    let (near, far) = tokio::io::duplex(PIPE);
    let serving = tokio::spawn(socket::serve(
        WriteTimeout::new(far, ClientLimits::default().write_timeout),
        dispatcher,
        Arc::new(Principal::owner()),
        false,
        CancellationToken::new(),
    ));
    let mut client = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
    let mut sent = 0;
    let blocked = tokio::time::timeout(Duration::from_secs(1), async {
        loop {
            let text = call(sent, "test.big", json!({"bytes": 100_000}));
            client.send(Message::text(text)).await.unwrap();
            sent += 1;
        }
    });
    assert!(blocked.await.is_err());
    let near = client.into_inner();
    (near, sent, serving)
}

#[tokio::test(start_paused = true)]
async fn g9_1_a_client_that_never_reads_is_not_read_from() {
    let shared = shared();
    let (_near, sent, serving) = flood(&shared).await;
    // The pipe holds 64 KiB and the write buffer 16 KiB, so the first response of 100 kB blocks the
    // connection. At most the calls read before that were started.
    let begun = shared.begun.load(Ordering::SeqCst);
    assert!(begun <= 64, "{begun} calls were begun");
    assert!(sent < 2_000, "{sent} messages were taken");
    assert!(!serving.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_is_given_up_in_the_end() {
    let shared = shared();
    let (_near, _, serving) = flood(&shared).await;
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_again_gets_all_its_answers() {
    let shared = shared();
    let dispatcher = dispatcher(Arc::clone(&shared), ClientLimits::default());
    let (near, far) = tokio::io::duplex(1024);
    let serving = tokio::spawn(socket::serve(
        WriteTimeout::new(far, ClientLimits::default().write_timeout),
        dispatcher,
        Arc::new(Principal::owner()),
        false,
        CancellationToken::new(),
    ));
    let client = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
    let (mut send, mut receive) = client.split();
    let sending = tokio::spawn(async move {
        for id in 0..500 {
            let text = call(id, "test.big", json!({"bytes": 3_000}));
            send.send(Message::text(text)).await.unwrap();
        }
        send
    });
    // Long enough for both directions to fill up, shorter than the write timeout.
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(shared.begun.load(Ordering::SeqCst) < 100);
    let mut answers = 0;
    while answers < 500 {
        let text = receive.next().await.unwrap().unwrap().into_text().unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["result"].as_str().unwrap().len(), 3_000);
        answers += 1;
    }
    drop((sending.await.unwrap(), receive));
    serving.await.unwrap();
}
