//! Scripted MCP hosts of both revisions: over the pipes of `abide mcp-serve`, and over HTTP.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Daemon, Place};

/// A revision of the protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Era {
    /// 2025-11-25: a handshake, then requests.
    Legacy,
    /// 2026-07-28: each request says what it needs to.
    Modern,
}

impl Era {
    pub(crate) const BOTH: [Era; 2] = [Era::Legacy, Era::Modern];

    pub(crate) fn version(self) -> &'static str {
        match self {
            Era::Legacy => "2025-11-25",
            Era::Modern => "2026-07-28",
        }
    }

    /// The parameters with what this revision sends with each request.
    pub(crate) fn params(self, mut params: Value, capabilities: &Value) -> Value {
        if self == Era::Modern {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = self.version().into();
            meta["io.modelcontextprotocol/clientInfo"] =
                json!({ "name": "scripted", "version": "1" });
            meta["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
        }
        params
    }
}

/// The parameters of the handshake.
pub(crate) fn initialize() -> Value {
    json!({
        "protocolVersion": Era::Legacy.version(),
        "capabilities": {},
        "clientInfo": { "name": "scripted", "version": "1" },
    })
}

/// What the extension of tasks is declared with.
pub(crate) fn with_tasks() -> Value {
    json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } })
}

/// The structured result of a tool; the call must not have failed.
pub(crate) fn structured(answer: &Value) -> Value {
    assert_ne!(answer["result"]["isError"], true, "{answer}");
    let structured = &answer["result"]["structuredContent"];
    assert!(structured.is_object(), "{answer}");
    // Hosts that know no structured results read the same as text.
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(&serde_json::from_str::<Value>(text).unwrap(), structured);
    structured.clone()
}

/// The text of a failed call.
pub(crate) fn failure(answer: &Value) -> String {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    text.to_owned()
}

/// A host over pipes.
pub(crate) struct PipeHost {
    pub(crate) process: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    era: Era,
    capabilities: Value,
    last: i64,
    /// Notifications that came before the latest answer.
    pub(crate) notes: Vec<Value>,
}

impl PipeHost {
    /// Starts `abide mcp-serve` and greets it.
    pub(crate) fn start(place: &Place, era: Era) -> PipeHost {
        PipeHost::start_with(place, era, json!({}))
    }

    /// As [`PipeHost::start`], for a host with these capabilities.
    pub(crate) fn start_with(place: &Place, era: Era, capabilities: Value) -> PipeHost {
        PipeHost::launch(place, &["mcp-serve"], era, capabilities)
    }

    /// Starts a host that starts no daemon.
    pub(crate) fn start_without_daemon(place: &Place) -> PipeHost {
        PipeHost::launch(place, &["mcp-serve", "--no-start"], Era::Legacy, json!({}))
    }

    fn launch(place: &Place, command: &[&str], era: Era, capabilities: Value) -> PipeHost {
        let mut process = place
            .command(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut host = PipeHost {
            to: process.stdin.take(),
            from: BufReader::new(process.stdout.take().unwrap()),
            process,
            era,
            capabilities,
            last: 0,
            notes: Vec::new(),
        };
        match era {
            Era::Legacy => {
                let hello = host.request("initialize", initialize());
                assert_eq!(hello["result"]["protocolVersion"], era.version(), "{hello}");
                host.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
            }
            Era::Modern => {
                let hello = host.request("server/discover", json!({}));
                let known = hello["result"]["supportedVersions"].as_array().unwrap();
                assert!(known.contains(&era.version().into()), "{hello}");
            }
        }
        host
    }

    /// Sends a message as one line.
    pub(crate) fn write(&mut self, message: &Value) {
        let to = self.to.as_mut().unwrap();
        writeln!(to, "{message}").unwrap();
        to.flush().unwrap();
    }

    /// Sends a request; returns its id.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> i64 {
        self.last += 1;
        let params = self.era.params(params, &self.capabilities);
        let id = self.last;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// The next message.
    pub(crate) fn read(&mut self) -> Value {
        let mut text = String::new();
        self.from.read_line(&mut text).unwrap();
        assert!(!text.is_empty(), "the server has closed its output");
        serde_json::from_str(&text).unwrap()
    }

    /// The answer to the request `id`; notifications before it are kept.
    pub(crate) fn answer(&mut self, id: i64) -> Value {
        self.notes.clear();
        loop {
            let message = self.read();
            if message["id"] == id {
                return message;
            }
            assert!(message["id"].is_null(), "{message}");
            self.notes.push(message);
        }
    }

    /// The next notification; no answer may come before it.
    pub(crate) fn note(&mut self) -> Value {
        let message = self.read();
        assert!(message["id"].is_null(), "{message}");
        message
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// Calls a tool and waits for its answer.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        )
    }

    /// Calls a tool that succeeds; returns its structured result.
    pub(crate) fn does(&mut self, tool: &str, arguments: Value) -> Value {
        structured(&self.call(tool, arguments))
    }

    /// Closes the pipe; returns the exit code.
    pub(crate) fn hang_up(mut self) -> i32 {
        self.to = None;
        self.process.wait().unwrap().code().unwrap()
    }
}

/// A host over HTTP.
#[derive(Clone)]
pub(crate) struct HttpHost {
    address: String,
    token: Option<String>,
    era: Era,
    capabilities: Value,
    headers: BTreeMap<String, String>,
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl HttpAnswer {
    /// The messages of the body, which is JSON or a stream of events.
    pub(crate) fn messages(&self) -> Vec<Value> {
        if !self.head.to_lowercase().contains("text/event-stream") {
            return vec![serde_json::from_str(&self.body).unwrap()];
        }
        let data = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data:"));
        let data = data.map(str::trim).filter(|data| !data.is_empty());
        data.map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    /// The response to the request.
    pub(crate) fn response(&self) -> Value {
        let response = self.messages().into_iter().find(|one| !one["id"].is_null());
        response.unwrap_or_else(|| panic!("no response in {self:?}"))
    }
}

impl HttpHost {
    /// A host with the daemon's own token.
    pub(crate) fn of(daemon: &Daemon, era: Era) -> HttpHost {
        HttpHost::at(daemon.url(), Some(daemon.token()), era)
    }

    pub(crate) fn at(url: &str, token: Option<&str>, era: Era) -> HttpHost {
        HttpHost {
            address: url.strip_prefix("http://").unwrap().to_owned(),
            token: token.map(str::to_owned),
            era,
            capabilities: json!({}),
            headers: BTreeMap::new(),
        }
    }

    pub(crate) fn with_capabilities(mut self, capabilities: Value) -> HttpHost {
        self.capabilities = capabilities;
        self
    }

    pub(crate) fn with_header(mut self, name: &str, value: &str) -> HttpHost {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Sends a message; `None` if the connection is lost before the whole answer.
    pub(crate) async fn post(&self, message: &Value) -> Option<HttpAnswer> {
        let mut answer = Vec::new();
        self.sent(message)
            .await?
            .read_to_end(&mut answer)
            .await
            .ok()?;
        parsed(&answer)
    }

    /// As [`HttpHost::post`]; calls `then` once the answer contains `text`.
    pub(crate) async fn post_until(
        &self,
        message: &Value,
        text: &str,
        then: impl FnOnce(),
    ) -> Option<HttpAnswer> {
        let mut stream = self.sent(message).await?;
        let mut answer = Vec::new();
        while !String::from_utf8_lossy(&answer).contains(text) {
            let read = stream.read_buf(&mut answer).await.ok()?;
            assert_ne!(read, 0, "no {text} in {}", String::from_utf8_lossy(&answer));
        }
        then();
        stream.read_to_end(&mut answer).await.ok()?;
        parsed(&answer)
    }

    /// Sends a message; returns the connection that its answer comes over.
    async fn sent(&self, message: &Value) -> Option<TcpStream> {
        let body = message.to_string();
        let mut headers = self.headers.clone();
        let mut add = |name: &str, value: String| {
            headers.entry(name.to_owned()).or_insert(value);
        };
        add("host", self.address.clone());
        add("content-type", "application/json".to_owned());
        add("accept", "application/json, text/event-stream".to_owned());
        add("content-length", body.len().to_string());
        if let Some(token) = &self.token {
            add("authorization", format!("Bearer {token}"));
        }
        let method = message["method"].as_str().unwrap_or_default();
        if method != "initialize" {
            add("mcp-protocol-version", self.era.version().to_owned());
        }
        if self.era == Era::Modern {
            add("mcp-method", method.to_owned());
            let params = &message["params"];
            if let Some(name) = params["name"].as_str().or(params["uri"].as_str()) {
                add("mcp-name", name.to_owned());
            }
            if let Some(task) = params["taskId"].as_str() {
                add("mcp-name", task.to_owned());
            }
        }
        let headers = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"));
        let headers: String = headers.collect();
        let text = format!("POST /mcp HTTP/1.1\r\nconnection: close\r\n{headers}\r\n{body}");
        let mut stream = TcpStream::connect(&self.address).await.ok()?;
        stream.write_all(text.as_bytes()).await.ok()?;
        Some(stream)
    }

    /// The message of a request.
    pub(crate) fn message(&self, method: &str, params: Value) -> Value {
        let params = self.era.params(params, &self.capabilities);
        json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })
    }

    /// Sends a request; returns its response.
    pub(crate) async fn request(&self, method: &str, params: Value) -> Value {
        let message = self.message(method, params);
        self.post(&message).await.unwrap().response()
    }

    /// Calls a tool; `None` if the connection is lost before the whole answer.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Option<Value> {
        let params = json!({ "name": tool, "arguments": arguments });
        let answer = self.post(&self.message("tools/call", params)).await?;
        Some(answer.response())
    }

    /// Calls a tool that succeeds; returns its structured result.
    pub(crate) async fn does(&self, tool: &str, arguments: Value) -> Value {
        structured(&self.call(tool, arguments).await.unwrap())
    }
}

/// An answer that has come to its end; `None` if it was cut.
fn parsed(bytes: &[u8]) -> Option<HttpAnswer> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    let body = match is_chunked {
        true => joined(body)?,
        false => body.to_owned(),
    };
    let head = head.to_owned();
    Some(HttpAnswer { status, head, body })
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
