//! Deliveries over TLS, and bodies that are too large by their own account.

use std::time::Duration;

use abide::client::tls::{Trust, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::sender::{github, request_over};
use super::{ISSUE, SECRET, place, run_of, runs};
use crate::harness::{Daemon, run};
use crate::tls::{certify, configured, now};

#[test]
fn a_delivery_over_tls_starts_its_run() {
    run(async {
        let place = place();
        let print = certify(&place, 90, now());
        let place = configured(place);
        let daemon = place.start().await;
        assert!(daemon.url().starts_with("https://"), "{}", daemon.url());
        let address = daemon.url().rsplit_once('/').unwrap().1;
        let signature = github(SECRET, ISSUE.as_bytes());
        let headers = [
            ("x-hub-signature-256", signature.as_str()),
            ("x-github-delivery", "one"),
        ];
        let client = daemon.client().await;
        let (stream, _) = connect(daemon.url(), Trust::Pinned(print)).await.unwrap();
        let post = "POST /hooks/issues";
        let reply = request_over(stream, address, post, &headers, ISSUE.as_bytes()).await;
        let id = run_of(&reply.unwrap());
        assert_eq!(client.ended(&id).await["result"], "triaged");

        // Without TLS the same delivery starts nothing.
        let plain = TcpStream::connect(address).await.unwrap();
        let refused = request_over(plain, address, post, &headers, ISSUE.as_bytes()).await;
        assert_eq!(refused.unwrap().status, 426);
        assert_eq!(runs(&client).await, 1);
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Sends the head of a delivery with a body of this size, and returns the first bytes of the answer.
async fn declared(daemon: &Daemon, size: usize, more: &str) -> (TcpStream, String) {
    let address = daemon.url().rsplit_once('/').unwrap().1;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /hooks/issues HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {size}\r\n{more}\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    // A body that does not come is given up after 30 s.
    let reading = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut answer));
    let read = reading.await.expect("an answer before the body").unwrap();
    let text = String::from_utf8_lossy(&answer[..read]).into_owned();
    (stream, text)
}

#[test]
fn a_body_that_is_too_large_by_its_own_account_is_refused_before_it_is_sent() {
    run(async {
        let place = place().with("hooks.issues.max_body", "\"4 KiB\"");
        let daemon = place.start().await;
        let (mut stream, answer) = declared(&daemon, 5000, "").await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        // A sender that does not look sends its body, and may go on with another delivery.
        stream.write_all(&[b'x'; 5000]).await.unwrap();
        let health = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(health.as_bytes()).await.unwrap();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        assert!(rest.contains("HTTP/1.1 200 "), "{rest}");

        // One that asks first is not told to go on.
        let (_stream, answer) = declared(&daemon, 5000, "expect: 100-continue\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        let (_stream, answer) = declared(&daemon, 4000, "expect: 100-continue\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 100 "), "{answer}");
        let client = daemon.client().await;
        assert_eq!(runs(&client).await, 0);
        assert_eq!(daemon.stop().await, 0);
    });
}
