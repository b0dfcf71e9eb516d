//! A sender of deliveries: bare HTTP, and signatures from the definitions of their makers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::Daemon;

/// The answer to a delivery.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(super) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// The value of a header, if the answer has it.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// The message of a refusal.
    pub(super) fn message(&self) -> String {
        let message = self.json()["error"]["message"].as_str().map(str::to_owned);
        message.unwrap_or_else(|| panic!("{self:?}"))
    }
}

/// A request with these headers, exactly; `None` if the daemon is lost before its answer.
pub(crate) async fn request(
    daemon: &Daemon,
    first: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<Reply> {
    let address = daemon.url().rsplit_once('/').unwrap().1;
    let stream = TcpStream::connect(address).await.ok()?;
    request_over(stream, address, first, headers, body).await
}

/// The same over this connection to `address`.
pub(super) async fn request_over(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    address: &str,
    first: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<Reply> {
    let mut head = format!("{first} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head.push_str(&format!("host: {address}\r\n"));
    }
    if !headers.iter().any(|(name, _)| *name == "content-type") {
        head.push_str("content-type: application/json\r\n");
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(body).await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some(Reply {
        status: head.split(' ').nth(1)?.parse().ok()?,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

/// A delivery to the hook of this name.
pub(super) async fn deliver(
    daemon: &Daemon,
    name: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    let reply = request(daemon, &format!("POST /hooks/{name}"), headers, body).await;
    reply.unwrap()
}

/// HMAC-SHA256 as RFC 2104 defines it.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let hash = |bytes: &[u8]| {
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        digest.as_ref().to_vec()
    };
    let mut block = if key.len() > 64 {
        hash(key)
    } else {
        key.to_vec()
    };
    block.resize(64, 0);
    let padded = |pad: u8| block.iter().map(|byte| byte ^ pad).collect::<Vec<u8>>();
    let inner = hash(&[padded(0x36), message.to_vec()].concat());
    hash(&[padded(0x5c), inner].concat())
}

/// The value of `X-Hub-Signature-256`.
pub(crate) fn github(secret: &str, body: &[u8]) -> String {
    let digits = hmac(secret.as_bytes(), body);
    let digits: Vec<String> = digits.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={}", digits.concat())
}

/// The value of `webhook-signature`.
pub(super) fn standard(secret: &str, id: &str, timestamp: i64, body: &[u8]) -> String {
    let key = STANDARD
        .decode(secret.strip_prefix("whsec_").unwrap())
        .unwrap();
    let message = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
    format!("v1,{}", STANDARD.encode(hmac(&key, &message)))
}

#[test]
fn signatures_are_those_of_openssl() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    let body = "{\"text\": \"h\u{e9}\"}\n";
    std::fs::write(&file, body).unwrap();
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(["dgst", "-sha256", "-hmac", "0123456789abcdef", "-r"]);
    let output = match openssl.arg(&file).output() {
        Ok(output) if output.status.success() => output,
        other => {
            println!("skipped: openssl does not run: {other:?}");
            return;
        }
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let digits = text.split_whitespace().next().unwrap();
    assert_eq!(
        github("0123456789abcdef", body.as_bytes()),
        format!("sha256={digits}")
    );
}
