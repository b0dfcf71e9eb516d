//! Notifications about nodes that need a person.

use serde_json::json;

use super::{connected, invited, place, run_true};
use crate::harness::{FakeLink, NodeKey, run};
use crate::notify::{until_told, with_writer};

#[test]
fn a_node_that_waits_or_asks_about_a_program_is_notified_once() {
    run(async {
        let place = with_writer(place());
        let daemon = place.start().await;
        let client = daemon.client().await;
        let waiting = NodeKey::new();
        let mut link = FakeLink::open(daemon.url(), "/pair", None).await.unwrap();
        link.ask(&waiting, json!({ "name": "build" })).await;
        link.proof("/pair").await.unwrap();
        let code = link.next_of("waiting").await["code"].clone();
        let told = until_told(&place, "node", 1).await;
        assert_eq!(told[0][2], "node build waits to be paired");
        let facts: serde_json::Value = serde_json::from_str(&told[0][5]).unwrap();
        assert_eq!(facts["id"], code);
        let text = facts["text"].as_str().unwrap();
        let code = code.as_str().unwrap();
        let says = format!("build shows the code {code}: abide nodes approve {code}");
        assert_eq!(text, says);

        let (key, token) = invited(&daemon, &client, "mac").await;
        let mut link = connected(&daemon, &key, &token, json!({})).await;
        let operator = daemon.client().await;
        let question = json!({ "program": "/bin/true", "argv": ["true"], "cwd": "/", "env": [],
            "digest": "d1" });
        let (_, told) = tokio::join!(client.call("nodes.call", run_true("mac")), async {
            let call = link.next_of("call").await;
            let ask = json!({ "type": "ask", "id": call["id"], "question": question });
            link.send(&ask).await;
            // Repeated by the node, and not notified again.
            link.send(&ask).await;
            let told = until_told(&place, "node", 2).await;
            let answer = json!({ "id": call["id"], "digest": "d1", "decision": "allow" });
            operator.call("nodes.answer", answer).await;
            link.done(&call, "").await;
            told
        });
        assert_eq!(told[1][2], "node mac asks about a program");
        assert_eq!(daemon.stop().await, 0);
        until_told(&place, "node", 2).await;
    });
}
