//! `GET /events` with an unmodified client, curl.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::{logged, mark};
use crate::harness::{Daemon, Link, Place, Script, run, says};

fn place() -> Place {
    Place::new(Script::new().on("[a]", [says("a is done")]))
}

/// Is curl installed? Prints a note if it is not.
#[expect(clippy::print_stdout, reason = "a test that does not test must say so")]
fn has_curl() -> bool {
    let found = Command::new("curl")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        println!("not tested: there is no curl on this machine");
    }
    found
}

/// A curl process that reads `GET /events`.
struct Curl {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

/// An item in its form in the stream.
#[derive(Debug)]
struct Frame {
    id: Option<i64>,
    data: Value,
}

impl Curl {
    fn read(daemon: &Daemon, query: &str, headers: &[&str]) -> Curl {
        let mut command = Command::new("curl");
        command
            .args([
                "--silent",
                "--show-error",
                "--no-buffer",
                "--max-time",
                "240",
            ])
            .arg(format!("{}/events{query}", daemon.url()))
            .args(["-H", &format!("Authorization: Bearer {}", daemon.token())])
            .stdout(Stdio::piped());
        for header in headers {
            command.args(["-H", header]);
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Curl { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    fn frame(&mut self) -> Frame {
        let mut id = None;
        loop {
            let line = self.line();
            if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.parse().unwrap());
            } else if let Some(text) = line.strip_prefix("data: ") {
                let data = serde_json::from_str(text).unwrap();
                assert_eq!(self.line(), "", "an item ends with an empty line");
                return Frame { id, data };
            }
        }
    }

    fn until(&mut self, is_last: impl Fn(&Value) -> bool) -> Vec<Frame> {
        let mut seen = Vec::new();
        loop {
            seen.push(self.frame());
            if is_last(&seen.last().unwrap().data) {
                return seen;
            }
        }
    }
}

impl Drop for Curl {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_end(event: &Value) -> bool {
    event["kind"] == "session.created" && event["sessionKey"] == "client:end"
}

async fn one_run(client: &Link) {
    let a = client.spawn(json!({ "task": "[a]" })).await;
    client.ended(&a.id).await;
}

#[test]
fn g9_4_curl_that_comes_back_with_its_last_id_gets_exactly_what_it_missed() {
    if !has_curl() {
        return;
    }
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        one_run(&client).await;
        let mut curl = Curl::read(&daemon, "?since=0", &[]);
        assert_eq!(curl.line(), "retry: 2000");
        let first = curl.until(|event| event["kind"] == "run.started");
        drop(curl);
        one_run(&client).await;
        daemon.kill().await;

        let daemon = place.start().await;
        let client = daemon.client().await;
        mark(&client, "client:end").await;
        let last = first.last().unwrap().id.unwrap();
        let came_back = format!("Last-Event-ID: {last}");
        // A browser reconnects to the same address.
        let mut curl = Curl::read(&daemon, "?since=0", &[&came_back]);
        let second = curl.until(is_end);
        let end = second.last().unwrap().id.unwrap();
        // Stopping the daemon ends the stream.
        assert_eq!(daemon.stop().await, 0);
        assert!(curl.lines.by_ref().all(|line| line.is_ok()));
        assert_eq!(curl.child.wait().unwrap().code(), Some(0));
        let seen: Vec<(i64, String)> = first
            .iter()
            .chain(&second)
            .map(|frame| {
                assert_eq!(frame.data["cursor"], frame.id.unwrap());
                let kind = frame.data["kind"].as_str().unwrap().to_owned();
                (frame.id.unwrap(), kind)
            })
            .collect();
        assert_eq!(seen, logged(&place.book(), 0, end));
    });
}

#[test]
fn a_stream_takes_the_filters_of_a_subscription_and_begins_with_a_picture() {
    if !has_curl() {
        return;
    }
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut curl = Curl::read(&daemon, "?kinds=run.ended,message.*&deltas=true", &[]);
        let picture = curl.frame();
        assert_eq!(picture.data["kind"], "snapshot");
        assert_eq!(picture.data["data"]["cursor"], picture.id.unwrap());
        one_run(&client).await;
        let seen = curl.until(|event| event["kind"] == "run.ended");
        let kinds: Vec<&str> = seen
            .iter()
            .map(|frame| frame.data["kind"].as_str().unwrap())
            .collect();
        assert_eq!(
            kinds,
            [
                "message.added",
                "message.delta",
                "message.added",
                "run.ended"
            ]
        );
        // An event that is not stored has no id to resume from.
        assert_eq!(seen[1].id, None);
        assert_eq!(seen[1].data["data"]["text"], "a is done");
        drop(curl);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_stream_that_cannot_be_given_says_why_with_a_status_of_its_own() {
    if !has_curl() {
        return;
    }
    run(async {
        let place = place();
        let daemon = place.start().await;
        let status = |query: &str, headers: &[&str]| {
            let mut command = Command::new("curl");
            command
                .args(["--silent", "--max-time", "60", "-w", "\n%{http_code}"])
                .arg(format!("{}/events{query}", daemon.url()));
            for header in headers {
                command.args(["-H", header]);
            }
            let said = command.output().unwrap();
            let mut text = String::new();
            said.stdout.as_slice().read_to_string(&mut text).unwrap();
            let (body, status) = text.rsplit_once('\n').unwrap();
            let body: Value = serde_json::from_str(body).unwrap();
            let kind = body["error"]["data"]["kind"].as_str().unwrap().to_owned();
            (status.to_owned(), kind)
        };
        let token = format!("Authorization: Bearer {}", daemon.token());
        let token = token.as_str();
        let says = |status: &str, kind: &str| (status.to_owned(), kind.to_owned());
        assert_eq!(status("", &[]), says("401", "unauthorized"));
        // A token in the address is not accepted.
        let in_address = format!("?token={}", daemon.token());
        assert_eq!(status(&in_address, &[]), says("401", "unauthorized"));
        for bad in ["?since=x", "?kind=run.*", "?runId=1", "?deltas=maybe"] {
            assert_eq!(
                status(bad, &[token]),
                says("400", "invalid_params"),
                "{bad}"
            );
        }
        let ahead = "?since=1000000000";
        assert_eq!(status(ahead, &[token]), says("410", "cursor_unknown"));
        let foreign = [token, "Origin: http://evil.example"];
        assert_eq!(status("", &foreign), says("403", "forbidden"));
        // A single HTTP answer cannot carry a subscription.
        let post = [token, "Content-Type: application/json"];
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--max-time", "60", daemon.url()])
            .args([
                "-d",
                r#"{"jsonrpc":"2.0","id":1,"method":"events.subscribe"}"#,
            ]);
        for header in post {
            command.args(["-H", header]);
        }
        let said: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        assert_eq!(said["error"]["data"]["kind"], "invalid_request", "{said}");
        assert_eq!(daemon.stop().await, 0);
    });
}
