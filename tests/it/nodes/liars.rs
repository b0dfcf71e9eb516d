//! Nodes that lie, and strangers. The daemon is unharmed, and other nodes go on.

use serde_json::{Value, json};

use super::{connected, in_state, invited, place, run_true};
use crate::harness::{Cut, Daemon, FakeLink, Link, NodeKey, eventually, kind_of, result, run};

/// The daemon answers, and a call to another node succeeds.
async fn is_unharmed(daemon: &Daemon, client: &Link, other: &mut FakeLink) {
    let (ended, ()) = tokio::join!(client.call("nodes.call", run_true("other")), async {
        let call = other.next_of("call").await;
        other.done(&call, "fine").await;
    });
    assert_eq!(ended["end"]["value"]["stdout"], "fine");
    assert_eq!(daemon.get("/ready").unwrap().0, 200);
}

#[test]
fn what_a_malicious_node_sends_ends_its_own_link_alone() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let (honest, its_token) = invited(&daemon, &client, "other").await;
        let mut other = connected(&daemon, &honest, &its_token, json!({})).await;
        let (key, token) = invited(&daemon, &client, "liar").await;
        let link = async || connected(&daemon, &key, &token, json!({})).await;

        // A frame of 100 MB.
        let mut liar = link().await;
        liar.text("x".repeat(100 * 1024 * 1024)).await;
        let (_, cut) = liar.end().await;
        assert!(matches!(cut, Cut::Closed(1009, _) | Cut::Lost), "{cut:?}");
        is_unharmed(&daemon, &client, &mut other).await;

        // Frames that are none.
        for (text, code) in [
            ("{", 1007),
            ("[]", 1007),
            (r#"{"type":"approve"}"#, 1007),
            (r#"{"type":"result","id":"x"}"#, 1007),
            (
                r#"{"type":"offer","offer":{"commands":["system.format"]}}"#,
                1007,
            ),
            (
                r#"{"type":"offer","offer":{"commands":[],"roots":["etc"]}}"#,
                1008,
            ),
            (
                r#"{"type":"offer","offer":{"commands":[],"roots":["/srv/../etc"]}}"#,
                1008,
            ),
        ] {
            let mut liar = link().await;
            liar.text(text.to_owned()).await;
            let (_, cut) = liar.end().await;
            assert!(
                matches!(&cut, Cut::Closed(found, _) if *found == code),
                "{text}: {cut:?}"
            );
        }
        let mut liar = link().await;
        liar.binary(vec![1, 2, 3]).await;
        let (_, cut) = liar.end().await;
        assert!(matches!(cut, Cut::Closed(1003, _)), "{cut:?}");

        // A flood of frames.
        let mut liar = link().await;
        let id = "01936f0e-0000-7000-8000-0000000000bb";
        let flood = json!({ "type": "output", "id": id, "stream": "stdout", "text": "x" });
        for _ in 0..6000 {
            liar.send(&flood).await;
        }
        let (_, cut) = liar.end().await;
        assert!(matches!(cut, Cut::Closed(1008, _) | Cut::Lost), "{cut:?}");
        is_unharmed(&daemon, &client, &mut other).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_node_that_answers_for_the_call_of_another_is_ignored() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let (key, token) = invited(&daemon, &client, "mac").await;
        let mut mac = connected(&daemon, &key, &token, json!({})).await;
        let (key, token) = invited(&daemon, &client, "liar").await;
        let mut liar = connected(&daemon, &key, &token, json!({})).await;
        let (ended, ()) = tokio::join!(client.call("nodes.call", run_true("mac")), async {
            let call = mac.next_of("call").await;
            let id = call["id"].as_str().unwrap();
            liar.send(&result(id, "a lie")).await;
            let question = json!({ "program": "/bin/rm", "argv": ["rm"], "cwd": "/", "env": [],
                "digest": "lie" });
            liar.send(&json!({ "type": "ask", "id": id, "question": question }))
                .await;
            // The lie was read before the truth is sent.
            let operator = daemon.client().await;
            let asked = eventually("the question", async || {
                let shown = operator.call("nodes.list", json!({})).await;
                shown["questions"].get(0).cloned()
            })
            .await;
            // It is shown as a question of the node that asks.
            assert_eq!(asked["node"], "liar");
            mac.done(&call, "the truth").await;
        });
        assert_eq!(ended["end"]["value"]["stdout"], "the truth");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_stolen_token_without_the_key_and_wrong_versions_get_nothing() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let (key, token) = invited(&daemon, &client, "mac").await;
        let refused = async |key: &NodeKey, with: Value| {
            let opened = FakeLink::open(daemon.url(), "/node", Some(&token)).await;
            let mut link = opened.unwrap_or_else(|status| panic!("{status}"));
            link.hello(key, with).await;
            let (last, _) = link.end().await;
            last.unwrap()["reason"].as_str().unwrap().to_owned()
        };
        let thief = NodeKey::new();
        assert_eq!(refused(&thief, json!({})).await, "invalid");
        // A signature of another challenge, or for the other path.
        let other = FakeLink::open(daemon.url(), "/node", Some(&token)).await;
        let replayed = key.sign(&other.ok().unwrap().challenge.signed_bytes("/node"));
        assert_eq!(
            refused(&key, json!({ "signature": replayed })).await,
            "invalid"
        );
        assert_eq!(refused(&key, json!({ "protocol": 2 })).await, "protocol");
        for token in [None, Some("abide_node_00"), Some("")] {
            let opened = FakeLink::open(daemon.url(), "/node", token).await;
            assert_eq!(opened.err(), Some(401), "{token:?}");
        }
        // The token of a client is none of a node, and the other way round.
        let opened = FakeLink::open(daemon.url(), "/node", Some(daemon.token())).await;
        assert_eq!(opened.err(), Some(401));
        let as_client = abide::client::Client::connect(daemon.url(), Some(&token)).await;
        assert!(as_client.is_err());
        let shown = client.call("nodes.get", json!({ "node": "mac" })).await;
        assert_eq!(shown["state"], "away");
        connected(&daemon, &key, &token, json!({})).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn requests_to_be_paired_are_checked_and_limited_before_anything_is_known_of_the_peer() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let ask = async |with: Value| {
            let mut link = FakeLink::open(daemon.url(), "/pair", None).await.unwrap();
            link.ask(&NodeKey::new(), with).await;
            let (last, cut) = link.end().await;
            let reason = last.map(|last| last["reason"].clone()).unwrap_or_default();
            (reason, cut)
        };
        let other = NodeKey::new().public;
        assert_eq!(ask(json!({ "publicKey": other })).await.0, "invalid");
        assert_eq!(ask(json!({ "publicKey": "00" })).await.0, "invalid");
        assert_eq!(ask(json!({ "protocol": 7 })).await.0, "protocol");
        assert_eq!(
            ask(json!({ "invite": "ABCD-2345-ABCD-2345" })).await.0,
            "invalid_code"
        );
        let roots: Vec<String> = (0..100).map(|number| format!("/r{number}")).collect();
        let offer = json!({ "commands": [], "roots": roots });
        assert_eq!(ask(json!({ "offer": offer })).await.0, "invalid");
        let (_, cut) = ask(json!({ "name": "x".repeat(300_000) })).await;
        assert!(matches!(cut, Cut::Closed(1009, _) | Cut::Lost), "{cut:?}");

        // Four connections from one address wait; the next is refused, and clients go on.
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut link = FakeLink::open(daemon.url(), "/pair", None).await.unwrap();
            link.ask(&NodeKey::new(), json!({})).await;
            link.next_of("waiting").await;
            held.push(link);
        }
        let opened = FakeLink::open(daemon.url(), "/pair", None).await;
        assert_eq!(opened.err(), Some(503));
        let shown = client.call("nodes.list", json!({})).await;
        assert_eq!(shown["waiting"].as_array().unwrap().len(), 4);
        drop(held);
        eventually("a seat is free", async || {
            FakeLink::open(daemon.url(), "/pair", None)
                .await
                .ok()
                .map(drop)
        })
        .await;

        // Guesses of one program lock out none of the others on the machine.
        for _ in 0..30 {
            match FakeLink::open(daemon.url(), "/pair", None).await {
                Ok(mut link) => {
                    link.ask(&NodeKey::new(), json!({ "invite": "ABCD-2345-ABCD-2345" }))
                        .await;
                    link.end().await;
                }
                // The seats of those before are free soon.
                Err(status) => assert_eq!(status, 503),
            }
        }
        // The right token of a client passes, too.
        client.call("nodes.list", json!({})).await;
        daemon.client().await.call("gateway.ping", json!({})).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_name_or_an_id_of_no_node_is_not_found() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        for node in ["none", "01936f0e-0000-7000-8000-000000000001"] {
            for (method, params) in [
                ("nodes.get", json!({ "node": node })),
                ("nodes.approve", json!({ "node": node })),
                ("nodes.refuse", json!({ "node": node })),
                ("nodes.rename", json!({ "node": node, "name": "x" })),
                ("nodes.remove", json!({ "node": node })),
            ] {
                let refused = client.refused(method, params).await;
                assert_eq!(kind_of(&refused), "not_found", "{method}: {refused}");
            }
        }
        let refused = client.refused("nodes.call", run_true("none")).await;
        assert!(refused.message.contains("nothing was sent"), "{refused}");
        let (key, token) = invited(&daemon, &client, "mac").await;
        let _link = connected(&daemon, &key, &token, json!({})).await;
        in_state(&client, "mac", "connected").await;
        for name in ["", "a/b", "-x"] {
            let params = json!({ "node": "mac", "name": name });
            let refused = client.refused("nodes.rename", params).await;
            assert_eq!(kind_of(&refused), "invalid_params", "{name}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}
