//! The agents that a plan may delegate to.

use serde_json::json;

use super::{answers_at_once, boss, delegates, turn};
use crate::harness::{Script, run, says};

#[test]
fn a2_the_pool_is_the_active_others_newest_first_hidden_too_and_pinned() {
    let plan = || [answers_at_once(), says("done")];
    let mut place = boss(Script::new().on("[boss]", plan()), "tools: [read]")
        .with_agent("asleep", "active: false")
        .with_agent("shy", "hidden: true")
        .with_agent("broken", "model: nowhere/none");
    for number in 0..30 {
        place = place.with_agent(&format!("extra{number:02}"), "mode: subagent");
    }
    // The newest agent of all.
    place = place
        .with_agent("shy", "hidden: true")
        .with_agent("broken", "model: nowhere/none");
    let folder = place.path().join(".config/abide/agents");
    let stamp = |name: &str, seconds: u64| {
        let file = std::fs::File::options()
            .write(true)
            .open(folder.join(format!("{name}.md")));
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(2_000_000_000 + seconds);
        file.unwrap().set_modified(at).unwrap();
    };
    for number in 0..30 {
        stamp(&format!("extra{number:02}"), number);
    }
    stamp("shy", 101);
    stamp("broken", 100);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let tools = client.call("tools.list", json!({ "agent": "boss" })).await;
        let listed = tools["tools"].as_array().unwrap().iter();
        let delegate = listed
            .clone()
            .find(|tool| tool["name"] == "delegate")
            .unwrap();
        let pool: Vec<&str> = delegate["parameters"]["properties"]["agent"]["enum"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect();
        assert_eq!(pool.len(), 20);
        assert_eq!(pool[..4], ["shy", "broken", "extra29", "extra28"]);
        assert!(
            !pool.contains(&"boss") && !pool.contains(&"asleep"),
            "{pool:?}"
        );
        let about = client.call("agents.get", json!({ "agent": "boss" })).await;
        assert!(
            about
                .to_string()
                .contains("candidate broken: model nowhere/none"),
            "{about}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a2_with_nobody_to_delegate_to_a_run_goes_on_without() {
    let place = boss(
        Script::new().on(
            "[boss]",
            [delegates("helper"), answers_at_once(), says("alone")],
        ),
        "tools: [read]\nallow_agents: []",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let boss = turn(&client, "[boss]").await;
        assert_eq!(client.ended(&boss.id).await["result"], "alone");
        let about = client.call("agents.get", json!({ "agent": "boss" })).await;
        assert!(
            about
                .to_string()
                .contains("strategy plan: there is no agent to delegate to"),
            "{about}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}
