//! A model server for tests: it speaks Chat Completions and Messages over real sockets, answers as
//! configured, fails in every way that such servers do, and keeps each raw request.

use std::collections::{BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// A running model server. It ends with the test's process.
#[derive(Clone)]
pub(crate) struct ModelServer(Arc<Shared>);

struct Shared {
    address: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    rules: Vec<(String, VecDeque<Reply>)>,
    pages: Vec<(String, String, Reply)>,
    otherwise: Option<Reply>,
    requests: Vec<Request>,
    let_go: BTreeSet<String>,
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    /// The value of the header with this lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// A configured answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    /// Chunks, each written at once.
    pieces: Vec<Vec<u8>>,
    ending: Ending,
    held: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Ending {
    Whole,
    /// The connection is reset.
    Cut,
    /// The connection stays open and silent.
    Hang,
}

impl Reply {
    /// An error answer.
    pub(crate) fn status(status: u16, message: &str) -> Reply {
        let body = json!({ "error": { "message": message } }).to_string();
        Reply {
            status,
            headers: vec![("content-type", "application/json".to_owned())],
            pieces: vec![body.into_bytes()],
            ending: Ending::Whole,
            held: None,
        }
    }

    /// A complete answer, not streamed.
    pub(crate) fn whole(body: &Value) -> Reply {
        let mut reply = Reply::status(200, "");
        reply.pieces = vec![body.to_string().into_bytes()];
        reply
    }

    /// As [`Reply::whole`], with an error status.
    pub(crate) fn refuses(mut self, status: u16) -> Reply {
        self.status = status;
        self
    }

    /// A stream of these server-sent events.
    pub(crate) fn stream(events: impl IntoIterator<Item = String>) -> Reply {
        Reply {
            status: 200,
            headers: vec![("content-type", "text/event-stream".to_owned())],
            pieces: events.into_iter().map(String::into_bytes).collect(),
            ending: Ending::Whole,
            held: None,
        }
    }

    /// A stream of these raw bytes.
    pub(crate) fn bytes(bytes: &[u8]) -> Reply {
        let mut reply = Reply::stream([]);
        reply.pieces = vec![bytes.to_vec()];
        reply
    }

    /// Accepts the request and never answers.
    pub(crate) fn hang() -> Reply {
        let mut reply = Reply::stream([]);
        reply.status = 0;
        reply
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Reply {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Replaces its content type; an empty `kind` removes it.
    pub(crate) fn with_type(mut self, kind: &str) -> Reply {
        self.headers.retain(|(name, _)| *name != "content-type");
        if !kind.is_empty() {
            self.headers.push(("content-type", kind.to_owned()));
        }
        self
    }

    /// Sends only the first `pieces` chunks, then resets the connection.
    pub(crate) fn cut_after(mut self, pieces: usize) -> Reply {
        self.pieces.truncate(pieces);
        self.ending = Ending::Cut;
        self
    }

    /// Sends only the first `pieces` chunks, then ends properly.
    pub(crate) fn ends_after(mut self, pieces: usize) -> Reply {
        self.pieces.truncate(pieces);
        self
    }

    /// Sends only the first `pieces` chunks, then stays silent.
    pub(crate) fn stalls_after(mut self, pieces: usize) -> Reply {
        self.pieces.truncate(pieces);
        self.ending = Ending::Hang;
        self
    }

    /// The last chunk is held until the test releases `name`; if the connection is cut, the cut is
    /// held.
    pub(crate) fn held_by(mut self, name: &str) -> Reply {
        self.held = Some(name.to_owned());
        self
    }

    /// Splits the stream into chunks of `count` bytes, at any boundary.
    pub(crate) fn in_bytes(mut self, count: usize) -> Reply {
        let all = self.pieces.concat();
        self.pieces = all.chunks(count).map(<[u8]>::to_vec).collect();
        self
    }
}

impl ModelServer {
    /// Starts a server that refuses everything until answers are configured.
    pub(crate) fn start() -> ModelServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = ModelServer(Arc::new(Shared {
            address: listener.local_addr().unwrap().to_string(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }));
        let serving = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, server) = (stream.unwrap(), serving.clone());
                std::thread::spawn(move || server.serve(stream));
            }
        });
        server
    }

    /// Its URL with this path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.0.address)
    }

    /// Uses these replies, in order, for requests whose body contains `text`.
    pub(crate) fn on(&self, text: &str, replies: impl IntoIterator<Item = Reply>) -> &Self {
        let mut state = self.0.state.lock().unwrap();
        let replies: VecDeque<Reply> = replies.into_iter().collect();
        state.rules.push((text.to_owned(), replies));
        self
    }

    /// Uses this reply for every request without a configured one.
    pub(crate) fn otherwise(&self, reply: Reply) -> &Self {
        self.0.state.lock().unwrap().otherwise = Some(reply);
        self
    }

    /// Uses these replies, in order, for requests of this agent's runs.
    pub(crate) fn on_agent(&self, agent: &str, replies: impl IntoIterator<Item = Reply>) -> &Self {
        self.on(&mark(agent), replies)
    }

    /// From now on, uses this reply for every request for `path` whose body contains `text`.
    pub(crate) fn page(&self, path: &str, text: &str, body: &Value) -> &Self {
        let page = (path.to_owned(), text.to_owned(), Reply::whole(body));
        self.0.state.lock().unwrap().pages.insert(0, page);
        self
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.0.state.lock().unwrap().requests.clone()
    }

    /// The requests of this agent's runs so far.
    pub(crate) fn requests_of(&self, agent: &str) -> Vec<Value> {
        let marked = mark(agent);
        let requests = self.requests().into_iter();
        let own = requests.filter(|request| request.body.contains(&marked));
        own.map(|request| request.json()).collect()
    }

    /// The system prompts of those requests.
    pub(crate) fn prompts_of(&self, agent: &str) -> Vec<String> {
        let prompt = |request: Value| {
            request["messages"][0]["content"]
                .as_str()
                .map(str::to_owned)
        };
        let requests = self.requests_of(agent).into_iter();
        requests.map(|request| prompt(request).unwrap()).collect()
    }

    /// Waits until at least `count` requests have arrived.
    pub(crate) fn until_model_called(&self, count: usize) {
        let state = self.0.state.lock().unwrap();
        let (state, waited) = self
            .0
            .changed
            .wait_timeout_while(state, super::TEST_TIMEOUT, |state| {
                state.requests.len() < count
            })
            .unwrap();
        let found = state.requests.len();
        assert!(!waited.timed_out(), "{found} requests, {count} expected");
    }

    /// Releases the replies that are held by this name.
    pub(crate) fn let_go(&self, name: &str) {
        self.0.state.lock().unwrap().let_go.insert(name.to_owned());
        self.0.changed.notify_all();
    }

    fn serve(&self, mut stream: TcpStream) {
        // A client that disconnects midway has been killed, which is not an error of the test.
        let Some(request) = read(&stream) else {
            return;
        };
        let is_page = request.path.contains("/api/");
        let reply = {
            let mut state = self.0.state.lock().unwrap();
            let fits = |(text, replies): &&mut (String, VecDeque<Reply>)| {
                request.body.contains(text.as_str()) && !replies.is_empty()
            };
            let reply = state.rules.iter_mut().find(fits);
            let reply = reply.and_then(|(_, replies)| replies.pop_front());
            let reply = reply.or_else(|| state.otherwise.clone());
            let mut pages = state.pages.iter();
            let page =
                pages.find(|(path, text, _)| request.path == *path && request.body.contains(text));
            let reply = page.map(|(_, _, reply)| reply.clone()).or(reply);
            state.requests.push(request);
            reply
        };
        self.0.changed.notify_all();
        // A real server knows no path of another API.
        let reply = reply.unwrap_or_else(|| match is_page {
            true => Reply::status(404, "not found"),
            false => Reply::status(400, "the test has no such answer"),
        });
        let _ = self.write(&mut stream, &reply);
    }

    fn write(&self, stream: &mut TcpStream, reply: &Reply) -> std::io::Result<()> {
        if reply.status == 0 {
            return hang(stream);
        }
        let mut head = format!("HTTP/1.1 {} x\r\nconnection: close\r\n", reply.status);
        for (name, value) in &reply.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("transfer-encoding: chunked\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        for (number, piece) in reply.pieces.iter().enumerate() {
            let is_last = number + 1 == reply.pieces.len() && reply.ending != Ending::Cut;
            if let (Some(name), true) = (&reply.held, is_last) {
                self.hold(name);
            }
            if piece.is_empty() {
                continue;
            }
            let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
            chunk.extend_from_slice(piece);
            chunk.extend_from_slice(b"\r\n");
            stream.write_all(&chunk)?;
            stream.flush()?;
        }
        match reply.ending {
            Ending::Whole => stream.write_all(b"0\r\n\r\n"),
            Ending::Cut => {
                if let Some(name) = &reply.held {
                    self.hold(name);
                }
                Ok(())
            }
            Ending::Hang => hang(stream),
        }
    }

    fn hold(&self, name: &str) {
        let state = self.0.state.lock().unwrap();
        let held = |state: &mut State| !state.let_go.contains(name);
        let waited = self
            .0
            .changed
            .wait_timeout_while(state, super::TEST_TIMEOUT, held);
        drop(waited.unwrap());
    }
}

/// Text that occurs in the prompt of each run of this agent, and in no other.
fn mark(agent: &str) -> String {
    format!("You are agent {agent} in session")
}

/// Waits until the peer disconnects.
fn hang(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(super::TEST_TIMEOUT))?;
    while stream.read(&mut [0; 512])? > 0 {}
    Ok(())
}

fn read(stream: &TcpStream) -> Option<Request> {
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .ok()?;
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, length)| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        path,
        headers,
        body: String::from_utf8(body).ok()?,
    })
}

/// Answers of the Chat Completions API.
pub(crate) mod chat {
    use super::{Reply, Value, json};

    fn event(data: &Value) -> String {
        format!("data: {data}\n\n")
    }

    fn delta(delta: &Value) -> String {
        event(&json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] }))
    }

    fn end(reason: &str) -> Vec<String> {
        vec![
            event(&json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })),
            event(
                &json!({ "choices": [], "usage": { "prompt_tokens": 11, "completion_tokens": 3 } }),
            ),
            "data: [DONE]\n\n".to_owned(),
        ]
    }

    /// A text answer in these chunks.
    pub(crate) fn says(pieces: &[&str]) -> Reply {
        let texts = pieces
            .iter()
            .map(|piece| delta(&json!({ "content": piece })));
        Reply::stream(texts.chain(end("stop")))
    }

    /// Tool calls: id, name and arguments as text.
    pub(crate) fn calls(calls: &[(&str, &str, &str)]) -> Reply {
        let pieces = calls
            .iter()
            .enumerate()
            .map(|(index, (id, name, arguments))| {
                delta(&json!({ "tool_calls": [{
                "index": index, "id": id, "type": "function",
                "function": { "name": name, "arguments": arguments },
            }] }))
            });
        Reply::stream(pieces.chain(end("tool_calls")))
    }

    /// These event data lines, unchanged.
    pub(crate) fn events(data: &[&str]) -> Reply {
        Reply::stream(data.iter().map(|data| format!("data: {data}\n\n")))
    }
}

/// Answers of the Messages API.
pub(crate) mod messages {
    use super::{Reply, Value, json};

    fn event(data: &Value) -> String {
        let name = data["type"].as_str().unwrap();
        format!("event: {name}\ndata: {data}\n\n")
    }

    /// An answer of these blocks, each split into a few chunks.
    pub(crate) fn answers(blocks: &[Value], stop: &str) -> Reply {
        let mut events = vec![json!({ "type": "message_start", "message": {
            "role": "assistant", "content": [], "usage": { "input_tokens": 21, "output_tokens": 1 } } })];
        for (index, block) in blocks.iter().enumerate() {
            let (start, deltas) = pieces(block);
            events.push(
                json!({ "type": "content_block_start", "index": index, "content_block": start }),
            );
            let deltas = deltas.into_iter();
            events.extend(deltas.map(
                |delta| json!({ "type": "content_block_delta", "index": index, "delta": delta }),
            ));
            events.push(json!({ "type": "content_block_stop", "index": index }));
            events.push(json!({ "type": "ping" }));
        }
        events.push(
            json!({ "type": "message_delta", "delta": { "stop_reason": stop },
            "usage": { "output_tokens": 8 } }),
        );
        events.push(json!({ "type": "message_stop" }));
        Reply::stream(events.iter().map(event))
    }

    fn pieces(block: &Value) -> (Value, Vec<Value>) {
        let mut start = block.clone();
        let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
        let halves = |text: &str| {
            let half = text.chars().count() / 2;
            let first: String = text.chars().take(half).collect();
            let second: String = text.chars().skip(half).collect();
            [first, second]
        };
        let deltas = match block["type"].as_str().unwrap() {
            "text" => {
                start["text"] = "".into();
                halves(&text("text"))
                    .map(|half| json!({ "type": "text_delta", "text": half }))
                    .to_vec()
            }
            "thinking" => {
                start["thinking"] = "".into();
                start["signature"] = "".into();
                let mut deltas = halves(&text("thinking"))
                    .map(|half| json!({ "type": "thinking_delta", "thinking": half }))
                    .to_vec();
                deltas.push(json!({ "type": "signature_delta", "signature": text("signature") }));
                deltas
            }
            "tool_use" => {
                start["input"] = json!({});
                halves(&block["input"].to_string())
                    .map(|half| json!({ "type": "input_json_delta", "partial_json": half }))
                    .to_vec()
            }
            _ => Vec::new(),
        };
        (start, deltas)
    }
}
