//! The allow-list decides, and asks: the operator of the gateway, or the person at the terminal.

use abide::kernel::node::{NodeCall, RunQuestion};
use abide::wire::node_link::{FromNode, ToNode};
use serde_json::Value;

use super::fixture::{ALLOW, Gateway, Link, Node, id, linked, runs, said};
use crate::harness::{Terminal, run};

const GATEWAY: &str = "default = \"ask\"\nask = \"gateway\"\n";

impl Link {
    /// The next question.
    async fn asked(&mut self) -> RunQuestion {
        loop {
            if let FromNode::Ask { question, .. } = self.next().await {
                return question;
            }
        }
    }

    async fn answer(&mut self, number: u128, digest: &str, allow: bool) {
        let (id, digest) = (id(number), digest.to_owned());
        self.send(&ToNode::Answer { id, digest, allow }).await;
    }
}

fn leaves_trace(node: &Node) -> NodeCall {
    let trace = node.trace();
    let line = format!("echo ran >> {}", trace.display());
    NodeCall::Run(runs(&["sh", "-c", &line]))
}

#[test]
fn the_list_is_read_anew_for_each_call_and_a_broken_one_denies_all() {
    run(async {
        let (_gateway, node, process, mut link) = linked(ALLOW).await;
        let rule = "[[rule]]\ndecision = \"DECISION\"\nargv = [\"printf\", \"**\"]\n";
        let rule = |decision: &str| rule.replace("DECISION", decision);
        for (number, (list, reason)) in [
            ("default = \"deny\"".to_owned(), Some("denied")),
            (format!("default = \"deny\"\n{}", rule("allow")), None),
            (
                format!("default = \"allow\"\n{}", rule("deny")),
                Some("denied"),
            ),
            ("default = \"allow\"".to_owned(), None),
            (
                "default = \"allow\"\nunknown = 1".to_owned(),
                Some("denied"),
            ),
        ]
        .into_iter()
        .enumerate()
        {
            node.allows(&list);
            let call = NodeCall::Run(runs(&["printf", "x"]));
            let end = link.does(id(number as u128 + 1), call).await;
            assert_eq!(end["reason"].as_str(), reason, "{list}: {end}");
        }
        assert!(
            process.log().contains("every call is denied"),
            "{}",
            process.log()
        );
        std::fs::remove_file(node.folder().join("allow.toml")).unwrap();
        let end = link
            .does(id(9), NodeCall::Run(runs(&["printf", "x"])))
            .await;
        assert_eq!(end["reason"], "denied", "{end}");
    });
}

#[test]
fn check_says_what_the_list_decides_and_by_which_rule() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        node.allows("default = \"ask\"\n[[rule]]\ndecision = \"allow\"\nargv = [\"printf\", \"x\"]\n[[rule]]\ndecision = \"deny\"\nargv = [\"touch\", \"**\"]\n");
        for (argv, code, says) in [
            (&["printf", "x"][..], 0, "rule 1"),
            (&["printf", "y"], 8, "no rule applies"),
            (&["env", "touch", "x"], 9, "rule 2"),
        ] {
            let words = [&["node", "allow", "check", "--"], argv].concat();
            let output = node.output(&words).await;
            assert_eq!(output.status.code(), Some(code), "{output:?}");
            let shown = String::from_utf8_lossy(&output.stdout);
            assert!(shown.contains(says), "{shown}");
        }
        let list = node.output(&["node", "allow"]).await;
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        assert!(list.contains(r#"["touch", "**"]"#), "{list}");
        node.allows("nonsense");
        let output = node.output(&["node", "allow"]).await;
        assert_eq!(output.status.code(), Some(78));
        assert!(said(&output).contains("line 1"), "{output:?}");
    });
}

#[test]
fn an_answer_counts_for_exactly_the_call_that_was_asked_about() {
    run(async {
        let (_gateway, node, _process, mut link) = linked(GATEWAY).await;
        link.call(id(1), leaves_trace(&node)).await;
        let first = link.asked().await;
        assert_eq!(first.argv[0], "sh");
        assert!(first.program.ends_with("/sh"));
        link.call(id(2), NodeCall::Run(runs(&["sh", "-c", "true"])))
            .await;
        let second = link.asked().await;
        assert_ne!(first.digest, second.digest);
        // The digest of another call, or for another id, or an unknown one.
        link.answer(1, &second.digest, true).await;
        link.answer(2, &first.digest, true).await;
        link.answer(3, &first.digest, true).await;
        link.answer(1, "", true).await;
        link.answer(2, &second.digest, false).await;
        let end = link.end_of(id(2)).await;
        assert_eq!(end["reason"], "denied", "{end}");
        assert!(node.traces().is_empty());
        link.answer(1, &first.digest, true).await;
        assert_eq!(link.end_of(id(1)).await["value"]["status"], 0);
        assert_eq!(node.traces(), ["ran"]);
        // Once is once.
        link.call(id(4), leaves_trace(&node)).await;
        assert_eq!(link.asked().await.digest, first.digest);
        link.send(&ToNode::Cancel { id: id(4) }).await;
        assert_eq!(link.end_of(id(4)).await["reason"], "cancelled");
    });
}

#[test]
fn a_question_is_asked_again_after_a_lost_link_and_after_a_restart() {
    run(async {
        let (gateway, node, process, mut link) = linked(GATEWAY).await;
        link.call(id(1), leaves_trace(&node)).await;
        let digest = link.asked().await.digest;
        drop(link);
        let (mut link, calls) = gateway.welcome(&node).await;
        assert!(calls.is_empty(), "it has not begun");
        assert_eq!(link.asked().await.digest, digest);
        process.kill().await;
        let _process = node.start();
        let (mut link, calls) = gateway.welcome(&node).await;
        assert!(calls.is_empty());
        link.call(id(1), leaves_trace(&node)).await;
        assert_eq!(link.asked().await.digest, digest);
        link.answer(1, &digest, true).await;
        assert_eq!(link.end_of(id(1)).await["value"]["status"], 0);
        assert_eq!(node.traces(), ["ran"]);
    });
}

#[test]
fn what_was_changed_after_it_was_approved_does_not_run() {
    run(async {
        let (_gateway, node, _process, mut link) = linked(GATEWAY).await;
        link.call(id(1), leaves_trace(&node)).await;
        let digest = link.asked().await.digest;
        node.allows("default = \"deny\"");
        link.answer(1, &digest, true).await;
        let end = link.end_of(id(1)).await;
        assert_eq!(end["reason"], "denied", "{end}");
        assert!(node.traces().is_empty());
    });
}

#[test]
fn the_person_at_the_terminal_is_asked() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        node.allows("default = \"ask\"\nask = \"here\"\n");
        let mut terminal = Terminal::start(node.command(&["node", "run"]));
        let (mut link, _) = gateway.welcome(&node).await;
        link.call(id(1), leaves_trace(&node)).await;
        let shown = terminal.until("[y/N]");
        assert!(shown.contains("echo ran"), "{shown}");
        terminal.types("y\r");
        assert_eq!(link.end_of(id(1)).await["value"]["status"], 0);
        link.call(id(2), leaves_trace(&node)).await;
        terminal.until("[y/N]");
        terminal.types("\r");
        assert_eq!(link.end_of(id(2)).await["reason"], "denied");
        // A withdrawn question cannot be answered.
        link.call(id(3), leaves_trace(&node)).await;
        terminal.until("[y/N]");
        link.send(&ToNode::Cancel { id: id(3) }).await;
        assert_eq!(link.end_of(id(3)).await["reason"], "cancelled");
        terminal.until("withdrawn");
        assert_eq!(node.traces(), ["ran"]);
    });
}

#[test]
fn without_a_terminal_the_list_says_who_is_asked() {
    run(async {
        let (_gateway, node, _process, mut link) = linked(ALLOW).await;
        node.allows("ask = \"here\"");
        let end: Value = link.does(id(1), leaves_trace(&node)).await;
        assert_eq!(end["reason"], "denied", "{end}");
        node.allows("ask = \"here_or_gateway\"");
        link.call(id(2), leaves_trace(&node)).await;
        let digest = link.asked().await.digest;
        link.answer(2, &digest, true).await;
        assert_eq!(link.end_of(id(2)).await["value"]["status"], 0);
    });
}
