//! Permissions between sessions: the same policy applies to every tool, and each setting has its
//! effect.

use serde_json::{Value, json};

use crate::harness::{Link, Place, Script, calls, run, says};

/// The results that the model gets, called by one run in this order.
async fn results(client: &Link, session: &str, message: &str) -> Vec<(Value, bool)> {
    let turn = client.turn(session, message).await;
    client.ended(&turn.id).await;
    let history = client
        .call(
            "sessions.history",
            json!({ "sessionKey": session, "limit": 500 }),
        )
        .await;
    let mut results: Vec<(Value, Value)> = Vec::new();
    let mut calls: Vec<Value> = Vec::new();
    for entry in history["messages"].as_array().unwrap() {
        for block in entry["content"].as_array().unwrap() {
            match block["type"].as_str().unwrap() {
                "tool_call" => calls.push(block["id"].clone()),
                "tool_result" => results.push((block["toolCallId"].clone(), block.clone())),
                _ => {}
            }
        }
    }
    calls
        .iter()
        .map(|id| {
            let (_, block) = results.iter().find(|(call, _)| call == id).unwrap();
            let text = block["text"].as_str().unwrap();
            let value = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
            (value, block["isError"].as_bool().unwrap())
        })
        .collect()
}

/// Sends to, lists, reads and gets the status of a session of the same agent and of another agent.
fn looks() -> Script {
    let at = |tool: &str, key: &str| {
        let arguments = match tool {
            "sessions_send" => json!({ "sessionKey": key, "message": "[hi]", "waitSeconds": 240 }),
            _ => json!({ "sessionKey": key }),
        };
        calls(tool, arguments)
    };
    let (same, other) = ("agent:build:same", "agent:explore:other");
    Script::new()
        .on(
            "[look]",
            [
                at("sessions_send", same),
                at("sessions_send", other),
                at("sessions_history", same),
                at("sessions_history", other),
                at("session_status", same),
                at("session_status", other),
                calls("sessions_list", json!({})),
                says("looked"),
            ],
        )
        .on("[hi]", [says("hello")])
}

/// Whether send, history and status were allowed for the same and the other agent, and the listed
/// keys.
async fn reach(settings: &[(&str, &str)]) -> (Vec<bool>, Vec<String>) {
    let mut place = Place::new(looks());
    for (key, value) in settings {
        place.set(key, value);
    }
    let daemon = place.start().await;
    let client = daemon.client().await;
    for (agent, key) in [("build", "agent:build:same"), ("build", "agent:build:own")] {
        client
            .call("sessions.create", json!({ "agent": agent, "key": key }))
            .await;
    }
    // Another agent's session: a client's session keeps the subagent's name.
    let params = json!({ "agent": "explore", "owner": "client", "key": "agent:explore:other" });
    client.call("sessions.create", params).await;
    let found = results(&client, "agent:build:own", "[look]").await;
    let allowed = found[..6].iter().map(|(_, failed)| !failed).collect();
    let listed = found[6].0["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["sessionKey"].as_str().unwrap().to_owned())
        .collect();
    for (value, _) in found[..6].iter().filter(|(_, failed)| *failed) {
        let words = value.as_str().unwrap();
        assert!(words.contains("sessions."), "it names the setting: {words}");
    }
    assert_eq!(daemon.stop().await, 0);
    (allowed, listed)
}

#[test]
fn g4_5_each_visibility_reaches_as_far_as_it_says() {
    run(async {
        let (own, same) = ("agent:build:own", "agent:build:same");
        for (settings, expected, listed) in [
            (&[][..], [false; 6], vec![own]),
            (
                &[("sessions.visibility", "\"self\"")],
                [false; 6],
                vec![own],
            ),
            (
                &[("sessions.visibility", "\"agent\"")],
                [true, false, true, false, true, false],
                vec![own, same],
            ),
            (
                &[("sessions.visibility", "\"all\"")],
                [true, false, true, false, true, false],
                vec![own, same],
            ),
            (
                &[
                    ("sessions.visibility", "\"all\""),
                    ("sessions.agent_to_agent.allow", "[\"bui*\", \"explore\"]"),
                ],
                [true; 6],
                vec![own, "agent:explore:other", same],
            ),
            // A separate permission: it may send, but read nothing.
            (
                &[("sessions.rights.send", "\"agent\"")],
                [true, false, false, false, false, false],
                vec![own],
            ),
        ] {
            let (allowed, mut found) = reach(settings).await;
            assert_eq!(allowed, expected, "{settings:?}");
            found.sort();
            let mut listed: Vec<&str> = listed;
            listed.sort_unstable();
            assert_eq!(found, listed, "{settings:?}");
        }
    });
}

#[test]
fn a_subagent_never_sees_more_than_its_tree() {
    let place = Place::new(Script::new().on(
        "[peek]",
        [
            calls("sessions_history", json!({ "label": "secret" })),
            calls("sessions_list", json!({})),
            says("peeked"),
        ],
    ))
    .with("sessions.visibility", "\"all\"")
    .with("sessions.agent_to_agent.allow", "[\"*\"]");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        client
            .call(
                "sessions.create",
                json!({ "agent": "build", "label": "secret" }),
            )
            .await;
        let root = client.session("client", "root").await;
        let params = json!({ "task": "[peek]", "agent": "build", "parent": root });
        let child = client.spawn(params).await;
        client.ended(&child.id).await;
        let history = client
            .call("sessions.history", json!({ "sessionKey": child.session }))
            .await;
        let text = history.to_string();
        assert!(text.contains("never sees more than its own tree"), "{text}");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g4_7_g4_10_a_run_learns_whom_it_may_spawn_and_is_refused_anybody_else() {
    let spawn = |agent: &str| calls("sessions_spawn", json!({ "task": "[k]", "agent": agent }));
    let place = Place::new(
        Script::new()
            .on(
                "[spawn]",
                [
                    calls("agents_list", json!({})),
                    spawn("explorer"),
                    spawn("explore"),
                    says("spawned"),
                ],
            )
            .on("[k]", [says("k is done")])
            .on_announce("k is done", [says("NO_REPLY")]),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let found = results(&client, "agent:build:a", "[spawn]").await;
        let names: Vec<&str> = found[0].0["agents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|agent| agent["agent"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["build", "explore"]);
        let (refused, failed) = &found[1];
        assert!(
            *failed && refused.as_str().unwrap().contains("build, explore"),
            "{refused}"
        );
        let (accepted, failed) = &found[2];
        assert!(!failed, "{accepted}");
        assert_eq!(accepted["agent"], "explore");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(
            place.book().step_keys.len(),
            1,
            "a refused spawn made something"
        );
    });
}
