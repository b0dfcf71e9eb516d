//! `abide rpc`: the protocol for editors over standard input and output, and single calls.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::harness::{Link, Place, Script, eventually, run, says};

fn place() -> Place {
    Place::new(Script::new().on("[a]", [says("a is done").held_by("go")]))
}

/// `abide rpc --stdio`, started as an editor would.
struct Editor {
    process: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Editor {
    fn start(place: &Place) -> Editor {
        let mut process = place
            .command(&["rpc", "--stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Editor {
            to: process.stdin.take(),
            from: BufReader::new(process.stdout.take().unwrap()),
            process,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let to = self.to.as_mut().unwrap();
        to.write_all(bytes).unwrap();
        to.flush().unwrap();
    }

    /// Sends a message as one line.
    fn line(&mut self, message: &Value) {
        self.send(format!("{message}\n").as_bytes());
    }

    fn read_line(&mut self) -> Value {
        let mut text = String::new();
        self.from.read_line(&mut text).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Sends a message with headers.
    fn headed(&mut self, message: &Value) {
        let text = message.to_string();
        self.send(format!("Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes());
    }

    fn read_headed(&mut self) -> Value {
        let mut header = String::new();
        self.from.read_line(&mut header).unwrap();
        let length = header.strip_prefix("Content-Length: ").unwrap();
        let mut blank = String::new();
        self.from.read_line(&mut blank).unwrap();
        assert_eq!(blank, "\r\n");
        let mut body = vec![0; length.trim().parse().unwrap()];
        self.from.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    fn hang_up(&mut self) {
        self.to = None;
    }

    /// Waits for its end; returns the remaining standard output, exit code and standard error.
    fn ended(mut self) -> (String, i32, String) {
        let mut rest = String::new();
        self.from.read_to_string(&mut rest).unwrap();
        let mut said = String::new();
        let mut err = self.process.stderr.take().unwrap();
        err.read_to_string(&mut said).unwrap();
        let code = self.process.wait().unwrap().code().unwrap();
        (rest, code, said)
    }
}

fn call(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params })
}

/// Starts a run that continues until it is released.
async fn at_work(place: &Place, client: &Link) -> String {
    let run = client.spawn(json!({ "task": "[a]" })).await;
    eventually("the call", async || {
        let call = ("[a]".to_owned(), 0);
        place.model_calls().contains_key(&call).then_some(())
    })
    .await;
    run.id
}

#[test]
fn messages_go_both_ways_a_line_each() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut editor = Editor::start(&place);
        editor.line(&call("a", "gateway.ping", json!({})));
        assert_eq!(
            editor.read_line(),
            json!({"jsonrpc": "2.0", "id": "a", "result": {}})
        );
        editor.line(&call(2, "no.such", json!({})));
        let refused = editor.read_line();
        assert_eq!(
            (&refused["id"], &refused["error"]["code"]),
            (&json!(2), &json!(-32601))
        );
        let batch = json!([
            call(3, "gateway.ping", json!({})),
            call(4, "gateway.ping", json!({}))
        ]);
        editor.line(&batch);
        assert_eq!(editor.read_line().as_array().unwrap().len(), 2);
        // Invalid JSON is answered too, and does not affect later messages.
        editor.send(b"{\"jsonrpc\":\n");
        assert_eq!(editor.read_line()["error"]["code"], -32700);
        editor.send(b"\xff\xfe\n");
        assert_eq!(editor.read_line()["error"]["code"], -32700);
        // A call without an id gets no answer.
        editor.line(&json!({ "jsonrpc": "2.0", "method": "gateway.ping" }));
        // The last line has no line end.
        editor.send(call(5, "gateway.ping", json!({})).to_string().as_bytes());
        editor.hang_up();
        assert_eq!(editor.read_line()["id"], 5);
        let (rest, code, said) = editor.ended();
        assert_eq!((rest.as_str(), code, said.as_str()), ("", 0, ""));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn messages_behind_headers_are_answered_behind_headers() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut editor = Editor::start(&place);
        editor.headed(&call(1, "gateway.ping", json!({})));
        assert_eq!(editor.read_headed()["id"], 1);
        let label = json!({ "label": "ä\n\u{1f980}" });
        editor.headed(&call(2, "sessions.create", label));
        assert_eq!(
            editor.read_headed()["result"]["session"]["label"],
            "ä\n\u{1f980}"
        );
        // Too large for the daemon: only this call is refused, and the link stays.
        let large = call(3, "gateway.ping", json!({ "x": "x".repeat(11 << 20) }));
        editor.headed(&large);
        assert_eq!(editor.read_headed()["error"]["data"]["kind"], "too_large");
        editor.headed(&call(4, "gateway.ping", json!({})));
        assert_eq!(editor.read_headed()["id"], 4);
        editor.send(b"Content-Length: many\r\n\r\n");
        assert_eq!(editor.read_headed()["error"]["data"]["kind"], "parse_error");
        let (rest, code, _) = editor.ended();
        assert_eq!((rest.as_str(), code), ("", 2));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_a_subscription_brings_passes_through() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut editor = Editor::start(&place);
        editor.line(&call(
            1,
            "events.subscribe",
            json!({ "kinds": ["session.*"] }),
        ));
        let answer = editor.read_line();
        assert!(answer.get("result").is_some(), "{answer}");
        let made = client.session("client", "one").await;
        // The first message is the snapshot; then comes the new session.
        loop {
            let told = editor.read_line();
            assert!(
                told["method"].is_string() && told.get("id").is_none(),
                "{told}"
            );
            if told.to_string().contains(&made) {
                break;
            }
        }
        // A subscription does not count as a pending call.
        editor.hang_up();
        assert_eq!(editor.ended().1, 0);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn it_ends_once_what_is_open_is_answered() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let id = at_work(&place, &client).await;
        let mut editor = Editor::start(&place);
        let wait = json!({ "runId": id, "waitTimeout": 3600 });
        editor.line(&call("w", "agent.wait", wait));
        editor.line(&call("p", "gateway.ping", json!({})));
        editor.hang_up();
        // Later calls do not wait for earlier ones.
        assert_eq!(editor.read_line()["id"], "p");
        assert!(editor.process.try_wait().unwrap().is_none());
        place.let_go("go");
        let answer = editor.read_line();
        assert_eq!(answer["result"]["runs"][0]["result"], "a is done");
        let (rest, code, _) = editor.ended();
        assert_eq!((rest.as_str(), code), ("", 0));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g9_a_lost_daemon_answers_every_open_call_with_an_error() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let id = at_work(&place, &client).await;
        let mut editor = Editor::start(&place);
        let wait = json!({ "runId": id, "waitTimeout": 3600 });
        editor.headed(&call("w", "agent.wait", wait.clone()));
        editor.headed(&call(7, "agent.wait", wait));
        editor.headed(&call("p", "gateway.ping", json!({})));
        assert_eq!(editor.read_headed()["id"], "p");
        daemon.kill().await;
        for id in [json!("w"), json!(7)] {
            let answer = editor.read_headed();
            assert_eq!(answer["id"], id);
            assert_eq!(answer["error"]["data"]["kind"], "unavailable");
            assert_eq!(answer["error"]["data"]["retryable"], true);
        }
        // It exits even while its input is still open.
        let (rest, code, said) = editor.ended();
        assert_eq!((rest.as_str(), code), ("", 10));
        assert!(said.contains("lost"), "{said}");
    });
}

#[test]
fn standard_output_carries_nothing_but_messages() {
    let place = place();
    for line in [&["rpc", "--stdio"][..], &["rpc", "--stdio", "--json"]] {
        let output = place.command(line).output().unwrap();
        assert_eq!(output.status.code(), Some(10));
        assert_eq!(output.stdout, b"");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("abide serve"), "{said}");
    }
}

#[test]
fn one_call_prints_its_result_or_its_error() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let ask = |line: &[&str], input: &str| {
            let mut process = place
                .command(line)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut to = process.stdin.take().unwrap();
            // A command that rejects its arguments does not read.
            let _ = to.write_all(input.as_bytes());
            drop(to);
            let output = process.wait_with_output().unwrap();
            let text = |bytes| String::from_utf8(bytes).unwrap();
            (
                output.status.code().unwrap(),
                text(output.stdout),
                text(output.stderr),
            )
        };
        let (code, out, err) = ask(&["rpc", "gateway.ping"], "");
        assert_eq!((code, out.as_str(), err.as_str()), (0, "{}\n", ""));
        let params = r#"{"owner": "client", "key": "bot:one"}"#;
        let (code, out, _) = ask(&["rpc", "sessions.create", params], "");
        assert_eq!(code, 0);
        let made: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(made["created"], true);
        let (code, out, _) = ask(&["rpc", "sessions.create", "-"], params);
        assert_eq!(code, 0);
        let found: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(found["session"]["id"], made["session"]["id"]);
        for (line, exit, kind) in [
            (&["rpc", "no.such"][..], 2, "unknown_method"),
            (
                &["rpc", "sessions.get", r#"{"sessionKey": "bot:two"}"#],
                3,
                "not_found",
            ),
        ] {
            let (code, out, err) = ask(line, "");
            assert_eq!((code, out.as_str()), (exit, ""), "{err}");
            let error: Value = serde_json::from_str(&err).unwrap();
            assert_eq!(error["data"]["kind"], kind);
            assert!(error["code"].is_i64() && error["message"].is_string());
        }
        for line in [
            &["rpc"][..],
            &["rpc", "gateway.ping", "[1]"],
            &["rpc", "gateway.ping", "{"],
            &["rpc", "gateway.ping", "--stdio"],
        ] {
            let (code, out, err) = ask(line, "");
            assert_eq!((code, out.as_str()), (2, ""), "{line:?}: {err}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_editor_has_a_daemon_started_where_it_says_so() {
    let place = place();
    let ask = |arguments: &[&str]| {
        let mut editor = place
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "gateway.ping" });
        // A process that found no daemon may have ended by now.
        let _ = writeln!(editor.stdin.take().unwrap(), "{call}");
        let done = editor.wait_with_output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    let (code, out) = ask(&["rpc", "--stdio"]);
    assert_eq!(code, Some(10), "{out}");
    for _ in 0..2 {
        let (code, out) = ask(&["rpc", "--stdio", "--start"]);
        assert_eq!(code, Some(0), "{out}");
        let answer: Value = serde_json::from_str(out.trim()).unwrap();
        assert_eq!(answer["id"], 1, "{out}");
    }
    let stopped = place.command(&["stop"]).output().unwrap();
    assert!(stopped.status.success());
}
