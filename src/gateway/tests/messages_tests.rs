//! Tests of messages and their responses over a WebSocket.

use super::*;

fn kind(answer: &Value) -> &str {
    answer["error"]["data"]["kind"].as_str().unwrap_or("")
}

#[tokio::test]
async fn g9_7_ids_come_back_unchanged() {
    let server = Server::start().await;
    let mut socket = server.socket().await;
    for id in [
        "null",
        "0",
        "7",
        "18446744073709551615",
        "\"\"",
        "\"7\"",
        r#""ä\n\"""#,
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"test.echo","params":{{}}}}"#);
        let answer = socket.ask(text).await;
        assert_eq!(answer["id"], serde_json::from_str::<Value>(id).unwrap());
        assert_eq!(answer["result"], json!({}), "{answer}");
    }
}

#[tokio::test]
async fn odd_ids_are_refused_and_never_taken_for_notifications() {
    let server = Server::start().await;
    let mut socket = server.socket().await;
    for (id, back) in [
        ("-1", json!(-1)),
        ("1.5", json!(1.5)),
        ("18446744073709551616", json!(18446744073709551616.0)),
        ("{}", Value::Null),
        ("[1]", Value::Null),
        ("true", Value::Null),
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"test.echo"}}"#);
        let answer = socket.ask(text).await;
        assert_eq!(kind(&answer), "invalid_request", "{id}: {answer}");
        assert_eq!(answer["id"], back);
    }
    assert_eq!(server.shared.begun.load(Ordering::SeqCst), 0);
    socket.lives().await;
}

#[tokio::test]
async fn messages_that_are_no_requests_are_answered_and_the_connection_lives() {
    let server = Server::start().await;
    let mut socket = server.socket().await;
    for (text, wanted, id) in [
        ("", "parse_error", Value::Null),
        ("{", "parse_error", Value::Null),
        ("hello", "parse_error", Value::Null),
        ("[1,", "parse_error", Value::Null),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a"} x"#,
            "parse_error",
            Value::Null,
        ),
        ("42", "invalid_request", Value::Null),
        ("null", "invalid_request", Value::Null),
        ("{}", "invalid_request", Value::Null),
        (
            r#"{"jsonrpc":"1.0","id":3,"method":"a"}"#,
            "invalid_request",
            json!(3),
        ),
        (r#"{"id":3,"method":"a"}"#, "invalid_request", json!(3)),
        (
            r#"{"jsonrpc":"2.0","id":"x"}"#,
            "invalid_request",
            json!("x"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":3,"method":5}"#,
            "invalid_request",
            json!(3),
        ),
    ] {
        let answer = socket.ask(text).await;
        assert_eq!(kind(&answer), wanted, "{text}: {answer}");
        assert_eq!(answer["id"], id, "{text}");
        assert!(answer["error"]["data"]["hint"].is_string(), "{answer}");
    }
    socket.lives().await;
}

#[tokio::test]
async fn an_unknown_method_names_the_nearest() {
    let server = Server::start().await;
    let mut socket = server.socket().await;
    let answer = socket.ask(call(1, "gateway.pign", json!({}))).await;
    assert_eq!(answer["error"]["code"], -32601);
    assert_eq!(kind(&answer), "unknown_method");
    assert_eq!(
        answer["error"]["data"]["hint"],
        "did you mean gateway.ping?"
    );
    let answer = socket.ask(call(2, &"ä".repeat(100_000), json!({}))).await;
    assert_eq!(kind(&answer), "unknown_method");
    assert!(answer.to_string().len() < 1000);
}

#[tokio::test]
async fn deep_nesting_does_not_hurt() {
    let server = Server::start().await;
    let mut socket = server.socket().await;
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let answer = socket.ask(deep.clone()).await;
    assert!(answer.is_array() || answer["error"].is_object(), "{answer}");
    let text =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"test.echo","params":{{"a":{deep}}}}}"#);
    let answer = socket.ask(text).await;
    assert_eq!(answer["id"], 1);
    socket.lives().await;
}

#[tokio::test]
async fn a_panicking_handler_costs_one_call() {
    let server = Server::start().await;
    let mut socket = server.socket().await;
    let answer = socket.ask(call("p", "test.panic", json!({}))).await;
    assert_eq!(answer["id"], "p");
    assert_eq!(answer["error"]["code"], -32603);
    assert_eq!(kind(&answer), "internal");
    assert!(answer["error"]["data"]["reference"].is_string());
    socket.lives().await;
    let reply = server
        .post(call(1, "test.panic", json!({})).as_bytes())
        .await;
    assert_eq!(kind(&reply.json()), "internal");
    // In a batch, the other calls are still answered.
    let batch = format!(
        "[{},{}]",
        call(1, "test.panic", json!({})),
        call(2, "test.echo", json!({}))
    );
    let answer = socket.ask(batch).await;
    assert_eq!(kind(&answer[0]), "internal");
    assert_eq!(answer[1]["result"], json!({}));
}

#[tokio::test]
async fn notifications_are_not_answered_and_not_carried_out() {
    let server = Server::start().await;
    let mut socket = server.socket().await;
    socket
        .send(r#"{"jsonrpc":"2.0","method":"test.echo","params":{}}"#)
        .await;
    socket
        .send(r#"[{"jsonrpc":"2.0","method":"test.echo"}]"#)
        .await;
    // The next response belongs to the next call.
    socket.lives().await;
    assert_eq!(server.shared.begun.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_mixed_batch_answers_each_entry() {
    let server = Server::start().await;
    let mut socket = server.socket().await;
    let batch = [
        call(1, "test.echo", json!({"n": 1})),
        r#"{"jsonrpc":"2.0","method":"test.echo"}"#.to_owned(),
        "7".to_owned(),
        call("b", "no.such", json!({})),
        call(3, "agent.wait", json!({})),
        r#"{"jsonrpc":"2.0","id":-1,"method":"test.echo"}"#.to_owned(),
        call(Value::Null, "test.echo", json!({"n": 2})),
    ];
    let answer = socket.ask(format!(" [{}]", batch.join(","))).await;
    let answers = answer.as_array().unwrap();
    assert_eq!(answers.len(), 6, "{answer}");
    assert_eq!(answers[0]["result"]["n"], 1);
    assert_eq!(kind(&answers[1]), "invalid_request");
    assert_eq!(answers[1]["id"], Value::Null);
    assert_eq!(
        (kind(&answers[2]), &answers[2]["id"]),
        ("unknown_method", &json!("b"))
    );
    assert_eq!(
        (kind(&answers[3]), &answers[3]["id"]),
        ("invalid_request", &json!(3))
    );
    assert!(
        answers[3]["error"]["message"]
            .as_str()
            .unwrap()
            .contains("agent.wait")
    );
    assert_eq!(
        (kind(&answers[4]), &answers[4]["id"]),
        ("invalid_request", &json!(-1))
    );
    assert_eq!(answers[5]["result"]["n"], 2);
    assert_eq!(kind(&socket.ask("[]").await), "invalid_request");
    socket.lives().await;
}

#[tokio::test]
async fn while_the_daemon_starts_or_stops_calls_are_refused() {
    let server = Server::start().await;
    let mut socket = server.socket().await;
    *server.stage.0.lock().unwrap() = Phase::Starting { done: 0, total: 1 };
    let answer = socket.ask(call(1, "test.echo", json!({}))).await;
    assert_eq!(kind(&answer), "unavailable");
    assert_eq!(answer["error"]["code"], 503);
    assert!(answer["error"]["data"]["retryAfterMs"].is_u64());
    assert_eq!(answer["error"]["data"]["retryable"], true);
    let answer = socket.ask(call(2, "gateway.ping", json!({}))).await;
    assert_eq!(answer["result"], json!({}));
    server.stage.drain(STOP).unwrap();
    let answer = socket.ask(call(3, "sessions.spawn", json!({}))).await;
    assert_eq!(kind(&answer), "unavailable");
    socket.lives().await;
}
