//! Delegations that wait for a user: the waiting time does not count against their timeout,
//! whichever tool made the call. Tests are named after their requirements.

use serde_json::{Value, json};

use crate::delegations::tool_results;
use crate::harness::{Answer, Place, Script, calls, run, says};

/// Each host with its only call.
fn hosts() -> [(&'static str, String, Answer); 4] {
    let task = json!({
        "description": "Look", "prompt": "[kid]", "subagent_type": "careful", "session_id": "",
    });
    let plan = json!({
        "steps": [], "requires_delegation": true, "delegate_to": "careful", "task": "[kid]",
    });
    let link = |session: &str| {
        format!("tools: []\nlinked_agents: [{{agent: careful, session: {session}}}]")
    };
    [
        ("tasker", "tools: [task]".to_owned(), calls("task", task)),
        (
            "sealer",
            link("own"),
            calls("subagent_careful", json!({ "task_summary": "[kid]" })),
        ),
        (
            "caller",
            link("shared"),
            calls("call_careful", json!({ "message": "[kid]" })),
        ),
        (
            "planner",
            "strategy: plan\ntools: []\nallow_agents: [careful]".to_owned(),
            says(&plan.to_string()),
        ),
    ]
}

#[test]
fn b4_while_a_person_is_waited_for_a_delegations_time_stands_still() {
    let mut script = Script::new().on(
        "[kid]",
        [
            calls("read", json!({ "path": "notes.txt" })),
            says("kid goes on without"),
        ],
    );
    for (host, _, call) in hosts() {
        let known = (host == "planner").then(|| says("known"));
        let done = says(&format!("{host} is done"));
        let answers = [call].into_iter().chain(known).chain([done]);
        script = script.on(&format!("[{host}]"), answers);
    }
    // The approval expires unanswered, later than the delegation's timeout.
    let mut place = Place::new(script)
        .with_agent(
            "careful",
            "mode: subagent\ntools: [read]\ngate: {read: ask}",
        )
        .with("delegation.timeout", "\"3s\"")
        .with("approvals.timeout", "\"4s\"");
    for (host, fields, _) in hosts() {
        place = place.with_agent(host, &format!("mode: primary\n{fields}"));
    }
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut turns = Vec::new();
        for (host, ..) in hosts() {
            let key = format!("agent:{host}:a");
            let params = json!({ "key": key, "agent": host });
            client.call("sessions.create", params).await;
            turns.push((host, client.turn(&key, &format!("[{host}]")).await));
        }
        for (host, turn) in turns {
            let ended = client.ended(&turn.id).await;
            assert_eq!(ended["result"], format!("{host} is done"), "{ended}");
            let answers = tool_results(&client, &format!("agent:{host}:a")).await;
            let result = answers.last().unwrap();
            let said = [&result["result"], &result["output"]];
            assert!(
                said.contains(&&json!("kid goes on without")),
                "{host}: {answers:?}"
            );
            let kid = client.run(result["runId"].as_str().unwrap()).await;
            assert_eq!(kid["state"], "ok", "{host}: {kid}");
            let asked = client.call("approvals.list", json!({})).await;
            let states: Vec<&Value> = asked["approvals"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|one| one["runId"] == kid["runId"])
                .map(|one| &one["state"])
                .collect();
            assert_eq!(states, [&json!("expired")], "{host}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}
