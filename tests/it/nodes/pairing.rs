//! How a node is admitted, refused and removed.

use rusqlite::Connection;
use serde_json::{Value, json};

use super::{connected, in_state, invited, place, redeem, with_mac};
use crate::harness::{
    Cut, Daemon, FakeLink, Faults, Link, NodeKey, eventually, kind_of, offer, run,
};

/// A request that waits: its connection and its code.
async fn waiting(daemon: &Daemon, key: &NodeKey, with: Value) -> (FakeLink, String) {
    let mut link = FakeLink::open(daemon.url(), "/pair", None).await.unwrap();
    link.ask(key, with).await;
    link.proof("/pair").await.unwrap();
    let frame = link.next_of("waiting").await;
    assert_eq!(frame["expiresInMs"], 300_000);
    (link, frame["code"].as_str().unwrap().to_owned())
}

async fn list(client: &Link) -> Value {
    client.call("nodes.list", json!({})).await
}

#[test]
fn g8_3_an_approved_node_gets_its_token_over_its_connection_and_can_be_called() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let key = NodeKey::new();
        let (mut link, code) = waiting(&daemon, &key, json!({ "name": "Ann's Mac" })).await;
        let shown = list(&client).await;
        assert_eq!(shown["nodes"], json!([]));
        assert_eq!(shown["waiting"][0]["code"], code, "{shown}");
        assert_eq!(shown["waiting"][0]["name"], "Ann-s-Mac");
        assert_eq!(shown["waiting"][0]["offered"], offer());

        let typed = code.to_lowercase().replace('-', " ");
        let params = json!({ "code": typed, "name": "mac", "commands": ["system.which"] });
        let node = client.call("nodes.approve", params).await;
        assert_eq!(
            (&node["name"], &node["state"]),
            (&json!("mac"), &json!("away"))
        );
        let paired = link.next_of("paired").await;
        assert_eq!(paired["approved"]["commands"], json!(["system.which"]));
        let token = paired["token"].as_str().unwrap();
        assert_eq!(list(&client).await["waiting"], json!([]));

        let mut link = connected(&daemon, &key, token, json!({})).await;
        in_state(&client, "mac", "connected").await;
        // What was not approved is denied: it is neither callable nor pending.
        let shown = client.call("nodes.get", json!({ "node": "mac" })).await;
        assert_eq!(shown["callable"]["commands"], json!(["system.which"]));
        assert_eq!(shown["pending"], json!({ "commands": [] }), "{shown}");
        let refused = client.refused("nodes.call", super::run_true("mac")).await;
        assert!(
            refused.message.contains("system.run may not be called"),
            "{refused}"
        );
        let call = json!({ "command": "system.which", "programs": ["git"] });
        let params = json!({ "node": "mac", "call": call });
        let (ended, ()) = tokio::join!(client.call("nodes.call", params), async {
            let frame = link.next_of("call").await;
            let end = json!({ "type": "done", "value": { "programs": { "git": "/bin/git" } } });
            link.send(&json!({ "type": "result", "id": frame["id"], "end": end }))
                .await;
            assert_eq!(link.next_of("release").await["id"], frame["id"]);
        });
        assert_eq!(ended["end"]["value"]["programs"]["git"], "/bin/git");
        assert_eq!(daemon.stop().await, 0);
        // The token is nowhere in the store or the log.
        assert!(!place.log().contains(token));
        let store = std::fs::read(place.database()).unwrap();
        assert!(
            !store
                .windows(token.len())
                .any(|part| part == token.as_bytes())
        );
    });
}

#[test]
fn a_refused_node_is_told_so_and_a_key_has_one_request() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let key = NodeKey::new();
        let (mut first, old) = waiting(&daemon, &key, json!({})).await;
        let (mut second, code) = waiting(&daemon, &key, json!({})).await;
        let (last, _) = first.end().await;
        assert_eq!(last.unwrap()["reason"], "replaced");
        assert_eq!(list(&client).await["waiting"].as_array().unwrap().len(), 1);
        let refused = client
            .refused("nodes.approve", json!({ "code": old }))
            .await;
        assert_eq!(kind_of(&refused), "not_found");
        client.call("nodes.refuse", json!({ "code": code })).await;
        let (last, cut) = second.end().await;
        assert_eq!(last.unwrap()["reason"], "refused");
        assert_eq!(cut, Cut::Closed(1008, "refused".to_owned()));
        assert_eq!(list(&client).await["waiting"], json!([]));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_setup_code_pairs_one_node_and_neither_a_replay_nor_a_thief_another() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let invite = async |name: &str| {
            let made = client.call("nodes.invite", json!({ "name": name })).await;
            made["code"].as_str().unwrap().to_owned()
        };
        let (owner, thief) = (NodeKey::new(), NodeKey::new());
        // Both use it in the same instant: one of them is paired.
        let code = invite("mac").await;
        let both = tokio::join!(
            redeem(&daemon, &owner, &code),
            redeem(&daemon, &thief, &code)
        );
        let paired = [&both.0, &both.1]
            .into_iter()
            .filter(|one| one.is_ok())
            .count();
        assert_eq!(paired, 1, "{both:?}");
        let refused = both.0.clone().err().or(both.1.clone().err());
        assert_eq!(refused.as_deref(), Some("invalid_code"));
        // A replay by another key is refused, that of the same key gets a new token.
        let third = redeem(&daemon, &NodeKey::new(), &code).await;
        assert_eq!(third, Err("invalid_code".to_owned()));
        let winner = if both.0.is_ok() { &owner } else { &thief };
        let first = both.0.or(both.1).unwrap();
        let second = redeem(&daemon, winner, &code).await.unwrap();
        assert_ne!(first, second);
        let old = FakeLink::open(daemon.url(), "/node", Some(&first)).await;
        assert_eq!(old.err(), Some(401), "the earlier token is invalid");
        connected(&daemon, winner, &second, json!({})).await;
        assert_eq!(list(&client).await["nodes"].as_array().unwrap().len(), 1);

        let expired = invite("later").await;
        assert_eq!(daemon.stop().await, 0);
        let db = Connection::open(place.database()).unwrap();
        db.execute(
            "UPDATE invites SET expires_at = 1 WHERE used_at IS NULL",
            [],
        )
        .unwrap();
        db.close().unwrap();
        let daemon = place.start().await;
        let late = redeem(&daemon, &NodeKey::new(), &expired).await;
        assert_eq!(late, Err("expired".to_owned()));
        // The paired node connects again without a person.
        connected(&daemon, winner, &second, json!({})).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g8_2_a_wider_offer_makes_one_pending_request_while_the_approved_part_works() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let (key, token) = invited(&daemon, &client, "mac").await;
        let wider = json!({ "commands": ["system.which", "system.run", "fs.list", "fs.read"],
            "roots": ["/data", "/srv"] });
        let mut link = connected(&daemon, &key, &token, json!({ "offer": wider })).await;
        let pending = eventually("it is pending", async || {
            let shown = client.call("nodes.get", json!({ "node": "mac" })).await;
            let pending = shown["pending"].clone();
            (pending["commands"] != json!([])).then_some(pending)
        })
        .await;
        assert_eq!(
            pending,
            json!({ "commands": ["fs.list"], "roots": ["/data"] })
        );
        let read = |path: &str| json!({ "node": "mac", "call": { "command": "fs.read", "path": path, "limit": 10 } });
        for path in ["/data/a", "/srv/../etc/shadow", "/srvother"] {
            let refused = client.refused("nodes.call", read(path)).await;
            assert!(refused.message.contains("approved folders"), "{refused}");
        }
        let (ended, ()) = tokio::join!(client.call("nodes.call", read("/srv/a")), async {
            let call = link.next_of("call").await;
            link.done(&call, "text").await;
        });
        assert_eq!(ended["end"]["type"], "done");
        let params = json!({ "node": "mac", "commands": ["system.nothing"] });
        let refused = client.refused("nodes.approve", params).await;
        assert_eq!(kind_of(&refused), "invalid_params");
        client.call("nodes.approve", json!({ "node": "mac" })).await;
        let approved = link.next_of("approved").await;
        assert_eq!(approved["approved"], wider);
        // A refusal of what is pending leaves the rest.
        let more = json!({ "commands": ["node.describe", "system.which"] });
        link.send(&json!({ "type": "offer", "offer": more })).await;
        eventually("more is pending", async || {
            let shown = client.call("nodes.get", json!({ "node": "mac" })).await;
            (shown["pending"]["commands"] == json!(["node.describe"])).then_some(())
        })
        .await;
        client.call("nodes.refuse", json!({ "node": "mac" })).await;
        let shown = client.call("nodes.get", json!({ "node": "mac" })).await;
        assert_eq!(shown["pending"], json!({ "commands": [] }));
        assert_eq!(shown["callable"]["commands"], json!(["system.which"]));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_removed_node_is_cut_off_at_once_in_the_middle_of_a_call() {
    run(async {
        let (place, daemon, client, mut link, (key, token)) = with_mac().await;
        let other = daemon.client().await;
        let calling = other.call("nodes.call", super::run_true("mac"));
        let (ended, last) = tokio::join!(calling, async {
            link.next_of("call").await;
            let renamed = json!({ "node": "mac", "name": "studio" });
            client.call("nodes.rename", renamed).await;
            client
                .call("nodes.remove", json!({ "node": "studio" }))
                .await;
            link.end().await
        });
        assert_eq!(ended["end"]["type"], "uncertain", "{ended}");
        assert_eq!(last.0.unwrap()["reason"], "removed");
        let refused = client
            .refused("nodes.get", json!({ "node": "studio" }))
            .await;
        assert_eq!(kind_of(&refused), "not_found");
        // Its old token is answered with the reason, also after a restart.
        assert_eq!(told(&daemon, &key, &token).await, "removed");
        assert_eq!(daemon.stop().await, 0);
        let daemon = place.start().await;
        assert_eq!(told(&daemon, &key, &token).await, "removed");
        assert_eq!(daemon.stop().await, 0);
    });
}

/// The reason by which a node is refused.
async fn told(daemon: &Daemon, key: &NodeKey, token: &str) -> String {
    let opened = FakeLink::open(daemon.url(), "/node", Some(token)).await;
    let mut link = opened.unwrap_or_else(|status| panic!("{status}"));
    link.hello(key, json!({})).await;
    let (last, _) = link.end().await;
    last.unwrap()["reason"].as_str().unwrap().to_owned()
}

/// Plays a pairing with a kill of the gateway at this point; the node comes again with its key.
async fn killed_at(point: &str) {
    let place = place();
    let orders = format!("{point}=kill@1");
    let started = place.start_with(&Faults::ordered(&orders)).await;
    let mut daemon = started.unwrap();
    let client = daemon.client().await;
    let key = NodeKey::new();
    let (mut link, code) = waiting(&daemon, &key, json!({})).await;
    // The kill comes in the middle of one of these.
    let _ = client
        .attempt("nodes.approve", &json!({ "code": code }))
        .await;
    let (_, cut) = link.end().await;
    assert_eq!(cut, Cut::Lost, "{point}");
    daemon.ended().await;

    let daemon = place.start().await;
    let client = daemon.client().await;
    let mut link = FakeLink::open(daemon.url(), "/pair", None).await.unwrap();
    link.ask(&key, json!({})).await;
    link.proof("/pair").await.unwrap();
    let mut frame = link.next().await.unwrap();
    if frame["type"] == "waiting" {
        // The approval was not stored: the node has a new code.
        assert_eq!(list(&client).await["nodes"], json!([]), "{point}");
        let code = frame["code"].clone();
        client.call("nodes.approve", json!({ "code": code })).await;
        frame = link.next().await.unwrap();
    }
    assert_eq!(frame["type"], "paired", "{point}: {frame}");
    assert_eq!(list(&client).await["nodes"].as_array().unwrap().len(), 1);
    connected(&daemon, &key, frame["token"].as_str().unwrap(), json!({})).await;
    assert_eq!(daemon.stop().await, 0);
}

#[test]
fn g8_1_a_kill_of_the_gateway_at_any_step_of_pairing_needs_no_new_approval_of_what_was_stored() {
    run(async {
        for point in [
            "store.pair_node.begin",
            "store.pair_node.applied",
            "store.pair_node.committed",
            "store.pair_node.answered",
            "node.admitted",
            "store.change_node.committed",
            "node.token_issued",
        ] {
            killed_at(point).await;
        }
    });
}
