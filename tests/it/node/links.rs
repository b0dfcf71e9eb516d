//! The link of a node: how it begins, what ends it for good, and what is tried again.

use std::fs;
use std::os::unix::net::UnixDatagram;

use abide::kernel::node::{NodeCommand, RefusalReason};
use abide::wire::node_link::{FromNode, ToNode, proof_bytes};
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::fixture::{ALLOW, Gateway, Node, id, is_alive, linked, pid_in, runs, shell};
use crate::harness::{TEST_TIMEOUT, run};
use abide::kernel::node::NodeCall;

#[test]
fn a_service_manager_is_told_how_the_links_are() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        let path = node.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let mut command = node.command(&["node", "run"]);
        command
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "2000000");
        let process = node.started(command);
        let _link = gateway.welcome(&node).await;
        let (socket, told) = tokio::task::spawn_blocking(move || {
            let mut told = String::new();
            let mut bytes = [0; 4096];
            while !["READY=1", ": connected", "WATCHDOG=1"]
                .iter()
                .all(|part| told.contains(part))
            {
                let length = socket.recv(&mut bytes).unwrap();
                told.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
                told.push('\n');
            }
            (socket, told)
        })
        .await
        .unwrap();
        assert!(told.contains("connecting"), "{told}");
        assert_eq!(process.stop().await, Some(0));
        let mut bytes = [0; 4096];
        socket.set_nonblocking(true).unwrap();
        let mut last = String::new();
        while let Ok(length) = socket.recv(&mut bytes) {
            last.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
        }
        assert!(last.contains("STOPPING=1"), "{last}");
    });
}

#[test]
fn a_refusal_ends_the_node_without_another_attempt() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        for (reason, says) in [
            (RefusalReason::Removed, "--again"),
            (RefusalReason::Replaced, "another process"),
            (RefusalReason::Protocol, "too old"),
        ] {
            let mut process = node.start();
            let (mut link, _) = gateway.welcome(&node).await;
            let message = "it is too old".to_owned();
            link.send(&ToNode::Refused { reason, message }).await;
            let status = process.ended().await;
            assert_eq!(status.code(), Some(9), "{}", process.log());
            assert!(process.log().contains(says), "{}", process.log());
        }
        // Before it was welcomed.
        let mut process = node.start();
        let mut link = gateway.accept().await;
        let _: FromNode = link.next().await;
        let (reason, message) = (RefusalReason::Invalid, "no".to_owned());
        link.send(&ToNode::Refused { reason, message }).await;
        assert_eq!(process.ended().await.code(), Some(9));
        // launchd cannot tell a refusal from a fault, so it gets no exit code.
        let mut command = node.command(&["node", "run"]);
        command.env("ABIDE_SUPERVISOR", "launchd");
        let mut process = node.started(command);
        let (mut link, _) = gateway.welcome(&node).await;
        let (reason, message) = (RefusalReason::Removed, "no".to_owned());
        link.send(&ToNode::Refused { reason, message }).await;
        assert_eq!(process.ended().await.code(), Some(0));
        // A token that is not accepted.
        let mut process = node.start();
        let mut stream = gateway.tcp().await;
        let mut request = [0; 64];
        stream.read_exact(&mut request).await.unwrap();
        let answer = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        assert_eq!(process.ended().await.code(), Some(11), "{}", process.log());
    });
}

#[test]
fn a_removed_node_ends_its_programs() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        let mut process = node.start();
        let (mut link, _) = gateway.welcome(&node).await;
        let file = node.path().join("pid");
        let line = format!("echo $$ > {}; exec sleep 4000", file.display());
        link.call(id(1), shell(&line)).await;
        let pid = pid_in(&file).await;
        let (reason, message) = (RefusalReason::Removed, "removed".to_owned());
        link.send(&ToNode::Refused { reason, message }).await;
        assert_eq!(process.ended().await.code(), Some(9));
        assert!(!is_alive(pid));
    });
}

#[test]
fn a_lost_link_is_made_again_whatever_has_ended_it() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        let process = node.start();
        drop(gateway.tcp().await);
        let mut stream = gateway.tcp().await;
        let answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        drop(stream);
        drop(gateway.accept().await);
        let (mut link, _) = gateway.welcome(&node).await;
        link.send(&"no frame").await;
        let (mut link, _) = gateway.welcome(&node).await;
        let (reason, message) = (RefusalReason::Busy, "full".to_owned());
        link.send(&ToNode::Refused { reason, message }).await;
        let (mut link, _) = gateway.welcome(&node).await;
        let end = link.does(id(1), NodeCall::Describe {}).await;
        assert_eq!(end["type"], "done");
        assert_eq!(process.stop().await, Some(0));
    });
}

#[test]
fn a_gateway_that_falls_silent_is_left() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        let _process = node.start_with("node.silence=give:400");
        let link = gateway.welcome(&node).await;
        // This link stays open, and nothing is read from it or sent over it.
        let (mut second, _) = gateway.welcome(&node).await;
        drop(link);
        let end = second.does(id(1), NodeCall::Describe {}).await;
        assert_eq!(end["type"], "done");
    });
}

#[test]
fn a_gateway_that_does_not_prove_its_key_is_left_for_good() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        let mut process = node.start();
        let mut link = gateway.accept().await;
        let hello: FromNode = link.next().await;
        let FromNode::Hello { nonce, .. } = hello else {
            panic!("{hello:?}");
        };
        let signature = gateway.sign(&proof_bytes("/pair", &nonce));
        link.send(&ToNode::Proof { signature }).await;
        assert_eq!(process.ended().await.code(), Some(11), "{}", process.log());
    });
}

#[test]
fn one_node_serves_several_gateways_and_one_that_refuses_ends_no_other() {
    run(async {
        let gateway = Gateway::new().await;
        let mut other = Gateway::new().await;
        other.id = "the-other-gateway".to_owned();
        let node = Node::paired(&gateway).await;
        let url = other.url();
        let pairing = node.pairing(&other, &[]);
        let (mut link, request) = other.request().await;
        link.send(&super::fixture::paired(&request)).await;
        assert!(
            super::fixture::ended(pairing).await.status.success(),
            "{url}"
        );
        let mut keys = Vec::new();
        for entry in fs::read_dir(node.path().join(".config/abide/node")).unwrap() {
            keys.push(fs::read(entry.unwrap().path().join("key")).unwrap());
        }
        assert_eq!(keys.len(), 2);
        assert_ne!(keys[0], keys[1]);
        let mut process = node.start();
        // Both links are proved with their own keys.
        let mut first = gateway.accept().await;
        let mut second = other.accept().await;
        let (reason, message) = (RefusalReason::Removed, "removed".to_owned());
        let _: FromNode = second.next().await;
        second
            .send(&ToNode::Refused {
                reason,
                message: message.clone(),
            })
            .await;
        assert!(second.try_next::<Value>().await.is_none());
        let hello: FromNode = first.next().await;
        let FromNode::Hello { nonce, offer, .. } = hello else {
            panic!("{hello:?}");
        };
        let signature = gateway.sign(&proof_bytes("/node", &nonce));
        first.send(&ToNode::Proof { signature }).await;
        let (name, approved) = ("node".to_owned(), offer);
        first.send(&ToNode::Welcome { name, approved }).await;
        let end = first.does(id(1), NodeCall::Describe {}).await;
        assert_eq!(end["type"], "done");
        first.send(&ToNode::Refused { reason, message }).await;
        assert_eq!(process.ended().await.code(), Some(9));
    });
}

#[test]
fn a_second_process_for_the_same_gateway_is_refused() {
    run(async {
        let (_gateway, node, process, mut link) = linked(ALLOW).await;
        let second = node.output(&["node", "run"]).await;
        assert_eq!(second.status.code(), Some(75), "{second:?}");
        let name = node.folder();
        let name = name.file_name().unwrap().to_str().unwrap();
        let forget = node.output(&["node", "forget", name]).await;
        assert_eq!(forget.status.code(), Some(75), "{forget:?}");
        let end = link.does(id(1), NodeCall::Describe {}).await;
        assert_eq!(end["type"], "done");
        drop(process);
        assert!(
            node.output(&["node", "forget", name])
                .await
                .status
                .success()
        );
    });
}

#[test]
fn changed_settings_change_the_offer_and_skills_are_published_if_approved() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        let skill = node.path().join("skills/one");
        fs::create_dir_all(&skill).unwrap();
        fs::write(skill.join("SKILL.md"), "---\nname: one\n---\n").unwrap();
        let _process = node.start();
        let (mut link, _) = gateway.welcome(&node).await;
        let skills = node.path().join("skills");
        node.offers(&format!(
            "run = false\nroots = [{:?}]\nskills = {skills:?}\n",
            node.path()
        ));
        let FromNode::Offer { offer } = link.next().await else {
            panic!("no offer");
        };
        assert!(offer.skills && !offer.commands.contains(&NodeCommand::Run));
        assert_eq!(offer.roots.len(), 1);
        link.send(&ToNode::Approved { approved: offer }).await;
        let FromNode::Skills { skills } = link.next().await else {
            panic!("no skills");
        };
        assert_eq!(skills[0].folder, "one");
        let end = link.does(id(1), NodeCall::Run(runs(&["true"]))).await;
        assert_eq!(end["reason"], "denied", "{end}");
        // Settings that are not valid deny, and the link stays.
        node.offers("roots = 5");
        let end = link.does(id(2), NodeCall::Describe {}).await;
        assert_eq!(end["reason"], "denied", "{end}");
    });
}

#[test]
fn a_stop_ends_programs_and_their_results_arrive() {
    run(async {
        let (gateway, node, process, mut link) = linked(ALLOW).await;
        let file = node.path().join("pid");
        let line = format!("sleep 4000 & echo $! > {}; wait", file.display());
        link.call(id(1), shell(&line)).await;
        let pid = pid_in(&file).await;
        process.signal(Signal::TERM);
        let end = link.end_of(id(1)).await;
        assert_eq!(end["value"]["stopped"], "stopping", "{end}");
        assert_eq!(process.stop().await, Some(0));
        assert!(!is_alive(pid));
        // It was not released, so it is still answered.
        let _process = node.start();
        let (mut link, calls) = gateway.welcome(&node).await;
        assert_eq!(calls, [id(1)]);
        assert_eq!(link.end_of(id(1)).await["value"]["stopped"], "stopping");
    });
}
