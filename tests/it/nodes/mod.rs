//! Paired nodes from the gateway's side: a real daemon, and nodes that are played by the tests where
//! they lie or lose frames, or real ones.

mod agents;
mod calls;
mod command_line;
mod liars;
mod many;
mod notified;
mod on_node;
mod pairing;
mod skills;

use serde_json::{Value, json};

use crate::harness::{Daemon, FakeLink, Link, NodeKey, Place, Script};
use crate::node::paired::in_state;

fn place() -> Place {
    Place::new(Script::new())
}

/// A node that is paired by an invitation: its key and its token.
async fn invited(daemon: &Daemon, client: &Link, name: &str) -> (NodeKey, String) {
    let invited = client.call("nodes.invite", json!({ "name": name })).await;
    let key = NodeKey::new();
    let token = redeem(daemon, &key, invited["code"].as_str().unwrap()).await;
    (key, token.expect("the code pairs"))
}

/// A daemon with a client and the played node `mac`, which is connected; its key and token.
async fn with_mac() -> (Place, Daemon, Link, FakeLink, (NodeKey, String)) {
    let place = place();
    let daemon = place.start().await;
    let client = daemon.client().await;
    let (key, token) = invited(&daemon, &client, "mac").await;
    let link = connected(&daemon, &key, &token, json!({})).await;
    (place, daemon, client, link, (key, token))
}

/// Uses a setup code; `Err` is the reason of a refusal.
async fn redeem(daemon: &Daemon, key: &NodeKey, code: &str) -> Result<String, String> {
    let mut link = FakeLink::open(daemon.url(), "/pair", None).await.unwrap();
    link.ask(key, json!({ "invite": code })).await;
    link.proof("/pair").await.unwrap();
    let reply = link.next().await.unwrap();
    match reply["type"].as_str().unwrap() {
        "paired" => Ok(reply["token"].as_str().unwrap().to_owned()),
        "refused" => Err(reply["reason"].as_str().unwrap().to_owned()),
        _ => panic!("{reply}"),
    }
}

/// Connects a paired node; returns once the gateway has welcomed it.
async fn connected(daemon: &Daemon, key: &NodeKey, token: &str, with: Value) -> FakeLink {
    let opened = FakeLink::open(daemon.url(), "/node", Some(token)).await;
    let mut link = opened.expect("the token is valid");
    link.hello(key, with).await;
    link.proof("/node").await.unwrap();
    let welcome = link.next().await.unwrap();
    assert_eq!(welcome["type"], "welcome", "{welcome}");
    link
}

/// Parameters of a call that runs a program.
fn run_true(node: &str) -> Value {
    json!({ "node": node, "call": { "command": "system.run", "argv": ["true"] } })
}
