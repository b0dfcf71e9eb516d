//! Tests of the client limits.

use super::*;

fn kind(answer: &Value) -> &str {
    answer["error"]["data"]["kind"].as_str().unwrap_or("")
}

/// Sends `count` calls of `method`, with ids starting at `first`.
async fn many(socket: &mut Socket, method: &str, first: u64, count: u64) {
    for id in first..first + count {
        socket.send(call(id, method, json!({}))).await;
    }
}

#[tokio::test]
async fn g9_9_calls_in_flight_are_limited_and_waits_stand_apart() {
    let server = Server::start().await;
    let mut socket = server.socket().await;
    many(&mut socket, "test.hold", 0, 100).await;
    // 64 are in flight; the others are refused at once, each with its id.
    for id in 64..100 {
        let answer = socket.read().await;
        assert_eq!((kind(&answer), &answer["id"]), ("busy", &json!(id)));
        assert!(answer["error"]["data"]["retryAfterMs"].is_u64());
    }
    // Waits have a separate limit of 1,024 per connection.
    many(&mut socket, "agent.wait", 1000, 1025).await;
    let answer = socket.read().await;
    assert_eq!((kind(&answer), &answer["id"]), ("busy", &json!(2024)));
    assert_eq!(server.shared.begun.load(Ordering::SeqCst), 64 + 1024);
    // Other connections are not affected.
    server.socket().await.lives().await;

    server.shared.go.add_permits(64 + 1024);
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..64 + 1024 {
        let answer = socket.read().await;
        assert_eq!(answer["result"], "released", "{answer}");
        assert!(ids.insert(answer["id"].as_u64().unwrap()));
    }
    socket.lives().await;
}

#[tokio::test]
async fn g9_2_an_oversized_reply_is_an_error_for_its_id() {
    let limits = ClientLimits {
        reply: 10_000,
        ..ClientLimits::default()
    };
    let server = Server::with(limits).await;
    let mut socket = server.socket().await;
    let answer = socket
        .ask(call(5, "test.big", json!({"bytes": 20_000})))
        .await;
    assert_eq!((kind(&answer), &answer["id"]), ("too_large", &json!(5)));
    assert_eq!(answer["error"]["code"], 413);
    let answer = socket
        .ask(call(6, "test.big", json!({"bytes": 5_000})))
        .await;
    assert_eq!(answer["result"].as_str().unwrap().len(), 5_000);
    // In a batch the responses that fit are kept.
    let entries: Vec<String> = (0..3)
        .map(|id| call(id, "test.big", json!({"bytes": 4_000})))
        .collect();
    let answer = socket.ask(format!("[{}]", entries.join(","))).await;
    assert_eq!(answer[1]["result"].as_str().unwrap().len(), 4_000);
    assert_eq!(
        (kind(&answer[2]), &answer[2]["id"]),
        ("too_large", &json!(2))
    );
    socket.lives().await;
}

#[tokio::test]
async fn g9_8_a_batch_over_the_limit_is_one_error_and_nothing_is_run() {
    let server = Server::start().await;
    let mut socket = server.socket().await;
    let batch = |count: u32| {
        let entries: Vec<String> = (0..count)
            .map(|id| call(id, "test.echo", json!({})))
            .collect();
        format!("[{}]", entries.join(","))
    };
    for answer in [
        socket.ask(batch(65)).await,
        socket.ask(format!("[{}1]", "1,".repeat(1_000_000))).await,
    ] {
        assert_eq!((kind(&answer), &answer["id"]), ("limit", &Value::Null));
        assert_eq!(answer["error"]["data"]["limit"], "batch");
        assert_eq!(answer["error"]["data"]["value"], 64);
    }
    assert_eq!(server.shared.begun.load(Ordering::SeqCst), 0);
    assert_eq!(socket.ask(batch(64)).await.as_array().unwrap().len(), 64);
    socket.lives().await;
}

#[tokio::test]
async fn requests_in_flight_have_a_budget_of_bytes() {
    let limits = ClientLimits {
        request_bytes: 2_000,
        ..ClientLimits::default()
    };
    let server = Server::with(limits).await;
    let mut socket = server.socket().await;
    let fat = json!({"text": "x".repeat(1_200)});
    socket.send(call(1, "test.hold", fat.clone())).await;
    let answer = socket.ask(call(2, "test.echo", fat.clone())).await;
    assert_eq!((kind(&answer), &answer["id"]), ("busy", &json!(2)));
    let reply = server
        .post(call(3, "test.echo", fat.clone()).as_bytes())
        .await;
    reply.refused(503, "busy");
    socket.lives().await;
    server.shared.go.add_permits(1);
    assert_eq!(socket.read().await["id"], 1);
    let answer = socket.ask(call(4, "test.echo", fat.clone())).await;
    assert_eq!(answer["result"], fat);
}
