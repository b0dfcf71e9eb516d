//! Both sides as they are: a real gateway and a real node, which are killed at each step.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::fixture::{Node, ended, is_alive, pid_in};
use super::paired::{ID, at_fixed_address, gateway, in_state, url};
use crate::harness::{eventually, kind_of, run};

/// The first line of a command's output, and the command.
async fn first_line(mut command: Command) -> (Value, std::process::Child) {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let reading = tokio::task::spawn_blocking(move || {
        let mut out = BufReader::new(out);
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        (serde_json::from_str(&line).unwrap(), out)
    });
    let (line, out) = reading.await.unwrap();
    child.stdout = Some(out.into_inner());
    (line, child)
}

#[test]
fn a_machine_is_admitted_by_its_code_also_when_the_gateway_was_killed_meanwhile() {
    run(async {
        let place = at_fixed_address(gateway());
        let daemon = place.start().await;
        let node = Node::new();
        let words = [
            "node",
            "pair",
            "--gateway",
            &url(&daemon),
            "--name",
            "mac",
            "--json",
        ];
        let (waiting, pairing) = first_line(node.command(&words)).await;
        assert!(waiting["waiting"]["code"].is_string(), "{waiting}");
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let code = eventually("the node waits again", async || {
            let list = client.call("nodes.list", json!({})).await;
            let waiting = list["waiting"].as_array().unwrap().clone();
            assert!(waiting.len() < 2, "one request a machine: {list}");
            waiting
                .first()
                .map(|one| one["code"].as_str().unwrap().to_owned())
        })
        .await;
        client.call("nodes.approve", json!({ "code": code })).await;
        let output = ended(pairing).await;
        assert!(output.status.success(), "{output:?}");
        let process = node.connected(&client, "").await;
        // Both survive any number of restarts.
        assert_eq!(daemon.stop().await, 0);
        let daemon = place.start().await;
        let client = daemon.client().await;
        in_state(&client, "mac", "connected").await;
        assert_eq!(process.stop().await, Some(0));
        let process = node.connected(&client, "").await;
        assert_eq!(process.stop().await, Some(0));
    });
}

#[test]
fn a_kill_of_the_node_at_any_step_of_a_call_runs_nothing_twice() {
    run(async {
        for (point, end) in [
            ("received", "done"),
            ("begun", "uncertain"),
            ("launched", "uncertain"),
            ("exited", "uncertain"),
            ("ended", "done"),
            ("answered", "done"),
        ] {
            let place = gateway();
            let daemon = place.start().await;
            let client = daemon.client().await;
            let node = Node::invited(&daemon, &client).await;
            let orders = format!("node.call.{point}=kill");
            let mut process = node.connected(&client, &orders).await;
            let (answer, _process) =
                tokio::join!(client.call("nodes.call", node.traced("echo out")), async {
                    process.ended().await;
                    node.start()
                });
            assert_eq!(answer["end"]["type"], end, "{point}: {answer}");
            if end == "done" {
                assert_eq!(answer["end"]["value"]["stdout"], "out\n");
                assert_eq!(node.traces().len(), 1, "{point}");
            }
            assert!(node.traces().len() <= 1, "{point}");
        }
    });
}

#[test]
fn a_kill_of_the_gateway_during_a_call_neither_repeats_nor_loses_it() {
    run(async {
        let place = at_fixed_address(gateway());
        let daemon = place.start().await;
        let client = daemon.client().await;
        let node = Node::invited(&daemon, &client).await;
        let _process = node.connected(&client, "").await;
        let go = node.path().join("go");
        let line = format!(
            "until test -e {}; do sleep 0.05; done; echo out",
            go.display()
        );
        let call = node.traced(&line);
        let lost = client.attempt("nodes.call", &call);
        let killed = async {
            eventually("it runs", async || {
                (!node.traces().is_empty()).then_some(())
            })
            .await;
            daemon.kill().await;
        };
        let (lost, ()) = tokio::join!(lost, killed);
        assert!(lost.is_err(), "{lost:?}");
        let daemon = place.start().await;
        let client = daemon.client().await;
        std::fs::write(&go, "").unwrap();
        let answer = client.call("nodes.call", call.clone()).await;
        assert_eq!(answer["end"]["value"]["stdout"], "out\n", "{answer}");
        assert_eq!(node.traces(), ["ran"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_removed_machine_is_cut_off_in_the_middle_of_a_call() {
    run(async {
        let place = gateway();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let node = Node::invited(&daemon, &client).await;
        let mut process = node.connected(&client, "").await;
        let file = node.path().join("pid");
        let line = format!("echo $$ > {}; exec sleep 4000", file.display());
        let call = node.traced(&line);
        let call = client.attempt("nodes.call", &call);
        let removed = async {
            let pid = pid_in(&file).await;
            client.call("nodes.remove", json!({ "node": "mac" })).await;
            pid
        };
        let (answer, pid) = tokio::join!(call, removed);
        let is_done = answer.is_ok_and(|answer| answer["end"]["type"] == "done");
        assert!(!is_done, "its end is unknown");
        assert_eq!(process.ended().await.code(), Some(9), "{}", process.log());
        assert!(!is_alive(pid));
        // Its token is worth nothing any more.
        let mut again = node.start();
        let code = again.ended().await.code();
        assert!(matches!(code, Some(9 | 11)), "{code:?}: {}", again.log());
    });
}

#[test]
fn a_question_is_answered_by_the_operator_of_the_gateway() {
    run(async {
        let place = gateway();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let node = Node::invited(&daemon, &client).await;
        node.allows("default = \"ask\"\nask = \"gateway\"\n");
        let _process = node.connected(&client, "").await;
        for (decision, end) in [("deny", "failed"), ("allow", "done")] {
            let mut call = node.traced("echo out");
            let id = ID.replace("c1", if decision == "deny" { "d1" } else { "d2" });
            call["id"] = json!(id);
            let answering = async {
                let question = eventually("a question", async || {
                    let list = client.call("nodes.list", json!({})).await;
                    list["questions"].get(0).cloned()
                })
                .await;
                let digest = &question["question"]["digest"];
                let wrong = json!({ "id": id, "digest": "0", "decision": "allow" });
                let refused = client.refused("nodes.answer", wrong).await;
                assert!(!kind_of(&refused).is_empty());
                let answer = json!({ "id": id, "digest": digest, "decision": decision });
                client.call("nodes.answer", answer).await;
            };
            let (answer, ()) = tokio::join!(client.call("nodes.call", call), answering);
            assert_eq!(answer["end"]["type"], end, "{answer}");
        }
        assert_eq!(node.traces(), ["ran"]);
    });
}
