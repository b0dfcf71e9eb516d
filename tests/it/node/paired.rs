//! A real node that is paired with a real gateway.

use serde_json::{Value, json};

use super::fixture::{ALLOW, Node, NodeProcess};
use crate::harness::{Daemon, Link, Place, Script, eventually};

/// The id of a call.
pub(crate) const ID: &str = "01936f0e-0000-7000-8000-0000000000c1";

/// A gateway without agents of its own.
pub(crate) fn gateway() -> Place {
    Place::new(Script::new())
}

/// The gateway has the same address after each start, so that its nodes come back.
pub(crate) fn at_fixed_address(place: Place) -> Place {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    place.with("gateway.listen", &format!("\"{address}\""))
}

/// The address at which nodes pair.
pub(crate) fn url(daemon: &Daemon) -> String {
    daemon.url().replacen("http", "ws", 1)
}

impl Node {
    /// A new node that is paired by an invitation; it may run everything.
    pub(crate) async fn invited(daemon: &Daemon, client: &Link) -> Node {
        let node = Node::new();
        node.join(daemon, client).await;
        node
    }

    /// Pairs the node by an invitation; it may run everything.
    pub(crate) async fn join(&self, daemon: &Daemon, client: &Link) {
        let invited = json!({ "name": self.name });
        let invited = client.call("nodes.invite", invited).await;
        let code = invited["code"].as_str().unwrap();
        let words = ["node", "pair", "--gateway", &url(daemon), "--code", code];
        let paired = self.output(&words).await;
        assert!(paired.status.success(), "{paired:?}");
        self.allows(ALLOW);
    }

    /// Starts the node and waits until the gateway has it.
    pub(crate) async fn connected(&self, client: &Link, orders: &str) -> NodeProcess {
        let process = self.start_with(orders);
        in_state(client, self.name, "connected").await;
        process
    }

    /// A call that leaves a trace on the node.
    pub(crate) fn traced(&self, line: &str) -> Value {
        let line = format!("echo ran >> {}; {line}", self.trace().display());
        let argv = ["sh", "-c", &line];
        let call =
            json!({ "command": "system.run", "argv": argv, "timeoutMs": 600_000, "keep": 65_536 });
        json!({ "node": self.name, "id": ID, "call": call })
    }

    /// Waits until the node keeps no call any more: each was released.
    pub(crate) async fn has_released_all(&self) {
        eventually("the node has released its calls", async || {
            (self.journaled() == 0).then_some(())
        })
        .await;
    }
}

/// Waits until the node is in this state.
pub(crate) async fn in_state(client: &Link, node: &str, state: &str) {
    eventually(&format!("{node} is {state}"), async || {
        let shown = client.call("nodes.get", json!({ "node": node })).await;
        (shown["state"] == state).then_some(())
    })
    .await;
}
