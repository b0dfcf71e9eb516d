//! Many nodes at once.

use serde_json::json;

use super::{connected, invited, place};
use crate::harness::{eventually, run};

/// Resident memory of a process, in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}

/// Takes about ten seconds: 200 nodes are paired one after another.
#[test]
fn two_hundred_connected_nodes_take_less_than_40_mib() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let before = resident(daemon.pid());
        let mut links = Vec::new();
        for number in 0..200 {
            let (key, token) = invited(&daemon, &client, &format!("node-{number}")).await;
            let mut link = connected(&daemon, &key, &token, json!({})).await;
            // A link that answers no ping is lost after 15 s.
            links.push(tokio::spawn(
                async move { while link.next().await.is_ok() {} },
            ));
        }
        eventually("all are connected", async || {
            let shown = client.call("nodes.list", json!({})).await;
            let nodes = shown["nodes"].as_array().unwrap();
            let connected = nodes.iter().filter(|node| node["state"] == "connected");
            (connected.count() == 200).then_some(())
        })
        .await;
        let after = resident(daemon.pid());
        let grown = after.saturating_sub(before);
        assert!(grown < 40 * 1024, "{grown} KiB");
        links.iter().for_each(tokio::task::JoinHandle::abort);
        assert_eq!(daemon.stop().await, 0);
    });
}
