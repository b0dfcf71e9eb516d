//! Calls: what each command does, and that a call is carried out once whatever happens to its link.

use std::collections::BTreeMap;
use std::fs;

use abide::kernel::node::{NodeCall, OutputStream, RunCall};
use abide::wire::node_link::{FromNode, ToNode};
use serde_json::json;

use super::fixture::{ALLOW, Gateway, Node, id, is_alive, linked, pid_in, runs, shell};
use crate::harness::{eventually, run};

#[test]
fn a_program_gets_its_arguments_as_they_are_and_nothing_of_the_nodes_environment() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        let mut command = node.command(&["node", "run"]);
        command.env("SECRET_OF_NODE", "s3cret");
        let _process = node.started(command);
        let (mut link, _) = gateway.welcome(&node).await;
        let work = node.path().join("work");
        let call = RunCall {
            cwd: Some(work.to_str().unwrap().to_owned()),
            env: BTreeMap::from([("GREETING".to_owned(), "a b".to_owned())]),
            ..runs(&["printf", "%s|", "a b", "$(id)", ";", "*", ""])
        };
        let end = link.does(id(1), NodeCall::Run(call.clone())).await;
        assert_eq!(end["value"]["stdout"], "a b|$(id)|;|*||");
        assert_eq!(end["value"]["status"], 0);
        let line = "pwd; echo \"$GREETING\"; env | grep -c SECRET; echo err >&2; exit 3";
        let call = RunCall {
            argv: ["sh", "-c", line].map(str::to_owned).to_vec(),
            ..call
        };
        let end = link.does(id(2), NodeCall::Run(call)).await;
        let value = &end["value"];
        assert_eq!(value["stdout"], format!("{}\na b\n0\n", work.display()));
        assert_eq!(
            (&value["stderr"], &value["status"]),
            (&json!("err\n"), &json!(3))
        );
        assert_eq!(value["stderrBytes"], 4);
        let end = link.does(id(3), shell("kill -9 $$")).await;
        assert_eq!(
            (&end["value"]["signal"], &end["value"]["status"]),
            (&json!(9), &json!(null))
        );
    });
}

#[test]
fn output_arrives_while_the_program_runs_and_whole_at_the_end() {
    run(async {
        let (_gateway, node, _process, mut link) = linked(ALLOW).await;
        let go = node.path().join("go");
        let line = format!(
            "printf 'begun ä'; echo oh >&2; until test -e {}; do sleep 0.05; done; echo end",
            go.display()
        );
        link.call(id(1), shell(&line)).await;
        let mut live = BTreeMap::new();
        while live.len() < 2 {
            if let FromNode::Output { stream, text, .. } = link.next().await {
                live.entry(stream == OutputStream::Stdout)
                    .or_insert_with(String::new)
                    .push_str(&text);
            }
        }
        assert_eq!(live[&true], "begun ä");
        assert_eq!(live[&false], "oh\n");
        fs::write(&go, "").unwrap();
        let end = link.end_of(id(1)).await;
        assert_eq!(end["value"]["stdout"], "begun äend\n");
        assert_eq!(end["value"]["stderr"], "oh\n");
    });
}

#[test]
fn limits_of_time_and_output_end_the_program() {
    run(async {
        let (_gateway, _node, _process, mut link) = linked(ALLOW).await;
        let call = RunCall {
            timeout_ms: 200,
            ..runs(&["sleep", "4000"])
        };
        let end = link.does(id(1), NodeCall::Run(call)).await;
        assert_eq!(end["value"]["stopped"], "timeout", "{end}");
        let call = RunCall {
            keep: 100,
            ..runs(&["sh", "-c", "yes | head -c 100000"])
        };
        let end = link.does(id(2), NodeCall::Run(call)).await;
        assert_eq!(end["value"]["stdoutBytes"], 100_000);
        let text = end["value"]["stdout"].as_str().unwrap();
        assert!(
            text.len() < 200 && text.contains("bytes left out"),
            "{text}"
        );
        // Whatever is written fits into a frame.
        let call = RunCall {
            keep: usize::MAX,
            ..runs(&["sh", "-c", "head -c 3000000 /dev/zero | tee /dev/stderr"])
        };
        let end = link.does(id(3), NodeCall::Run(call)).await;
        assert_eq!(end["value"]["stderrBytes"], 3_000_000);
        let end = link.does(id(4), shell("yes")).await;
        assert_eq!(
            end["value"]["stopped"], "output",
            "{}",
            end["value"]["stopped"]
        );
    });
}

#[test]
fn a_cancel_ends_grandchildren_too_and_what_is_left_ends_with_the_call() {
    run(async {
        let (_gateway, node, _process, mut link) = linked(ALLOW).await;
        let file = node.path().join("pid");
        let line = format!(
            "(setsid sleep 4000 & echo $! > {}); sleep 4000",
            file.display()
        );
        link.call(id(1), shell(&line)).await;
        let pid = pid_in(&file).await;
        link.send(&ToNode::Cancel { id: id(1) }).await;
        let end = link.end_of(id(1)).await;
        assert_eq!(end["value"]["stopped"], "cancelled", "{end}");
        assert!(!is_alive(pid));
        fs::remove_file(&file).unwrap();
        let line = format!(
            "(setsid sleep 4000 >/dev/null 2>&1 & echo $! > {})",
            file.display()
        );
        let end = link.does(id(2), shell(&line)).await;
        assert_eq!(end["value"]["status"], 0, "{end}");
        assert!(!is_alive(pid_in(&file).await));
        // A call that the node does not have.
        link.send(&ToNode::Cancel { id: id(3) }).await;
        assert_eq!(link.end_of(id(3)).await["reason"], "cancelled");
    });
}

#[test]
fn a_repeated_call_is_answered_and_not_run_again() {
    run(async {
        let (gateway, node, _process, mut link) = linked(ALLOW).await;
        let go = node.path().join("go");
        let line = format!(
            "echo ran >> {}; until test -e {}; do sleep 0.05; done; echo done",
            node.trace().display(),
            go.display()
        );
        link.call(id(1), shell(&line)).await;
        eventually("the program runs", async || {
            (!node.traces().is_empty()).then_some(())
        })
        .await;
        link.call(id(1), shell(&line)).await;
        // The link is lost while it runs, and again.
        for _ in 0..2 {
            drop(link);
            let calls;
            (link, calls) = gateway.welcome(&node).await;
            assert_eq!(calls, [id(1)]);
            link.call(id(1), shell(&line)).await;
        }
        fs::write(&go, "").unwrap();
        let end = link.end_of(id(1)).await;
        assert_eq!(end["value"]["stdout"], "done\n");
        link.call(id(1), shell(&line)).await;
        assert_eq!(link.end_of(id(1)).await, end);
        drop(link);
        let (mut link, calls) = gateway.welcome(&node).await;
        assert_eq!(calls, [id(1)]);
        assert_eq!(
            link.end_of(id(1)).await,
            end,
            "it is sent again without being asked for"
        );
        assert_eq!(node.traces(), ["ran"]);
        assert_eq!(node.journaled(), 1);
        link.send(&ToNode::Release { id: id(1) }).await;
        link.send(&ToNode::Release { id: id(9) }).await;
        eventually("the release", async || {
            (node.journaled() == 0).then_some(())
        })
        .await;
        drop(link);
        let (_link, calls) = gateway.welcome(&node).await;
        assert!(calls.is_empty());
    });
}

#[test]
fn a_result_that_ends_while_the_link_is_down_arrives_later() {
    run(async {
        let (gateway, node, _process, mut link) = linked(ALLOW).await;
        let line = format!(
            "echo ran >> {0}; sleep 0.3; echo ended >> {0}",
            node.trace().display()
        );
        link.call(id(1), shell(&line)).await;
        eventually("the program runs", async || {
            (!node.traces().is_empty()).then_some(())
        })
        .await;
        drop(link);
        eventually("the end", async || (node.traces().len() == 2).then_some(())).await;
        let (mut link, calls) = gateway.welcome(&node).await;
        assert_eq!(calls, [id(1)]);
        assert_eq!(link.end_of(id(1)).await["value"]["status"], 0);
    });
}

#[test]
fn a_call_that_cannot_be_carried_out_says_why_and_has_no_effect() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        node.offers("programs = 1\n");
        let _process = node.start();
        let (mut link, _) = gateway.welcome(&node).await;
        let env = |name: &str| RunCall {
            env: BTreeMap::from([(name.to_owned(), "x".to_owned())]),
            ..runs(&["true"])
        };
        let cwd = |folder: &str| RunCall {
            cwd: Some(folder.to_owned()),
            ..runs(&["true"])
        };
        for (number, (call, reason, says)) in [
            (env("LD_PRELOAD"), "invalid", "LD_PRELOAD"),
            (env("PATH"), "invalid", "PATH"),
            (runs(&[]), "invalid", "argv"),
            (runs(&["no-such-program"]), "not_found", "no-such-program"),
            (cwd("/no/such/folder"), "not_found", "cwd"),
        ]
        .into_iter()
        .enumerate()
        {
            let end = link
                .does(id(100 + number as u128), NodeCall::Run(call))
                .await;
            assert_eq!(end["reason"], reason, "{end}");
            assert!(end["message"].as_str().unwrap().contains(says), "{end}");
        }
        // All places are taken, and the time to begin is over.
        let go = node.path().join("go");
        let line = format!(
            "echo $$; until test -e {}; do sleep 0.05; done",
            go.display()
        );
        link.call(id(1), shell(&line)).await;
        while !matches!(link.next().await, FromNode::Output { .. }) {}
        let late = ToNode::Call {
            id: id(2),
            begin_within_ms: 50,
            call: NodeCall::Run(runs(&["touch", node.trace().to_str().unwrap()])),
        };
        link.send(&late).await;
        assert_eq!(link.end_of(id(2)).await["reason"], "late");
        // A queued one waits for its place, or is cancelled.
        link.call(id(3), shell("echo third")).await;
        link.call(id(4), shell("echo fourth")).await;
        link.send(&ToNode::Cancel { id: id(4) }).await;
        assert_eq!(link.end_of(id(4)).await["reason"], "cancelled");
        fs::write(&go, "").unwrap();
        assert_eq!(link.end_of(id(1)).await["value"]["status"], 0);
        assert_eq!(link.end_of(id(3)).await["value"]["stdout"], "third\n");
        assert!(!node.trace().exists());
        assert_eq!(node.journaled(), 2, "what had no effect leaves nothing");
    });
}

#[test]
fn more_calls_than_the_node_has_room_for_are_refused() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        node.offers("programs = 1\n");
        let _process = node.start();
        let (mut link, _) = gateway.welcome(&node).await;
        for number in 0..300 {
            link.call(id(number), shell("sleep 4000")).await;
        }
        let mut refused = 0;
        while refused < 44 {
            if let FromNode::Result { end, .. } = link.next().await {
                let end = serde_json::to_value(end).unwrap();
                assert_eq!(end["reason"], "busy", "{end}");
                refused += 1;
            }
        }
    });
}

#[test]
fn files_and_programs_are_seen_as_far_as_they_are_offered() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::new();
        let work = node.path().join("work");
        node.pair(&gateway, &["--root", node.path().to_str().unwrap()])
            .await;
        let _process = node.start();
        let (mut link, _) = gateway.welcome(&node).await;
        let path = |name: &str| work.join(name).to_str().unwrap().to_owned();
        let end = link.does(id(1), NodeCall::List { path: path("") }).await;
        let names: Vec<_> = end["value"]["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].clone())
            .collect();
        assert_eq!(names, ["notes.txt", "src"]);
        let read = |path: String, offset| NodeCall::Read {
            path,
            offset,
            limit: 6,
        };
        let end = link.does(id(2), read(path("notes.txt"), 0)).await;
        assert_eq!(
            end["value"],
            json!({ "text": "alpha\n", "size": 17, "next": 6 })
        );
        // The node's own keys are below this root.
        let key = node.folder().join("key").to_str().unwrap().to_owned();
        for (number, (path, reason)) in [
            (key, "denied"),
            ("/etc/passwd".to_owned(), "denied"),
            (path("../../etc/passwd"), "invalid"),
            (path("gone"), "not_found"),
        ]
        .into_iter()
        .enumerate()
        {
            let end = link.does(id(10 + number as u128), read(path, 0)).await;
            assert_eq!(end["reason"], reason, "{end}");
        }
        let programs = ["sh", "no-such-program"].map(str::to_owned).into();
        let end = link.does(id(3), NodeCall::Which { programs }).await;
        let found = end["value"]["programs"].as_object().unwrap();
        assert!(found.len() == 1 && found["sh"].as_str().unwrap().ends_with("/sh"));
        let end = link.does(id(4), NodeCall::Describe {}).await;
        assert_eq!(end["value"]["machine"]["platform"], std::env::consts::OS);
        assert_eq!(end["value"]["cwd"], node.path().to_str().unwrap());
        // Reads leave nothing behind that would have to be released.
        assert_eq!(node.journaled(), 0);
    });
}
