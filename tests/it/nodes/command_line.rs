//! `abide nodes` on the command line.

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use super::{connected, in_state, place, run_true, with_mac};
use crate::harness::{FakeLink, NodeKey, Place, eventually, run};

async fn abide(place: &Place, arguments: &[&str]) -> (i32, String, String) {
    ended(place.command(arguments)).await
}

/// Runs a command without blocking the node that the test plays.
async fn ended(mut command: Command) -> (i32, String, String) {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = tokio::task::spawn_blocking(move || command.output().unwrap());
    let Output {
        status,
        stdout,
        stderr,
    } = running.await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

fn output(call: &Value, stream: &str, text: &str) -> Value {
    json!({ "type": "output", "id": call["id"], "stream": stream, "text": text })
}

#[test]
fn a_program_on_a_node_has_its_live_output_and_its_exit_code() {
    run(async {
        let (place, daemon, _client, mut link, _) = with_mac().await;
        let arguments = [
            "nodes", "run", "mac", "--env", "A=b", "--", "make", "-j", "all",
        ];
        let (made, call) = tokio::join!(abide(&place, &arguments), async {
            let call = link.next_of("call").await;
            link.send(&output(&call, "stdout", "one\n")).await;
            link.send(&output(&call, "stderr", "careful\n")).await;
            link.send(&output(&call, "stdout", "two\n")).await;
            let value = json!({ "status": 3, "stdout": "one\ntwo\n", "stderr": "careful\n",
                "stdoutBytes": 8, "stderrBytes": 8, "ranMs": 5 });
            let end = json!({ "type": "done", "value": value });
            link.send(&json!({ "type": "result", "id": call["id"], "end": end }))
                .await;
            call
        });
        assert_eq!(made, (3, "one\ntwo\n".to_owned(), "careful\n".to_owned()));
        assert_eq!(call["call"]["argv"], json!(["make", "-j", "all"]));
        assert_eq!(call["call"]["env"], json!({ "A": "b" }));

        // What its allow-list denies has an exit code of its own, and so has an uncertain end.
        for (end, code, says) in [
            (
                json!({ "type": "failed", "reason": "denied", "message": "no rule" }),
                9,
                "no rule",
            ),
            (
                json!({ "type": "uncertain", "message": "killed" }),
                7,
                "killed",
            ),
        ] {
            let arguments = ["nodes", "run", "mac", "--", "true"];
            let (made, ()) = tokio::join!(abide(&place, &arguments), async {
                let call = link.next_of("call").await;
                link.send(&json!({ "type": "result", "id": call["id"], "end": end }))
                    .await;
            });
            assert_eq!(made.0, code, "{made:?}");
            assert!(made.2.contains(says), "{made:?}");
        }

        // Ctrl-C cancels the call on the node.
        let mut command = place.command(&["nodes", "run", "mac", "--", "sleep", "100"]);
        let mut running = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let call = link.next_of("call").await;
        let pid = rustix::process::Pid::from_child(&running);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert_eq!(link.next_of("cancel").await["id"], call["id"]);
        let status = tokio::task::spawn_blocking(move || running.wait().unwrap());
        assert_eq!(status.await.unwrap().code(), Some(130));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn nodes_are_admitted_listed_and_removed_in_words() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let (code, _, told) = abide(&place, &["nodes"]).await;
        assert_eq!(code, 0);
        assert!(told.contains("abide nodes invite"), "{told}");

        let key = NodeKey::new();
        let mut asking = FakeLink::open(daemon.url(), "/pair", None).await.unwrap();
        asking.ask(&key, json!({})).await;
        let waiting = asking.next_of("waiting").await;
        let waits = waiting["code"].as_str().unwrap();
        let (_, out, _) = abide(&place, &["nodes"]).await;
        assert!(out.contains(waits) && out.contains("root /srv"), "{out}");
        let (_, _, told) = abide(&place, &["approvals"]).await;
        assert!(told.contains("1 to be admitted (abide nodes)"), "{told}");
        let arguments = [
            "nodes",
            "approve",
            &waits.to_lowercase(),
            "--command",
            "system.run",
        ];
        let (code, out, told) = abide(&place, &arguments).await;
        assert_eq!(code, 0, "{told}");
        assert!(
            out.contains("mac is paired; it may: system.run, root /srv"),
            "{out}"
        );
        let paired = asking.next_of("paired").await;
        let token = paired["token"].as_str().unwrap();

        let more = json!({ "offer": { "commands": ["system.run", "node.describe"] } });
        let mut link = connected(&daemon, &key, token, more).await;
        in_state(&client, "mac", "connected").await;
        let offered = eventually("the offer is pending", async || {
            let (_, out, _) = abide(&place, &["nodes", "list"]).await;
            out.contains("pending").then_some(out)
        })
        .await;
        assert!(offered.contains("mac offers + node.describe"), "{offered}");
        let (_, out, _) = abide(&place, &["nodes", "show", "mac"]).await;
        for says in [
            "mac connected",
            "macos/aarch64",
            "denied: system.which, fs.read",
        ] {
            assert!(out.contains(says), "{says}: {out}");
        }
        let (code, out, _) = abide(&place, &["nodes", "refuse", "mac"]).await;
        assert_eq!(code, 0);
        assert!(out.contains("keeps what was approved"), "{out}");

        // A question is shown whole, and answered by the end of its id.
        let other = daemon.client().await;
        let (ended, ()) = tokio::join!(other.call("nodes.call", run_true("mac")), async {
            let call = link.next_of("call").await;
            let question = json!({ "program": "/usr/bin/true", "argv": ["true", "a b"],
                "cwd": "/srv", "env": ["TERM"], "digest": "d" });
            link.send(&json!({ "type": "ask", "id": call["id"], "question": question }))
                .await;
            let shown = eventually("the question is shown", async || {
                let (_, out, _) = abide(&place, &["nodes"]).await;
                out.contains("question").then_some(out)
            })
            .await;
            assert!(shown.contains(r#"wants to run "true" "a b""#), "{shown}");
            let id = call["id"].as_str().unwrap();
            let (code, _, told) = abide(&place, &["nodes", "answer", &id[28..], "allow"]).await;
            assert_eq!(code, 0, "{told}");
            assert_eq!(link.next_of("answer").await["allow"], true);
            link.done(&call, "").await;
        });
        assert_eq!(ended["end"]["type"], "done");

        let (_, out, _) = abide(&place, &["nodes", "--json"]).await;
        let listed: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(listed["nodes"][0]["name"], "mac");
        let (_, out, _) = abide(&place, &["nodes", "rename", "mac", "studio"]).await;
        assert_eq!(out, "mac is renamed to studio\n");
        let (_, out, _) = abide(&place, &["nodes", "remove", "studio"]).await;
        assert_eq!(out, "studio is removed\n");
        let (code, _, told) = abide(&place, &["nodes", "show", "studio"]).await;
        assert_eq!(code, 3, "{told}");
        let (code, out, told) = abide(&place, &["nodes", "invite", "--name", "next"]).await;
        assert_eq!(code, 0);
        assert_eq!(out.trim().len(), 19, "{out}");
        assert!(
            told.contains("abide node pair --gateway http://127.0.0.1:"),
            "{told}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}
