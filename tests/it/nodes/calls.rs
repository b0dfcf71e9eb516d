//! Calls over links that break, and over restarts of the gateway.

use abide::clock::Clock;
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::{connected, in_state, invited, place, run_true, with_mac};
use crate::harness::{FakeLink, Faults, eventually, kind_of, result, run};
use crate::notify::{until_told, with_writer};

fn with_id(node: &str, id: &str) -> Value {
    let mut params = run_true(node);
    params["id"] = json!(id);
    params
}

const ID: &str = "01936f0e-0000-7000-8000-0000000000aa";

#[test]
fn a_call_is_sent_again_with_its_id_after_a_lost_link_and_its_answer_arrives_once() {
    run(async {
        let (place, daemon, client, mut link, (key, token)) = with_mac().await;
        let (ended, ()) = tokio::join!(client.call("nodes.call", with_id("mac", ID)), async {
            let first = link.next_of("call").await;
            assert_eq!(
                (&first["id"], &first["beginWithinMs"]),
                (&json!(ID), &json!(60_000))
            );
            // The link breaks before the node has answered.
            drop(link);
            let mut link = connected(&daemon, &key, &token, json!({ "calls": [ID] })).await;
            let again = link.next_of("call").await;
            assert_eq!(again["id"], ID);
            assert_eq!(again["call"], first["call"]);
            link.send(&result(ID, "once")).await;
        });
        assert_eq!(ended["end"]["value"]["stdout"], "once");

        // The answer is lost with the gateway: the node still has it.
        let mut link = connected(&daemon, &key, &token, json!({ "calls": [ID] })).await;
        daemon.kill().await;
        assert!(link.next().await.is_err());
        let daemon = place.start().await;
        let client = daemon.client().await;
        // The call comes before the node is back: it waits for it.
        let (ended, ()) = tokio::join!(client.call("nodes.call", with_id("mac", ID)), async {
            let mut link = connected(&daemon, &key, &token, json!({ "calls": [ID] })).await;
            assert_eq!(link.next_of("call").await["id"], ID);
            link.send(&result(ID, "once")).await;
        });
        assert_eq!(ended["end"]["value"]["stdout"], "once");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_kill_of_the_gateway_in_the_middle_of_a_call_leaves_it_to_the_node() {
    run(async {
        for point in ["node.call_sent", "node.call_ended"] {
            let place = place();
            let started = place
                .start_with(&Faults::ordered(&format!("{point}=kill@1")))
                .await;
            let daemon = started.unwrap();
            let client = daemon.client().await;
            let (key, token) = invited(&daemon, &client, "mac").await;
            let mut link = connected(&daemon, &key, &token, json!({})).await;
            let mut ran = 0;
            let params = with_id("mac", ID);
            let (answer, ()) = tokio::join!(client.attempt("nodes.call", &params), async {
                while let Ok(frame) = link.next().await {
                    if frame["type"] == "call" {
                        ran += 1;
                        link.done(&frame, "once").await;
                    }
                    assert_ne!(frame["type"], "release", "no caller has the answer");
                }
            });
            assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
            drop(daemon);
            let daemon = place.start().await;
            let client = daemon.client().await;
            let known = if ran > 0 { json!([ID]) } else { json!([]) };
            let mut link = connected(&daemon, &key, &token, json!({ "calls": known })).await;
            let (ended, ()) = tokio::join!(client.call("nodes.call", with_id("mac", ID)), async {
                let frame = link.next_of("call").await;
                link.send(&result(frame["id"].as_str().unwrap(), "once"))
                    .await;
            });
            assert_eq!(ended["end"]["value"]["stdout"], "once", "{point}");
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn the_late_end_of_an_old_connection_does_not_remove_the_newer_one() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let (key, token) = invited(&daemon, &client, "mac").await;
        let mut old = connected(&daemon, &key, &token, json!({})).await;
        let mut new = connected(&daemon, &key, &token, json!({})).await;
        let (last, _) = old.end().await;
        assert_eq!(last.unwrap()["reason"], "replaced");
        drop(old);
        let (ended, ()) = tokio::join!(client.call("nodes.call", run_true("mac")), async {
            let call = new.next_of("call").await;
            new.done(&call, "new").await;
        });
        assert_eq!(ended["end"]["value"]["stdout"], "new");
        in_state(&client, "mac", "connected").await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_client_that_leaves_cancels_its_call_and_its_result_is_released() {
    run(async {
        let (_place, daemon, _client, mut link, _) = with_mac().await;
        let leaving = daemon.client().await;
        let params = run_true("mac");
        let mut calling = Box::pin(leaving.attempt("nodes.call", &params));
        let call = tokio::select! {
            call = link.next_of("call") => call,
            ended = &mut calling => panic!("{ended:?}"),
        };
        drop(calling);
        drop(leaving);
        assert_eq!(link.next_of("cancel").await["id"], call["id"]);
        let end = json!({ "type": "failed", "reason": "cancelled", "message": "cancelled" });
        link.send(&json!({ "type": "result", "id": call["id"], "end": end }))
            .await;
        assert_eq!(link.next_of("release").await["id"], call["id"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_stop_of_the_gateway_leaves_the_call_to_the_node() {
    run(async {
        let (_place, daemon, client, mut link, _) = with_mac().await;
        let params = with_id("mac", ID);
        let stopping = async {
            link.next_of("call").await;
            let code = daemon.stop().await;
            let mut frames = Vec::new();
            while let Ok(frame) = link.next().await {
                frames.push(frame);
            }
            (code, frames)
        };
        let (_, (code, frames)) = tokio::join!(client.attempt("nodes.call", &params), stopping);
        assert_eq!(code, 0);
        assert_eq!(frames, Vec::<Value>::new(), "it is not cancelled");
    });
}

#[test]
fn a_question_of_a_node_is_answered_for_one_digest() {
    run(async {
        let (_place, daemon, client, mut link, _) = with_mac().await;
        let operator = daemon.client().await;
        let question = json!({ "program": "/bin/true", "argv": ["true"], "cwd": "/", "env": [],
            "digest": "d1" });
        let (ended, ()) = tokio::join!(client.call("nodes.call", with_id("mac", ID)), async {
            let call = link.next_of("call").await;
            link.send(&json!({ "type": "ask", "id": ID, "question": question }))
                .await;
            let asked = eventually("the question is shown", async || {
                let shown = operator.call("nodes.list", json!({})).await;
                shown["questions"].get(0).cloned()
            })
            .await;
            assert_eq!(
                (&asked["node"], &asked["question"]),
                (&json!("mac"), &question)
            );
            let answer = |digest: &str| json!({ "id": ID, "digest": digest, "decision": "allow" });
            let refused = operator.refused("nodes.answer", answer("d2")).await;
            assert_eq!(kind_of(&refused), "not_found");
            operator.call("nodes.answer", answer("d1")).await;
            let answered = link.next_of("answer").await;
            let expected = json!({ "type": "answer", "id": ID, "digest": "d1", "allow": true });
            assert_eq!(answered, expected);
            link.done(&call, "allowed").await;
        });
        assert_eq!(ended["end"]["value"]["stdout"], "allowed");
        let shown = operator.call("nodes.list", json!({})).await;
        assert_eq!(shown["questions"], json!([]));
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Takes 20 seconds: a link that carries nothing and is not closed is noticed by time alone.
#[test]
fn g8_9_a_link_that_is_cut_without_a_word_is_noticed_and_its_calls_fail_within_20_seconds() {
    run(async {
        let place = with_writer(place());
        let daemon = place.start().await;
        let client = daemon.client().await;
        let (key, token) = invited(&daemon, &client, "mac").await;
        // A proxy that stops forwarding, and closes nothing.
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", proxy.local_addr().unwrap());
        let gateway = daemon.url().strip_prefix("http://").unwrap().to_owned();
        let (cut, was_cut) = tokio::sync::oneshot::channel::<()>();
        let forwarding = tokio::spawn(async move {
            let (mut node, _) = proxy.accept().await.unwrap();
            let mut behind = TcpStream::connect(gateway).await.unwrap();
            tokio::select! {
                _ = copy_bidirectional(&mut node, &mut behind) => {}
                _ = was_cut => {}
            }
            (node, behind)
        });
        let mut link = FakeLink::open(&url, "/node", Some(&token)).await.unwrap();
        link.hello(&key, json!({})).await;
        link.next_of("welcome").await;
        let clock = Clock::system();
        let calling = client.call("nodes.call", run_true("mac"));
        let (ended, silent) = tokio::join!(calling, async {
            link.next_of("call").await;
            cut.send(()).unwrap();
            // Keeps both connections open.
            forwarding.await.unwrap()
        });
        let took = clock.monotonic().as_secs();
        assert_eq!(ended["end"]["type"], "uncertain", "{ended}");
        assert!((14..=22).contains(&took), "{took} s");
        let refused = client.refused("nodes.call", run_true("mac")).await;
        assert!(refused.message.contains("mac is away"), "{refused}");
        eventually("the event of its loss", async || {
            let shown = client.call("nodes.get", json!({ "node": "mac" })).await;
            (shown["state"] == "away").then_some(())
        })
        .await;
        let told = until_told(&place, "node", 1).await;
        assert_eq!(told[0][2], "node mac is gone in the middle of a call");
        drop(silent);
        // It is back.
        let _link = connected(&daemon, &key, &token, json!({})).await;
        in_state(&client, "mac", "connected").await;
        assert_eq!(daemon.stop().await, 0);
    });
}
