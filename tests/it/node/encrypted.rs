//! A real node and a real gateway over TLS, with a certificate that no authority has signed.

use std::fs;

use super::fixture::{Node, said};
use super::paired::{at_fixed_address, in_state, url};
use crate::harness::run;
use crate::tls::{certify, encrypted, in_force, now};

#[test]
fn a_node_works_over_tls_and_refuses_another_certificate_with_both_fingerprints() {
    run(async {
        let (place, first) = encrypted();
        let place = at_fixed_address(place);
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert!(url(&daemon).starts_with("wss://"));
        let node = Node::invited(&daemon, &client).await;
        let pinned = fs::read_to_string(node.folder().join("gateway.toml")).unwrap();
        assert!(pinned.contains(&first.to_string()), "{pinned}");
        let mut process = node.connected(&client, "").await;
        let answer = client.call("nodes.call", node.traced("echo out")).await;
        assert_eq!(answer["end"]["value"]["stdout"], "out\n", "{answer}");
        // The same certificate over a restart of the gateway.
        drop(client);
        daemon.kill().await;
        let daemon = place.start().await;
        in_state(&daemon.client().await, "mac", "connected").await;

        let second = certify(&place, 90, now());
        in_force(&place, second).await;
        let address = url(&daemon);
        // The open link goes on until it is lost.
        daemon.kill().await;
        let daemon = place.start().await;
        assert_eq!(process.ended().await.code(), Some(11), "{}", process.log());
        let again = ["node", "pair", "--again", "--gateway", &address];
        let again = node.output(&again).await;
        assert_eq!(again.status.code(), Some(11), "{again:?}");
        for text in [process.log(), said(&again)] {
            for print in [first, second] {
                assert!(text.contains(&print.to_string()), "{print}: {text}");
            }
        }
        assert_eq!(node.traces(), ["ran"]);
        assert_eq!(daemon.stop().await, 0);
    });
}
