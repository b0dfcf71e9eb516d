//! A bare HTTP client: what it sends and what it reads, byte for byte.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::harness::Daemon;

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    pub(super) fn header(&self, name: &str) -> String {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found
            .next()
            .unwrap_or_else(|| panic!("{name} in {}", self.head))
            .1
            .to_owned()
    }

    /// The data of the events of a stream.
    pub(super) fn events(&self) -> Vec<Value> {
        let data = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        let data = data.filter(|data| *data != "[DONE]");
        data.map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }
}

/// A request that was sent, and its connection.
pub(crate) struct Sent(pub(super) BufReader<TcpStream>);

impl Sent {
    pub(crate) async fn to(
        daemon: &Daemon,
        first: &str,
        headers: &str,
        body: &Value,
    ) -> Option<Sent> {
        let address = daemon.url().strip_prefix("http://").unwrap();
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let text = format!(
            "{first} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            daemon.token(),
            body.len(),
        );
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(text.as_bytes()).await.ok()?;
        Some(Sent(BufReader::new(stream)))
    }

    /// Reads until a line contains `text`.
    pub(super) async fn until(&mut self, text: &str) {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).await.unwrap() > 0, "no {text}");
            if line.contains(text) {
                return;
            }
        }
    }

    /// The whole answer; `None` if the connection is lost before its end.
    pub(crate) async fn reply(mut self) -> Option<Reply> {
        let mut text = String::new();
        self.0.read_to_string(&mut text).await.ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let body = match head.to_lowercase().contains("transfer-encoding: chunked") {
            true => joined(body)?,
            false => body.to_owned(),
        };
        let head = head.to_owned();
        Some(Reply { status, head, body })
    }
}

/// The content of chunks; `None` if the last one is missing.
fn joined(mut chunks: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (size, rest) = chunks.split_once("\r\n")?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        whole.push_str(rest.get(..size)?);
        chunks = rest.get(size + 2..)?;
    }
}

pub(super) async fn post(daemon: &Daemon, path: &str, headers: &str, body: Value) -> Reply {
    let sent = Sent::to(daemon, &format!("POST {path}"), headers, &body).await;
    sent.unwrap().reply().await.unwrap()
}

pub(super) async fn get(daemon: &Daemon, path: &str) -> Reply {
    let sent = Sent::to(daemon, &format!("GET {path}"), "", &Value::Null).await;
    sent.unwrap().reply().await.unwrap()
}

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(super) const RESPONSES: &str = "/v1/responses";
