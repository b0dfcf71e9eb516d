//! Pairing, from the side of the node.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use abide::kernel::node::{NodeCommand, RefusalReason};
use abide::wire::node_link::{PairReply, PairRequest};
use serde_json::Value;

use super::fixture::{Gateway, Node, ended, paired, said};
use crate::harness::run;

fn waiting(code: &str) -> PairReply {
    PairReply::Waiting {
        code: code.to_owned(),
        expires_in_ms: 300_000,
    }
}

#[test]
fn a_node_shows_its_code_and_is_paired_over_the_same_connection() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::new();
        let work = node.path().join("work");
        let root = work.to_str().unwrap();
        let pairing = node.pairing(&gateway, &["--name", "builder", "--root", root]);
        let (mut link, request) = gateway.request().await;
        assert_eq!(request.name, "builder");
        assert_eq!(request.invite, None);
        assert_eq!(request.offer.commands.len(), NodeCommand::ALL.len());
        assert_eq!(request.offer.roots.iter().collect::<Vec<_>>(), [root]);
        link.send(&waiting("ABCD-EFGH")).await;
        link.send(&paired(&request)).await;
        let output = ended(pairing).await;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned() + &said(&output);
        for part in ["ABCD-EFGH", "SHA256:", "system.run", root, "builder"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        for (name, mode) in [
            ("", 0o700),
            ("key", 0o600),
            ("token", 0o600),
            ("allow.toml", 0o600),
        ] {
            let found = fs::metadata(node.folder().join(name))
                .unwrap()
                .permissions();
            assert_eq!(found.mode() & 0o777, mode, "{name}");
        }
        let list = node.output(&["node", "list", "--json"]).await;
        let list: Value = serde_json::from_slice(&list.stdout).unwrap();
        assert_eq!(list["gateways"][0]["state"], "paired");
        assert_eq!(list["gateways"][0]["node"], "builder");
        let name = list["gateways"][0]["name"].as_str().unwrap().to_owned();
        let forgotten = node.output(&["node", "forget", &name]).await;
        assert!(forgotten.status.success(), "{forgotten:?}");
        let list = node.output(&["node", "list"]).await;
        assert!(said(&list).contains("not paired"), "{list:?}");
    });
}

#[test]
fn what_is_not_offered_is_not_in_the_request_and_a_setup_code_is() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::new();
        let pairing = node.pairing(&gateway, &["--no-run", "--code", "SETUP-1", "--json"]);
        let (mut link, request) = gateway.request().await;
        assert_eq!(request.invite.as_deref(), Some("SETUP-1"));
        let commands: Vec<_> = request.offer.commands.iter().copied().collect();
        assert_eq!(commands, [NodeCommand::Which, NodeCommand::Describe]);
        link.send(&paired(&request)).await;
        let output = ended(pairing).await;
        let line: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(line["paired"]["id"], "the-node");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("token-of"));
    });
}

#[test]
fn a_refusal_ends_the_request_and_leaves_nothing() {
    run(async {
        let gateway = Gateway::new().await;
        for reason in [
            RefusalReason::Refused,
            RefusalReason::Expired,
            RefusalReason::InvalidCode,
        ] {
            let node = Node::new();
            let pairing = node.pairing(&gateway, &["--json"]);
            let (mut link, _) = gateway.request().await;
            let message = "the operator's own words".to_owned();
            link.send(&PairReply::Refused { reason, message }).await;
            let output = ended(pairing).await;
            assert_eq!(output.status.code(), Some(9), "{output:?}");
            let error: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(error["error"]["kind"], reason.as_str());
            assert_eq!(error["error"]["message"], "the operator's own words");
            let left = fs::read_dir(node.path().join(".config/abide/node")).unwrap();
            assert_eq!(left.count(), 0);
        }
    });
}

#[test]
fn a_connection_that_is_lost_while_waiting_is_made_again_with_the_same_key() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::new();
        let pairing = node.pairing(&gateway, &[]);
        let (mut link, first) = gateway.request().await;
        link.send(&waiting("ABCD-EFGH")).await;
        drop(link);
        // It may also be lost before anything was said.
        drop(gateway.tcp().await);
        let (mut link, second) = gateway.request().await;
        assert_eq!(first.public_key, second.public_key);
        let message = "full".to_owned();
        let reason = RefusalReason::Busy;
        link.send(&PairReply::Refused { reason, message }).await;
        let (mut link, third) = gateway.request().await;
        assert_eq!(first.public_key, third.public_key);
        link.send(&paired(&third)).await;
        assert!(ended(pairing).await.status.success());
    });
}

#[test]
fn a_gateway_with_another_key_is_refused_with_both_fingerprints() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        let address = gateway.address();
        let list = node.output(&["node", "list", "--json"]).await;
        let list: Value = serde_json::from_slice(&list.stdout).unwrap();
        let known = list["gateways"][0]["key"].as_str().unwrap().to_owned();
        drop(gateway);
        let other = Gateway::at(&address).await;
        for words in [
            &["node", "pair", "--again", "--gateway", &other.url()][..],
            &["node", "pair", "--gateway", &other.url()],
            &["node", "run"],
        ] {
            let (output, link) = tokio::join!(node.output(words), other.accept());
            assert_eq!(output.status.code(), Some(11), "{output:?}");
            let said = said(&output);
            assert!(said.contains(&known), "{known}: {said}");
            assert_eq!(said.matches("SHA256:").count() % 2, 0, "{said}");
            // It has sent neither a request nor its proof.
            let mut link = link;
            assert!(link.try_next::<Value>().await.is_none());
        }
        assert!(node.folder().join("token").exists(), "what is stored stays");
    });
}

#[test]
fn a_gateway_that_does_not_prove_its_key_admits_no_node() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::new();
        for proves in [false, true] {
            let pairing = node.pairing(&gateway, &[]);
            let mut link = gateway.accept().await;
            let request: PairRequest = link.next().await;
            if proves {
                let signature = gateway.sign(b"something else");
                link.send(&PairReply::Proof { signature }).await;
            } else {
                link.send(&paired(&request)).await;
            }
            let output = ended(pairing).await;
            assert_eq!(output.status.code(), Some(11), "{output:?}");
            assert!(!node.folder().join("token").exists());
        }
    });
}

#[test]
fn pairing_again_says_so_and_keeps_key_and_allow_list() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        let key = fs::read(node.folder().join("key")).unwrap();
        let url = gateway.url();
        let words = ["node", "pair", "--gateway", &url];
        let (output, _link) = tokio::join!(node.output(&words), gateway.accept());
        assert_eq!(output.status.code(), Some(9), "{output:?}");
        assert!(said(&output).contains("--again"), "{output:?}");
        let work = node.path().join("work");
        node.pair(&gateway, &["--again", "--root", work.to_str().unwrap()])
            .await;
        assert_eq!(fs::read(node.folder().join("key")).unwrap(), key);
        let allow = fs::read_to_string(node.folder().join("allow.toml")).unwrap();
        assert_eq!(allow, "default = \"allow\"\n");
        let settings = fs::read_to_string(node.folder().join("node.toml")).unwrap();
        assert!(settings.contains(work.to_str().unwrap()), "{settings}");
        let offers_programs = || {
            let settings = fs::read_to_string(node.folder().join("node.toml")).unwrap();
            settings.contains("run = true")
        };
        // What was taken back stays so until it is offered by name.
        for (flags, is_offered) in [
            (&["--again", "--no-run"][..], false),
            (&["--again"], false),
            (&["--again", "--run"], true),
            (&["--again"], true),
        ] {
            node.pair(&gateway, flags).await;
            assert_eq!(offers_programs(), is_offered, "{flags:?}");
        }
    });
}

#[test]
fn a_kill_at_any_step_of_pairing_leaves_a_node_that_can_be_paired() {
    run(async {
        for point in [
            "key_stored",
            "requested",
            "admitted",
            "pinned",
            "token_stored",
        ] {
            let gateway = Gateway::new().await;
            let node = Node::new();
            let url = gateway.url();
            let mut command = node.command(&["node", "pair", "--gateway", &url]);
            command.env("ABIDE_FAILPOINTS", format!("node.pair.{point}=kill"));
            let mut pairing = node.started(command);
            let mut first = None;
            if point == "key_stored" {
                let mut link = gateway.accept().await;
                assert!(link.try_next::<Value>().await.is_none());
            } else if point == "requested" {
                let mut link = gateway.accept().await;
                let request: PairRequest = link.next().await;
                first = Some(request.public_key);
            } else {
                let (mut link, request) = gateway.request().await;
                first = Some(request.public_key.clone());
                link.send(&paired(&request)).await;
                pairing.ended().await;
            }
            let status = pairing.ended().await;
            assert_eq!(status.code(), None, "{point}: {}", pairing.log());
            if point == "token_stored" {
                let process = node.start();
                gateway.welcome(&node).await;
                drop(process);
                continue;
            }
            let again = node.pairing(&gateway, &[]);
            let (mut link, request) = gateway.request().await;
            let first = first.unwrap_or_else(|| request.public_key.clone());
            assert_eq!(request.public_key, first, "{point}");
            link.send(&paired(&request)).await;
            let output = ended(again).await;
            assert!(output.status.success(), "{point}: {output:?}");
            let process = node.start();
            gateway.welcome(&node).await;
            drop(process);
        }
    });
}

#[test]
fn an_address_that_makes_no_sense_or_is_open_to_others_is_refused() {
    run(async {
        let node = Node::new();
        for (url, code, says) in [
            ("ws://192.0.2.1:7777", 2, "--insecure"),
            ("ftp://127.0.0.1", 78, "ws://"),
        ] {
            let output = node.output(&["node", "pair", "--gateway", url]).await;
            assert_eq!(output.status.code(), Some(code), "{output:?}");
            assert!(said(&output).contains(says), "{output:?}");
        }
        let output = node.output(&["node", "run"]).await;
        assert_eq!(output.status.code(), Some(78), "{output:?}");
    });
}
