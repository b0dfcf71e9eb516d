//! Third-party model servers: one that validates its client, and one that speaks both APIs and
//! keeps every request. Where they cannot be installed, the test prints a note.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::harness::peers;
use crate::harness::{Place, Script, eventually, run};

/// A server process that is killed on drop.
pub(crate) struct Outside {
    child: Child,
    address: String,
}

impl Outside {
    /// Starts the server and waits until `path` is answered.
    pub(crate) async fn start(mut command: Command, port: u16, path: &str) -> Outside {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = Outside {
            child: command.spawn().unwrap(),
            address: format!("127.0.0.1:{port}"),
        };
        eventually("a server from outside", async || {
            server.ask("GET", path, "")
        })
        .await;
        server
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The body of an answer; `None` if the connection fails.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> Option<String> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        let request = format!(
            "{method} {path} HTTP/1.0\r\nhost: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        assert!(
            head.contains(" 200 ") || head.contains(" 201 "),
            "{head}\n{body}"
        );
        Some(body.to_owned())
    }

    pub(crate) fn json(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = self.ask(method, path, &body.to_string()).unwrap();
        serde_json::from_str(&body).unwrap()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn place(chat: &str, claude: &str) -> Place {
    Place::new(Script::new())
        .with("providers.chat.kind", "\"openai\"")
        .with("providers.chat.base_url", &format!("{chat:?}"))
        .with("providers.claude.kind", "\"anthropic\"")
        .with("providers.claude.base_url", &format!("{claude:?}"))
        .with("defaults.model", "\"chat/m\"")
}

/// Takes some 10 s where the validator can be installed: it starts a separate program for each
/// fault.
#[test]
fn an_outside_judge_of_clients_names_no_fault() {
    let folder = match peers::python() {
        Ok(folder) => folder,
        Err(why) => return peers::skipped("the outside judge of model clients", &why),
    };
    run(async {
        let port = free_port();
        let mut serve = Command::new(folder.join("bin/llmock"));
        serve.args(["serve", "--host", "127.0.0.1", "--port", &port.to_string()]);
        // The server must notice that a client stops reading before it has written everything.
        serve.args(["--stream-chunk-delay-ms", "30"]);
        let server = Outside::start(serve, port, "/_llmock/scenario").await;
        let place = place(&server.url("/v1"), &server.url("/anthropic"))
            .with("providers.chat.stall_timeout", "\"700ms\"")
            .with("providers.claude.stall_timeout", "\"700ms\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let faults = [
            json!({ "type": "fail", "status": 429, "retry_after": 1 }),
            json!({ "type": "fail", "status": 503, "times": 3 }),
            json!({ "type": "fail", "status": 529 }),
            json!({ "type": "stream_fault", "kind": "disconnect", "after_chunks": 2 }),
            json!({ "type": "stream_fault", "kind": "truncate" }),
            json!({ "type": "stream_fault", "kind": "malformed" }),
            json!({ "type": "stream_fault", "kind": "stall", "stall_seconds": 5 }),
            json!({ "type": "tool_fault", "kind": "malformed_arguments" }),
            json!({ "type": "tool_fault", "kind": "unknown_tool" }),
        ];
        for model in ["chat/m", "claude/m"] {
            for (number, fault) in faults.iter().enumerate() {
                let scenario = json!({ "behaviors": [fault] });
                server.json("POST", "/_llmock/scenario", &scenario);
                let params = json!({ "task": format!("task {number}"), "model": model });
                let spawned = client.spawn(params).await;
                let ended = client.ended(&spawned.id).await;
                assert_eq!(ended["state"], "ok", "{model} {fault}: {ended}");
            }
            for status in [400, 401, 403, 404, 422] {
                let fault = json!({ "behaviors": [{ "type": "fail", "status": status }] });
                server.json("POST", "/_llmock/scenario", &fault);
                let params = json!({ "task": format!("wrong {status}"), "model": model });
                let spawned = client.spawn(params).await;
                let ended = client.ended(&spawned.id).await;
                assert_eq!(ended["state"], "error", "{model} {status}: {ended}");
            }
        }
        let verdict = server.json("GET", "/_llmock/verdict", &Value::Null);
        assert_eq!(verdict["findings"], json!([]), "{verdict}");
        // One of them occurs three times, two concern the model and not the server, and there are
        // five refusals.
        let injected = 2 * (faults.len() + 2 - 2 + 5);
        assert_eq!(verdict["faults_injected"], injected, "{verdict}");
        peers::announce(&format!(
            "the outside judge of model clients: {} calls, {} attempts, {} faults, none of them ours",
            verdict["calls"], verdict["attempts"], verdict["faults_injected"]
        ));
    });
}

#[test]
fn a_server_from_outside_sees_whole_turns_of_both_apis_also_after_a_kill() {
    let folder = match peers::node("common") {
        Ok(folder) => folder,
        Err(why) => return peers::skipped("the outside server of models", &why),
    };
    let fixtures = json!({ "fixtures": [
        { "match": { "userMessage": "look", "hasToolResult": false },
          "response": { "toolCalls": [{ "name": "read", "arguments": { "path": "notes.txt" } }] } },
        { "match": { "userMessage": "look", "hasToolResult": true },
          "response": { "content": "It says beta." } },
        { "match": { "userMessage": "again" }, "response": { "content": "Still beta." } },
    ] });
    run(async {
        let port = free_port();
        let file = folder.join(format!("fixtures-{port}.json"));
        std::fs::write(&file, fixtures.to_string()).unwrap();
        let mut serve = Command::new("node");
        serve
            .arg("node_modules/@copilotkit/aimock/dist/cli.js")
            .args([
                "--port",
                &port.to_string(),
                "--log-level",
                "silent",
                "--strict",
            ])
            .args(["--chunk-size", "3", "--fixtures"])
            .arg(&file)
            .current_dir(&folder);
        let server = Outside::start(serve, port, "/__aimock/journal").await;
        let place = place(&server.url("/v1"), &server.url(""));
        for (model, key) in [
            ("chat/gpt-4o", "chat"),
            ("claude/claude-sonnet-4-5", "claude"),
        ] {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let session = client.session("agent", key).await;
            let turn = |message: &str| json!({ "sessionKey": session, "message": message, "model": model });
            let asked = client.call("agent.run", turn("look into notes.txt")).await;
            let ended = client.ended(asked["runId"].as_str().unwrap()).await;
            assert_eq!(ended["result"], "It says beta.", "{ended}");
            assert_eq!(ended["toolCalls"], 1);
            daemon.kill().await;

            let daemon = place.start().await;
            let client = daemon.client().await;
            let asked = client.call("agent.run", turn("again")).await;
            let ended = client.ended(asked["runId"].as_str().unwrap()).await;
            assert_eq!(ended["result"], "Still beta.", "{ended}");
            let journal = server.json("GET", "/__aimock/journal", &Value::Null);
            let entries = journal.as_array().or_else(|| journal["entries"].as_array());
            let last = entries.unwrap().last().unwrap();
            // Server and client agree on the conversation: it includes the answer from before the
            // kill.
            let text = last["body"]["messages"].to_string();
            for part in ["look into notes.txt", "beta", "It says beta.", "again"] {
                assert!(text.contains(part), "{part} is missing: {last}");
            }
            daemon.kill().await;
        }
        std::fs::remove_file(file).unwrap();
        peers::announce("the third-party model server saw whole turns of both APIs");
    });
}
