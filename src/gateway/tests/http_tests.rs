//! Tests of the HTTP routes at byte level.

use super::super::Connections;
use super::*;

#[tokio::test]
async fn health_and_readiness_are_open() {
    let server = Server::start().await;
    let health = server.http("GET /health", &[], b"").await;
    assert_eq!(
        (health.status, health.body.as_str()),
        (200, "{\"state\":\"live\"}")
    );
    let ready = server.http("GET /ready", &[], b"").await;
    assert_eq!(ready.status, 200);
    assert_eq!(ready.json()["state"], "ready");

    *server.stage.0.lock().unwrap() = Phase::Starting { done: 3, total: 9 };
    let ready = server.http("GET /ready", &[], b"").await;
    assert_eq!(ready.status, 503);
    let restoring = json!({"state": "starting", "restoring": {"done": 3, "total": 9}});
    assert_eq!(ready.json(), restoring);
    server.stage.drain(STOP).unwrap();
    let ready = server.http("GET /ready", &[], b"").await;
    assert_eq!(
        (ready.status, ready.json()["state"].clone()),
        (503, json!("draining"))
    );
    assert_eq!(server.http("GET /health", &[], b"").await.status, 200);
}

#[tokio::test]
async fn without_the_token_nothing_is_parsed() {
    let server = Server::start().await;
    let json_type = "Content-Type: application/json";
    let body = call(1, "test.echo", json!({}));
    for heads in [
        vec![json_type],
        vec![json_type, "Authorization: Bearer wrong"],
        vec![json_type, "Authorization: Basic YTpi"],
    ] {
        let reply = server.http("POST /", &heads, body.as_bytes()).await;
        reply.refused(401, "unauthorized");
        assert!(reply.head.contains("www-authenticate: bearer"), "{reply:?}");
        // A refusal reveals nothing of the token.
        assert!(!reply.body.contains(TOKEN));
    }
    // A token in the URL is not accepted either.
    let first = format!("POST /?token={TOKEN}");
    let reply = server.http(&first, &[json_type], body.as_bytes()).await;
    reply.refused(401, "unauthorized");
    assert_eq!(server.shared.begun.load(Ordering::SeqCst), 0);
    assert_eq!(server.post(body.as_bytes()).await.status, 200);
}

#[tokio::test]
async fn failed_tries_are_limited() {
    let server = Server::start().await;
    let wrong = ["Authorization: Bearer wrong"];
    let mut reply = server.http("POST /", &wrong, b"{}").await;
    for _ in 0..1000 {
        if reply.status != 401 {
            break;
        }
        reply = server.http("POST /", &wrong, b"{}").await;
    }
    reply.refused(429, "rate_limited");
    assert!(reply.head.contains("retry-after: "), "{reply:?}");
    assert!(reply.json()["error"]["data"]["retryAfterMs"].is_u64());
    let right = server
        .post(call(1, "test.echo", json!({})).as_bytes())
        .await;
    assert_eq!(right.status, 200);
}

#[tokio::test]
async fn g10_1_foreign_names_are_refused_for_http_and_websocket() {
    let server = Server::start().await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let plain = "Connection: close\r\nContent-Type: application/json\r\nContent-Length: 0";
    let own = server.address;
    for (first, heads) in [("GET /", upgrade), ("POST /", plain)] {
        for names in [
            "Host: evil.example".to_owned(),
            format!("Host: evil.example:{}", own.port()),
            format!("Host: {own}\r\nOrigin: https://evil.example"),
            format!("Host: {own}\r\nOrigin: http://localhost:1"),
            format!("Host: {own}\r\nOrigin: null"),
            "X-No: host".to_owned(),
        ] {
            let text = format!(
                "{first} HTTP/1.1\r\n{names}\r\nAuthorization: Bearer {TOKEN}\r\n{heads}\r\n\r\n"
            );
            let mut stream = TcpStream::connect(own).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            Reply::read(&bytes).refused(403, "forbidden");
        }
    }
    let page = format!("Origin: http://localhost:{}", own.port());
    let token = format!("Authorization: Bearer {TOKEN}");
    let heads = [page.as_str(), &token, "Content-Type: application/json"];
    let body = call(1, "test.echo", json!({}));
    assert_eq!(
        server.http("POST /", &heads, body.as_bytes()).await.status,
        200
    );
}

#[tokio::test]
async fn wrong_routes_methods_and_types_are_refused() {
    let server = Server::start().await;
    server
        .http("GET /nothing", &[], b"")
        .await
        .refused(404, "not_found");
    let reply = server.http("POST /health", &[], b"").await;
    reply.refused(405, "invalid_request");
    assert!(reply.head.contains("allow: get"));
    let token = format!("Authorization: Bearer {TOKEN}");
    let reply = server.http("GET /", &[&token], b"").await;
    reply.refused(405, "invalid_request");
    for kind in [
        "Content-Type: text/plain",
        "X-None: 1",
        "Content-Type: application/jsonx",
    ] {
        let reply = server.http("POST /", &[&token, kind], b"{}").await;
        reply.refused(415, "invalid_request");
    }
    let kind = "Content-Type: Application/JSON; charset=utf-8";
    assert_eq!(
        server.http("POST /", &[&token, kind], b"{}").await.status,
        200
    );
    let half = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\n{token}\r\nConnection: Upgrade, close\r\n\
         Upgrade: websocket\r\n\r\n",
        server.address
    );
    server
        .raw(half.as_bytes())
        .await
        .refused(400, "invalid_request");
}

#[tokio::test]
async fn a_huge_body_is_refused_before_it_is_parsed() {
    let limits = ClientLimits {
        payload: 100 * 1024,
        ..ClientLimits::default()
    };
    let server = Server::with(limits).await;
    let body = call(1, "test.echo", json!({"text": "x".repeat(3_000_000)}));
    server.post(body.as_bytes()).await.refused(413, "too_large");
    // The same with a chunked body, whose length is not declared.
    let mut text = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        server.address
    );
    text.push_str(&format!(
        "{:x}\r\n{}\r\n0\r\n\r\n",
        120 * 1024,
        " ".repeat(120 * 1024)
    ));
    server.raw(text.as_bytes()).await.refused(413, "too_large");
    assert_eq!(server.shared.begun.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn broken_http_does_not_hurt() {
    let server = Server::start().await;
    for bytes in [
        b"\x00\x01\x02\x03\r\n\r\n".as_slice(),
        b"GET\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).await.unwrap();
        assert!(
            text.is_empty() || text.starts_with(b"HTTP/1.1 400"),
            "{text:?}"
        );
    }
    // A client that disconnects in the middle of its body.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
        server.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    drop(stream);
    let reply = server
        .post(call(1, "test.echo", json!({})).as_bytes())
        .await;
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn what_was_parsed_is_answered_with_200() {
    let server = Server::start().await;
    let reply = server
        .post(call(7, "test.echo", json!({"a": 1})).as_bytes())
        .await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.json(),
        json!({"jsonrpc": "2.0", "id": 7, "result": {"a": 1}})
    );
    let reply = server.post(b"{\"jsonrpc\": ").await;
    assert_eq!(
        (reply.status, reply.json()["error"]["code"].clone()),
        (200, json!(-32700))
    );
    let reply = server
        .post(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}")
        .await;
    assert_eq!(
        (reply.status, reply.json()["error"]["code"].clone()),
        (200, json!(-32700))
    );
    let reply = server
        .post(br#"{"jsonrpc":"2.0","method":"test.echo"}"#)
        .await;
    assert_eq!((reply.status, reply.body.as_str()), (200, ""));
}

/// One seat for the owner and two for strangers.
fn few_seats() -> ClientLimits {
    let connections = Connections {
        tcp: 1,
        local: 1,
        programs: 1,
        strangers: 2,
        others: 1,
    };
    ClientLimits {
        connections,
        ..ClientLimits::default()
    }
}

#[tokio::test]
async fn connections_over_the_limit_are_told_so_and_strangers_have_seats_of_their_own() {
    let server = Server::with(few_seats()).await;
    let mut socket = server.socket().await;
    socket.lives().await;
    let reply = server
        .post(call(1, "test.echo", json!({})).as_bytes())
        .await;
    reply.refused(503, "busy");
    let reply = server.http("GET /health", &[], b"").await;
    assert_eq!(reply.status, 200);
    socket.lives().await;
}

#[tokio::test]
async fn strangers_that_only_wait_make_room_for_the_owner_and_are_told_why() {
    let server = Server::with(few_seats()).await;
    let mut waiting = Vec::new();
    for _ in 0..40 {
        waiting.push(TcpStream::connect(server.address).await.unwrap());
    }
    let mut socket = server.socket().await;
    socket.lives().await;
    let mut text = Vec::new();
    waiting[0].read_to_end(&mut text).await.unwrap();
    let reply = Reply::read(&text);
    reply.refused(503, "busy");
    assert!(reply.body.contains("the oldest"), "{reply:?}");
    socket.lives().await;
}

#[tokio::test(start_paused = true)]
async fn strangers_have_seconds_and_the_owner_has_time() {
    let server = Server::start().await;
    for begun in ["", "GET / HTTP/1.1\r\nHost: x\r\n"] {
        let reply = server.raw(begun.as_bytes()).await;
        reply.refused(408, "unauthorized");
    }
    // A connection that already had a response gets no second one.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = format!("GET /health HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    stream.read_to_end(&mut text).await.unwrap();
    assert!(text.ends_with(b"{\"state\":\"live\"}"));

    let mut socket = server.socket().await;
    tokio::time::sleep(10 * crate::gateway::access::connection_limits::STRANGER_TIMEOUT).await;
    socket.lives().await;
}
