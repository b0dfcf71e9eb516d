//! An outside agent for tests: this test binary in a special mode. It speaks the Agent Client
//! Protocol over its pipes, does what the prompt says, and records in its folder what it has heard
//! and done.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::acp::schema;
use crate::harness::Place;

/// The variable with the words that select how the agent behaves.
const MANNER: &str = "TEST_ACP";

/// The `argv` of this agent; `manner` has words such as `load`, `resume`, `auth`.
pub(crate) fn argv(manner: &str) -> Value {
    let binary = std::env::current_exe().unwrap();
    let binary = binary.to_str().unwrap();
    // The test runner writes to standard output before the agent begins.
    let line = format!(
        "exec 3>&1 1>/dev/null; {MANNER}='{manner}'; export {MANNER}; exec \"$0\" --ignored --exact \
         runner_acp::played::serve --quiet"
    );
    json!(["/bin/sh", "-c", line, binary])
}

/// A place with this agent under the name `outside`; `fields` are further lines of its file.
pub(crate) fn with_agent(place: Place, manner: &str, fields: &str) -> Place {
    let argv = argv(manner);
    place.with_agent(
        "outside",
        &format!("runner: acp\ncommand: {{argv: {argv}}}\n{fields}"),
    )
}

/// The lines of a file in the agent's folder.
pub(crate) fn lines(place: &Place, file: &str) -> Vec<String> {
    let text = fs::read_to_string(place.work().join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Every message that the agent has heard, each compared with the published schema.
pub(crate) fn heard(place: &Place) -> Vec<Value> {
    let heard: Vec<Value> = lines(place, "heard")
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for one in &heard {
        schema::check(one["to"].as_str().unwrap(), &one["message"]);
    }
    heard
        .into_iter()
        .map(|mut one| one["message"].take())
        .collect()
}

/// The texts of the prompts so far, the blocks of each joined by a line.
pub(crate) fn prompts(place: &Place) -> Vec<String> {
    let heard = heard(place).into_iter();
    let prompts = heard.filter(|message| message["method"] == "session/prompt");
    prompts
        .map(|prompt| {
            let blocks = prompt["params"]["prompt"].as_array().unwrap().clone();
            let texts = blocks.iter().map(|block| block["text"].as_str().unwrap());
            texts.collect::<Vec<_>>().join("\n")
        })
        .collect()
}

/// The agent. Started by a daemon, never by the test runner.
#[test]
#[ignore = "a program that other tests start"]
fn serve() {
    let Ok(manner) = std::env::var(MANNER) else {
        return;
    };
    Agent::new(&manner).serve();
    end(0);
}

#[expect(
    clippy::disallowed_methods,
    reason = "the agent ends as a program does, whatever test runner is around it"
)]
fn end(status: i32) -> ! {
    std::process::exit(status)
}

fn note(file: &str, line: &str) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .unwrap();
    writeln!(file, "{line}").unwrap();
}

type OpenRequests = HashMap<u64, (String, Sender<Value>)>;

#[derive(Clone)]
struct Agent {
    manner: Vec<String>,
    out: Arc<Mutex<File>>,
    /// Requests of the agent by id: their method and where the answer goes.
    asked: Arc<Mutex<OpenRequests>>,
    cancelled: Arc<Mutex<Vec<Sender<()>>>>,
    /// Requests that it made without waiting for their answers.
    background: Arc<Mutex<Vec<u64>>>,
    /// The id of its latest terminal.
    terminal: Arc<Mutex<String>>,
    /// It ends once its turn has ended.
    is_leaving: Arc<AtomicBool>,
}

impl Agent {
    fn new(manner: &str) -> Agent {
        // The real standard output; see `argv`.
        let out = OpenOptions::new().write(true).open("/proc/self/fd/3");
        Agent {
            manner: manner.split_whitespace().map(str::to_owned).collect(),
            out: Arc::new(Mutex::new(out.unwrap())),
            asked: Arc::default(),
            cancelled: Arc::default(),
            background: Arc::default(),
            terminal: Arc::default(),
            is_leaving: Arc::default(),
        }
    }

    fn is(&self, word: &str) -> bool {
        self.manner.iter().any(|one| one == word)
    }

    fn say(&self, message: &Value) {
        let mut out = self.out.lock().unwrap();
        let _ = writeln!(out, "{message}");
    }

    fn serve(&self) {
        note("starts", &std::process::id().to_string());
        if self.is("banner") {
            let mut out = self.out.lock().unwrap();
            writeln!(out, "Welcome!").unwrap();
        }
        if self.is("fails") {
            let _ = writeln!(
                std::io::stderr(),
                "reading the licence\nno licence was found"
            );
            end(3);
        }
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            let message: Value = serde_json::from_str(&line).unwrap();
            match message["method"].as_str() {
                Some(method) => {
                    note(
                        "heard",
                        &json!({ "to": method, "message": message }).to_string(),
                    );
                    self.hear(method.to_owned(), message.clone());
                }
                None => {
                    let id = message["id"].as_u64().unwrap();
                    let (method, answer) = self.asked.lock().unwrap().remove(&id).unwrap();
                    note(
                        "heard",
                        &json!({ "to": method, "message": message }).to_string(),
                    );
                    let _ = answer.send(message);
                }
            }
        }
    }

    fn hear(&self, method: String, message: Value) {
        let id = message["id"].clone();
        let result =
            |result: Value| self.say(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
        let refusal = |code: i64, text: &str| {
            let error = json!({ "code": code, "message": text });
            self.say(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        };
        match method.as_str() {
            "initialize" if self.is("silent") => {}
            "initialize" => {
                let resume = if self.is("resume") {
                    json!({ "resume": {} })
                } else {
                    json!({})
                };
                result(json!({
                    "protocolVersion": if self.is("newer") { 9 } else { 1 },
                    "agentCapabilities": {
                        "loadSession": self.is("load"),
                        "sessionCapabilities": resume,
                    },
                    "authMethods": [{ "id": "key", "name": "API key", "description": "Set KEY" }],
                }));
            }
            "session/new" if self.is("auth") => refusal(-32000, "Authentication required"),
            "session/new" => {
                let session = format!(
                    "s{}",
                    1 + fs::read_to_string("sessions").map_or(0, |all| all.lines().count())
                );
                note("sessions", &session);
                result(json!({ "sessionId": session }));
            }
            "session/load" | "session/resume" => {
                let session = message["params"]["sessionId"].as_str().unwrap();
                let known = fs::read_to_string("sessions").unwrap_or_default();
                if self.is("forgets") || !known.lines().any(|one| one == session) {
                    return refusal(-32002, "no such session");
                }
                if method == "session/load" {
                    let agent = Turn {
                        agent: self.clone(),
                        session: session.to_owned(),
                    };
                    agent.update(json!({
                        "sessionUpdate": "agent_message_chunk",
                        "content": { "type": "text", "text": "what was said before" },
                    }));
                }
                result(json!({}));
            }
            "session/prompt" => {
                let session = message["params"]["sessionId"].as_str().unwrap().to_owned();
                let (cancel, cancelled) = channel();
                self.cancelled.lock().unwrap().push(cancel);
                let turn = Turn {
                    agent: self.clone(),
                    session,
                };
                let prompt = message["params"]["prompt"].clone();
                std::thread::spawn(move || turn.play(&id, &prompt, &cancelled));
            }
            "session/cancel" => {
                note("cancels", "1");
                self.cancelled.lock().unwrap().clear();
            }
            _ => {}
        }
    }
}

/// The result of an answer as text, or the message of its error.
fn told(answer: &Value) -> String {
    match answer.get("error") {
        Some(error) => error["message"].as_str().unwrap().to_owned(),
        None => answer["result"].to_string(),
    }
}

struct Turn {
    agent: Agent,
    session: String,
}

impl Turn {
    fn update(&self, update: Value) {
        let params = json!({ "sessionId": self.session, "update": update });
        let method = "session/update";
        self.agent
            .say(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    fn text(&self, kind: &str, text: &str) {
        self.update(json!({
            "sessionUpdate": kind, "content": { "type": "text", "text": text },
        }));
    }

    /// Sends a request and waits for the answer.
    fn ask(&self, method: &str, params: Value) -> Value {
        self.send(method, params).1.recv().unwrap()
    }

    /// Sends a request; returns its id, and where the answer comes.
    fn send(&self, method: &str, mut params: Value) -> (u64, Receiver<Value>) {
        params["sessionId"] = json!(self.session);
        let (answer, answered) = channel();
        let mut asked = self.agent.asked.lock().unwrap();
        let id = 1000
            + fs::read_to_string("heard").map_or(0, |all| all.len() as u64)
            + asked.len() as u64;
        asked.insert(id, (method.to_owned(), answer));
        drop(asked);
        self.agent
            .say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        (id, answered)
    }

    /// Sends a request whose answer is noted in `file` when it comes.
    fn send_in_background(&self, file: &'static str, method: &str, params: Value) {
        let (id, answered) = self.send(method, params);
        self.agent.background.lock().unwrap().push(id);
        std::thread::spawn(move || {
            if let Ok(answer) = answered.recv() {
                note(file, &told(&answer));
            }
        });
    }

    fn of_terminal(&self) -> Value {
        json!({ "terminalId": *self.agent.terminal.lock().unwrap() })
    }

    /// Plays the actions of the prompt's last block, a JSON list.
    fn play(&self, id: &Value, prompt: &Value, cancelled: &Receiver<()>) {
        let blocks = prompt.as_array().unwrap();
        let texts: Vec<&str> = blocks
            .iter()
            .map(|block| block["text"].as_str().unwrap())
            .collect();
        note("prompts", &texts.join(" | ").replace('\n', " "));
        let mut reason = "end_turn".to_owned();
        let is_continued = texts[0].starts_with("Your previous turn");
        if is_continued && !self.agent.is("repeats") {
            self.text("agent_message_chunk", "finished after the interruption");
        } else {
            let task = match is_continued {
                // What it asks for now is another thing, if the test says so.
                true => texts.last().unwrap().replace("@first", "@second"),
                false => (*texts.last().unwrap()).to_owned(),
            };
            let actions: Value = serde_json::from_str(&task)
                .unwrap_or_else(|_| json!([{ "say": format!("heard: {task}") }]));
            for action in actions.as_array().unwrap() {
                for (what, with) in action.as_object().unwrap() {
                    if let Some(stop) = self.act(what, with, cancelled) {
                        reason = stop;
                    }
                }
                if reason == "cancelled" {
                    break;
                }
            }
        }
        let usage = json!({ "totalTokens": 15, "inputTokens": 12, "outputTokens": 3 });
        self.agent.say(&json!({
            "jsonrpc": "2.0", "id": id, "result": { "stopReason": reason, "usage": usage },
        }));
        if self.agent.is_leaving.load(Ordering::Relaxed) {
            end(0);
        }
    }

    fn question(&self, call: &Value) -> Value {
        let option = |id: &str, kind: &str| json!({ "optionId": id, "name": id, "kind": kind });
        let mut options = vec![
            option("no", "reject_once"),
            option("always", "allow_always"),
        ];
        if !self.agent.is("standing") {
            options.push(option("yes", "allow_once"));
        }
        json!({ "toolCall": call, "options": options })
    }

    fn act(&self, what: &str, with: &Value, cancelled: &Receiver<()>) -> Option<String> {
        let text = || with.as_str().unwrap();
        match what {
            "say" => self.text("agent_message_chunk", text()),
            "think" => self.text("agent_thought_chunk", text()),
            "plan" => self.update(json!({ "sessionUpdate": "plan", "entries": with })),
            "call" => {
                let mut call = with.clone();
                call["sessionUpdate"] = json!("tool_call");
                self.update(call);
            }
            "done" => {
                let mut call = with.clone();
                call["sessionUpdate"] = json!("tool_call_update");
                self.update(call);
            }
            "effect" => note("effects", text()),
            // Holds until the file is there.
            "until" => {
                while !Path::new(text()).exists() {
                    let look = Duration::from_millis(5);
                    if let Err(RecvTimeoutError::Disconnected) = cancelled.recv_timeout(look) {
                        return Some("cancelled".to_owned());
                    }
                }
            }
            "ask" => {
                let answer = self.ask("session/request_permission", self.question(with));
                let outcome = &answer["result"]["outcome"];
                note("decisions", &outcome.to_string());
                if outcome["outcome"] == "cancelled" {
                    return Some("cancelled".to_owned());
                }
                if outcome["optionId"] == "yes" {
                    note("effects", with["toolCallId"].as_str().unwrap());
                    let id = &with["toolCallId"];
                    self.update(json!({
                        "sessionUpdate": "tool_call_update", "toolCallId": id, "status": "completed",
                    }));
                }
            }
            // Goes on without the answer.
            "asking" => {
                let question = self.question(with);
                self.send_in_background("answers", "session/request_permission", question);
            }
            "writing" => {
                let mut file = with.clone();
                if file["content"] == "@content" {
                    file["content"] = fs::read_to_string("content").unwrap().into();
                }
                self.send_in_background("answers", "fs/write_text_file", file);
            }
            "withdraw" => {
                let id = self.agent.background.lock().unwrap().pop().unwrap();
                self.agent.say(&json!({
                    "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": id },
                }));
            }
            "terminal" => {
                let answer = self.ask("terminal/create", with.clone());
                if let Some(id) = answer["result"]["terminalId"].as_str() {
                    id.clone_into(&mut self.agent.terminal.lock().unwrap());
                }
                note("terminals", &told(&answer));
            }
            "waiting" => {
                self.send_in_background("exits", "terminal/wait_for_exit", self.of_terminal());
            }
            "output" | "wait_for_exit" | "kill" | "release" => {
                let answer = self.ask(&format!("terminal/{what}"), self.of_terminal());
                note("terminals", &told(&answer));
            }
            // A process of it is left that does not end when it is asked to.
            "leaves" => {
                let line = "trap '' TERM; echo $$ > left; while :; do sleep 1; done";
                let mut left = std::process::Command::new("/bin/sh")
                    .args(["-c", line])
                    .spawn()
                    .unwrap();
                std::thread::spawn(move || left.wait());
                while fs::read_to_string("left").unwrap_or_default().is_empty() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            "leave" => self.agent.is_leaving.store(true, Ordering::Relaxed),
            "read" | "write" => {
                let method = format!("fs/{what}_text_file");
                let answer = self.ask(&method, with.clone());
                note("files", &told(&answer));
            }
            "other" => {
                let answer = self.ask(text(), json!({}));
                note("files", &answer["error"]["code"].to_string());
            }
            "line" => {
                let mut out = self.agent.out.lock().unwrap();
                writeln!(out, "{}", text()).unwrap();
            }
            "die" => {
                let _ = writeln!(std::io::stderr(), "out of luck");
                end(4);
            }
            "hang" => loop {
                std::thread::park();
            },
            "stop" => return Some(text().to_owned()),
            _ => panic!("{what}"),
        }
        None
    }
}
