//! A node that is killed at each step of a call, and in the middle of a program: nothing runs twice,
//! nothing is lost, and what is unknown is called unknown.

use serde_json::Value;

use super::fixture::{ALLOW, Gateway, Node, id, is_alive, linked, pid_in, shell};
use crate::harness::{eventually, run};
use abide::wire::node_link::ToNode;

/// The points of a call that the gateway wants, and what it gets after the restart.
const POINTS: &[(&str, &[usize], &str)] = &[
    ("received", &[1], "done"),
    ("begun", &[0], "uncertain"),
    ("launched", &[0, 1], "uncertain"),
    ("exited", &[1], "uncertain"),
    ("ended", &[1], "done"),
    ("answered", &[1], "done"),
];

#[test]
fn a_kill_at_any_step_of_a_call_neither_repeats_nor_loses_it() {
    run(async {
        for (point, runs, end) in POINTS {
            let gateway = Gateway::new().await;
            let node = Node::paired(&gateway).await;
            let line = format!("echo ran >> {}; echo result", node.trace().display());
            let mut process = node.start_with(&format!("node.call.{point}=kill"));
            let (mut link, _) = gateway.welcome(&node).await;
            link.call(id(1), shell(&line)).await;
            let status = process.ended().await;
            assert_eq!(status.code(), None, "{point}: {}", process.log());
            let process = node.start();
            let (mut link, calls) = gateway.welcome(&node).await;
            assert_eq!(calls.len(), usize::from(*point != "received"), "{point}");
            link.call(id(1), shell(&line)).await;
            let found = link.end_of(id(1)).await;
            assert_eq!(found["type"], *end, "{point}: {found}");
            if *end == "done" {
                assert_eq!(found["value"]["stdout"], "result\n");
            }
            let ran = node.traces().len();
            assert!(runs.contains(&ran), "{point}: it ran {ran} times");
            // The answer stays until it is released, and then the call is gone.
            drop(link);
            let (mut link, calls) = gateway.welcome(&node).await;
            assert_eq!(calls, [id(1)], "{point}");
            assert_eq!(link.end_of(id(1)).await, found, "{point}");
            link.send(&ToNode::Release { id: id(1) }).await;
            eventually("the release", async || {
                (node.journaled() == 0).then_some(())
            })
            .await;
            drop(process);
        }
    });
}

#[test]
fn a_program_whose_node_was_killed_is_ended_with_its_descendants_and_uncertain() {
    run(async {
        let (gateway, node, process, mut link) = linked(ALLOW).await;
        let (own, left) = (node.path().join("own"), node.path().join("left"));
        let line = format!(
            "(setsid sleep 4000 & echo $! > {}); echo $$ > {}; exec sleep 4000",
            left.display(),
            own.display()
        );
        link.call(id(1), shell(&line)).await;
        let pids = [pid_in(&own).await, pid_in(&left).await];
        process.kill().await;
        assert!(
            pids.iter().all(|pid| is_alive(*pid)),
            "they outlive the node"
        );
        // Killed again while it clears up.
        let mut process = node.start_with("node.call.recovered=kill");
        assert_eq!(process.ended().await.code(), None, "{}", process.log());
        let process = node.start();
        let (mut link, calls) = gateway.welcome(&node).await;
        assert_eq!(calls, [id(1)]);
        let end: Value = link.end_of(id(1)).await;
        assert_eq!(end["type"], "uncertain", "{end}");
        assert!(pids.iter().all(|pid| !is_alive(*pid)));
        assert!(is_alive(process.pid()));
    });
}

#[test]
fn a_kill_after_a_release_leaves_nothing() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        let mut process = node.start_with("node.call.released=kill");
        let (mut link, _) = gateway.welcome(&node).await;
        assert_eq!(link.does(id(1), shell("true")).await["type"], "done");
        link.send(&ToNode::Release { id: id(1) }).await;
        assert_eq!(process.ended().await.code(), None);
        let _process = node.start();
        let (_link, calls) = gateway.welcome(&node).await;
        assert!(calls.is_empty());
    });
}
