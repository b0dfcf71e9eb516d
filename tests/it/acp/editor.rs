//! A scripted editor: starts `abide acp` as editors do, and speaks with it over its standard input and
//! output. Everything that it reads is compared with the protocol's schema where that is installed.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use super::schema;
use crate::harness::{Daemon, Place, TEST_TIMEOUT};

/// A daemon, and an editor with a new session.
pub(crate) async fn begun(place: &Place) -> (Daemon, Editor, String) {
    let daemon = place.start().await;
    let mut editor = Editor::open(place);
    let session = editor.session(place);
    (daemon, editor, session)
}

/// Parameters that open this session in the workspace.
pub(crate) fn opening(place: &Place, session: &str) -> Value {
    json!({ "sessionId": session, "cwd": place.work(), "mcpServers": [] })
}

/// `abide acp` with an editor at its other end.
pub(crate) struct Editor {
    process: Child,
    to: Option<ChildStdin>,
    err: Option<ChildStderr>,
    lines: Receiver<Value>,
    /// Reads its output line by line.
    reader: Option<JoinHandle<()>>,
    /// Messages that are sent together.
    unsent: Option<Vec<u8>>,
    last_id: u64,
    /// Updates in the order in which they came: the session, and the update.
    pub(crate) updates: Vec<(String, Value)>,
    /// Requests of the agent that were not taken yet.
    requests: Vec<Value>,
    /// Requests of the agent that it has withdrawn.
    pub(crate) withdrawn: Vec<Value>,
    /// Responses that were not taken yet.
    answers: Vec<Value>,
    /// Method of each request, for the schema of its response.
    methods: Vec<String>,
}

impl Editor {
    /// Starts the agent; nothing is sent yet.
    pub(crate) fn start(place: &Place, arguments: &[&str]) -> Editor {
        let mut command = place.command(&[&["acp"], arguments].concat());
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let from = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        let reader = std::thread::spawn(move || {
            for line in from.lines() {
                let Ok(line) = line else { return };
                let message = serde_json::from_str(&line);
                let message = message.unwrap_or_else(|error| panic!("{error}: {line}"));
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Editor {
            to: process.stdin.take(),
            err: process.stderr.take(),
            process,
            lines,
            reader: Some(reader),
            unsent: None,
            last_id: 0,
            updates: Vec::new(),
            requests: Vec::new(),
            withdrawn: Vec::new(),
            answers: Vec::new(),
            methods: Vec::new(),
        }
    }

    /// Starts the agent and initializes it.
    pub(crate) fn open(place: &Place) -> Editor {
        Editor::open_with(place, &[])
    }

    /// Starts the agent with these arguments and initializes it.
    pub(crate) fn open_with(place: &Place, arguments: &[&str]) -> Editor {
        Editor::open_as(place, arguments, json!({}))
    }

    /// Starts the agent for an editor that has these capabilities, too.
    pub(crate) fn open_as(place: &Place, arguments: &[&str], more: Value) -> Editor {
        let mut editor = Editor::start(place, arguments);
        let mut can = json!({
            "fs": { "readTextFile": false, "writeTextFile": false },
            "session": { "notices": {} },
        });
        let more = more.as_object().unwrap().clone();
        can.as_object_mut().unwrap().extend(more);
        let hello = json!({
            "protocolVersion": 1,
            "clientCapabilities": can,
            "clientInfo": { "name": "scripted", "version": "1" },
        });
        let answer = editor.call("initialize", hello);
        assert_eq!(answer["protocolVersion"], 1, "{answer}");
        editor
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        if let Some(unsent) = &mut self.unsent {
            return unsent.extend_from_slice(bytes);
        }
        let to = self.to.as_mut().unwrap();
        to.write_all(bytes).unwrap();
        to.flush().unwrap();
    }

    /// What this sends arrives at once.
    pub(crate) fn together<T>(&mut self, send: impl FnOnce(&mut Editor) -> T) -> T {
        self.unsent = Some(Vec::new());
        let sent = send(self);
        let bytes = self.unsent.take().unwrap();
        self.send(&bytes);
        sent
    }

    /// Sends a request and returns its id.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        self.methods.push(method.to_owned());
        let id = self.last_id;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(format!("{message}\n").as_bytes());
        id
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.send(format!("{message}\n").as_bytes());
    }

    /// Answers a request of the agent.
    pub(crate) fn respond(&mut self, request: &Value, result: Value) {
        let message = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
        self.send(format!("{message}\n").as_bytes());
    }

    /// Reads one message and files it.
    fn read(&mut self) {
        let message = self.lines.recv_timeout(TEST_TIMEOUT);
        let message = message.unwrap_or_else(|error| panic!("no message: {error}"));
        self.file(message);
    }

    /// Files every message that has arrived.
    pub(crate) fn look(&mut self) {
        while let Ok(message) = self.lines.try_recv() {
            self.file(message);
        }
    }

    fn file(&mut self, message: Value) {
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        let method = match (message["method"].as_str(), message["id"].as_u64()) {
            (Some(method), _) => method.to_owned(),
            (None, Some(id)) => match self.methods.get(usize::try_from(id).unwrap() - 1) {
                Some(method) => method.clone(),
                None => String::new(),
            },
            (None, None) => String::new(),
        };
        schema::check(&method, &message);
        match (message["method"].as_str(), message.get("id")) {
            (Some("session/update"), None) => {
                let params = &message["params"];
                let session = params["sessionId"].as_str().unwrap().to_owned();
                self.updates.push((session, params["update"].clone()));
            }
            (Some("$/cancel_request"), None) => {
                let id = message["params"]["requestId"].clone();
                self.requests.retain(|request| request["id"] != id);
                self.withdrawn.push(id);
            }
            (Some(_), Some(_)) => self.requests.push(message),
            (Some(method), None) => panic!("unexpected notification {method}"),
            (None, _) => self.answers.push(message),
        }
    }

    /// The response to a request, if it has arrived.
    pub(crate) fn taken(&mut self, id: u64) -> Option<Value> {
        self.look();
        let at = self.answers.iter().position(|one| one["id"] == id)?;
        Some(self.answers.remove(at))
    }

    /// Waits for the response to a request.
    pub(crate) fn response(&mut self, id: impl Into<Value>) -> Value {
        let id = id.into();
        loop {
            if let Some(at) = self.answers.iter().position(|one| one["id"] == id) {
                return self.answers.remove(at);
            }
            self.read();
        }
    }

    /// Waits for the result of a request.
    pub(crate) fn result(&mut self, id: u64) -> Value {
        let response = self.response(id);
        assert!(response.get("result").is_some(), "{response}");
        response["result"].clone()
    }

    /// Calls a method and returns its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        self.result(id)
    }

    /// Calls a method that fails and returns the error.
    pub(crate) fn refused(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        let response = self.response(id);
        assert!(response.get("error").is_some(), "{response}");
        response["error"].clone()
    }

    /// Makes a session in the workspace and returns its id.
    pub(crate) fn session(&mut self, place: &Place) -> String {
        let params = json!({ "cwd": place.work(), "mcpServers": [] });
        let answer = self.call("session/new", params);
        answer["sessionId"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt and returns the id of the request.
    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.request(
            "session/prompt",
            json!({ "sessionId": session, "prompt": prompt }),
        )
    }

    /// A request of the agent, if one has arrived.
    pub(crate) fn taken_request(&mut self) -> Option<Value> {
        self.look();
        (!self.requests.is_empty()).then(|| self.requests.remove(0))
    }

    /// Waits for a request of the agent.
    pub(crate) fn asked(&mut self) -> Value {
        while self.requests.is_empty() {
            self.read();
        }
        self.requests.remove(0)
    }

    /// Waits until an update fits and returns it.
    pub(crate) fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some((_, update)) = self.updates.iter().find(|(_, update)| fits(update)) {
                return update.clone();
            }
            self.read();
        }
    }

    /// The updates of a kind.
    pub(crate) fn of_kind(&self, kind: &str) -> Vec<&Value> {
        let updates = self.updates.iter().map(|(_, update)| update);
        updates
            .filter(|update| update["sessionUpdate"] == kind)
            .collect()
    }

    /// The text of all chunks of a kind.
    pub(crate) fn text(&self, kind: &str) -> String {
        let chunks = self.of_kind(kind).into_iter();
        chunks
            .map(|update| update["content"]["text"].as_str().unwrap())
            .collect()
    }

    /// Waits until the text of the agent ends with this.
    pub(crate) fn until_said(&mut self, text: &str) {
        while !self.text("agent_message_chunk").ends_with(text) {
            self.read();
        }
    }

    /// The process, for a kill.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Closes standard input and waits for the end; returns exit code and standard error.
    pub(crate) fn hang_up(&mut self) -> (i32, String) {
        self.to = None;
        let code = self.process.wait().unwrap().code().unwrap();
        let mut said = String::new();
        self.err.take().unwrap().read_to_string(&mut said).unwrap();
        // A line that cannot be read has made it panic.
        if let Err(panic) = self.reader.take().unwrap().join() {
            std::panic::resume_unwind(panic);
        }
        self.look();
        (code, said)
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
