//! `task`: from the caller's call to its result, including the child's session and events.

use serde_json::{Value, json};

use super::{children, tool_results, until_ended};
use crate::harness::{Place, Script, calls, fails, run, says};

fn task(description: &str, prompt: &str) -> Value {
    json!({
        "description": description, "prompt": prompt,
        "subagent_type": "explore", "session_id": "",
    })
}

#[test]
fn e3_complete_flow() {
    let place = Place::new(
        Script::new()
            .on(
                "[kid]",
                [
                    calls("read", json!({ "path": "notes.txt" })),
                    calls("read", json!({ "path": "nowhere.txt" })),
                    says("kid found it"),
                ],
            )
            .on(
                "[boss]",
                [
                    calls("task", task("Look around", "[kid]")),
                    says("boss is done"),
                ],
            ),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut events = client.subscribe(json!({ "since": 0 })).await;
        let boss = client.turn("agent:build:a", "[boss]").await;
        assert_eq!(client.ended(&boss.id).await["result"], "boss is done");
        let kids = children(&client, "agent:build:a").await;
        assert_eq!(kids.len(), 1, "{kids:?}");
        let kid = &kids[0];
        assert_eq!(kid["title"], "Look around (@explore)");
        assert_eq!(kid["delegated"]["mode"], "task");
        assert_eq!(kid["parentRunId"], boss.id.as_str());
        assert_eq!(kid["rootRunId"], boss.id.as_str());
        // Reported only as the outcome of its call.
        assert_eq!(kid["announce"]["state"], "none");
        let answers = tool_results(&client, "agent:build:a").await;
        let [answer] = &answers[..] else {
            panic!("one result a call: {answers:?}");
        };
        assert_eq!(answer["success"], true);
        assert_eq!(answer["output"], "kid found it");
        assert_eq!(answer["metadata"]["agentName"], "explore");
        assert_eq!(answer["metadata"]["sessionId"], kid["sessionKey"]);
        assert_eq!(answer["runId"], kid["runId"]);
        assert_eq!(answer["supervisor"], "build");
        assert_eq!(answer["last"], true);
        let summary = answer["metadata"]["summary"].as_array().unwrap();
        let shown: Vec<(&str, &str)> = summary
            .iter()
            .map(|call| {
                (
                    call["tool"].as_str().unwrap(),
                    call["status"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(shown, [("read", "completed"), ("read", "error")]);

        // The history shows it too, at the call.
        let history = client
            .call("sessions.history", json!({ "sessionKey": "agent:build:a" }))
            .await;
        let entries = history["messages"].as_array().unwrap();
        let with: Vec<&Value> = entries
            .iter()
            .filter(|entry| entry.get("subAgentSummary").is_some())
            .collect();
        let [call] = &with[..] else {
            panic!("one entry calls: {entries:?}");
        };
        assert_eq!(call["kind"], "tool_call");
        let work = &call["subAgentSummary"][0];
        assert_eq!(work["childRunId"], kid["runId"]);
        assert_eq!(work["calls"], answer["metadata"]["summary"]);
        let steps = client.call("runs.steps", json!({ "runId": boss.id })).await;
        assert_eq!(steps["steps"][1]["childRunId"], kid["runId"], "{steps}");

        let seen = until_ended(&mut events, &boss.id).await;
        let progress: Vec<(&str, &str)> = seen
            .iter()
            .filter(|event| event["kind"] == "tool.progress")
            .map(|event| {
                assert_eq!(event["runId"], boss.id.as_str());
                assert_eq!(event["sessionKey"], "agent:build:a");
                let progress = &event["data"]["progress"];
                (
                    progress["type"].as_str().unwrap(),
                    progress["status"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            progress,
            [
                ("thinking", "running"),
                ("tool_start", "running"),
                ("tool_complete", "completed"),
                ("thinking", "running"),
                ("tool_start", "running"),
                ("tool_complete", "error"),
                ("thinking", "running"),
            ]
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn e3_a_session_id_goes_on_in_the_session_of_an_earlier_task() {
    let again = |agent: &str| {
        json!({
            "description": "Look again", "prompt": "[more]",
            "subagent_type": agent, "session_id": "$key",
        })
    };
    let strange = json!({
        "description": "Look", "prompt": "[more]",
        "subagent_type": "explore", "session_id": "agent:build:a",
    });
    let place = Place::new(
        Script::new()
            .on("[kid]", [says("first")])
            .on(
                "[more]",
                [
                    calls("read", json!({ "path": "notes.txt" })),
                    says("second"),
                ],
            )
            .on(
                "[boss]",
                [calls("task", task("Look", "[kid]")), says("one")],
            )
            .on(
                "[again]",
                [
                    calls("task", again("helper")),
                    calls("task", strange),
                    calls("task", again("explore")),
                    says("two"),
                ],
            ),
    )
    .with_agent("helper", "mode: subagent")
    .with_agent(
        "build",
        "mode: primary\ntools: [task]\nallow_agents: [explore, helper]",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let boss = client.turn("agent:build:a", "[boss]").await;
        client.ended(&boss.id).await;
        let kids = children(&client, "agent:build:a").await;
        let key = kids[0]["sessionKey"].as_str().unwrap().to_owned();
        // From the next start on, the script contains the session's key.
        let path = place.path().join("script.json");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("$key", &key)).unwrap();
        // The caller has a stricter gate than before.
        let file = place.path().join(".config/abide/agents/build.md");
        let text = std::fs::read_to_string(&file).unwrap();
        let bound = text.replace("tools: [task]", "tools: [task]\ngate: {read: deny}");
        std::fs::write(&file, bound).unwrap();
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let boss = client.turn("agent:build:a", "[again]").await;
        assert_eq!(client.ended(&boss.id).await["result"], "two");
        let answers = tool_results(&client, "agent:build:a").await;
        let text = |index: usize| answers[index].as_str().unwrap_or_default().to_owned();
        assert!(text(1).contains("belongs to agent explore"), "{answers:?}");
        assert!(text(2).starts_with("not_found:"), "{answers:?}");
        assert_eq!(answers[3]["output"], "second");
        assert_eq!(answers[3]["metadata"]["sessionId"], key);
        let history = client
            .call("sessions.history", json!({ "sessionKey": key }))
            .await;
        let said: Vec<&str> = history["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["kind"] == "text")
            .map(|entry| entry["content"][0]["text"].as_str().unwrap())
            .collect();
        assert_eq!(said, ["[kid]", "first", "[more]", "second"]);
        let refused = &tool_results(&client, &key).await[0];
        assert!(refused.to_string().contains("denied"), "{refused}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn e3_task_tool_parameter_validation() {
    let unknown = json!({
        "description": "Look", "prompt": "[kid]", "subagent_type": "nobody", "session_id": "",
    });
    let primary = json!({
        "description": "Look", "prompt": "[kid]", "subagent_type": "other", "session_id": "",
    });
    let with = |name: &str, value: Value| {
        let mut arguments = task("Look", "[kid]");
        arguments[name] = value;
        arguments
    };
    let place = Place::new(
        Script::new().on("[kid]", [fails("no model today")]).on(
            "[boss]",
            [
                calls("task", task("Look", "[kid]")),
                calls("task", unknown).and("task", primary),
                // In a single answer: three consecutive answers without a valid call would end the
                // run.
                calls(
                    "task",
                    json!({ "description": "Look", "subagent_type": "explore" }),
                )
                .and("task", with("prompt", json!(5)))
                .and("task", with("effort", json!("high")))
                .and("task", with("subagent_type", json!(""))),
                says("boss is done"),
            ],
        ),
    )
    .with_agent("other", "mode: primary");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let boss = client.turn("agent:build:a", "[boss]").await;
        assert_eq!(client.ended(&boss.id).await["result"], "boss is done");
        let answers = tool_results(&client, "agent:build:a").await;
        assert_eq!(answers[0]["success"], false);
        assert_eq!(answers[0]["unavailable"], true);
        assert_eq!(answers[0]["kind"], "provider");
        assert!(
            answers[0]["output"]
                .as_str()
                .unwrap()
                .contains("no model today")
        );
        // Calls of one answer run concurrently: any of them may be refused first.
        let refused = |answers: &[Value], words: &str| {
            let mut texts = answers.iter().filter_map(Value::as_str);
            assert!(
                texts.any(|text| text.contains(words)),
                "{words}: {answers:?}"
            );
        };
        for words in ["no agent \"nobody\"", "may not delegate to other"] {
            refused(&answers[1..3], words);
        }
        for words in [
            "prompt: missing",
            "prompt: expected a non-empty text",
            "unknown argument \"effort\"",
            "subagent_type: expected a non-empty text",
        ] {
            refused(&answers[3..], words);
        }
        assert_eq!(answers.len(), 7, "{answers:?}");
        assert_eq!(children(&client, "agent:build:a").await.len(), 1);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_child_ends_after_its_own_children() {
    let spawn = json!({ "task": "[grandkid]", "agent": "explore" });
    let place = Place::new(
        Script::new()
            .on("[grandkid]", [says("grandkid is done").held_by("go")])
            .on("[kid]", [calls("sessions_spawn", spawn), says("half")])
            .on(
                "[boss]",
                [
                    calls(
                        "task",
                        json!({
                            "description": "Look", "prompt": "[kid]",
                            "subagent_type": "helper", "session_id": "",
                        }),
                    ),
                    says("boss is done"),
                ],
            )
            .on(
                "[short]",
                [calls("task", task("Wait", "[slow]")), says("never")],
            )
            .on_announce("grandkid is done", [says("kid has it all")]),
    )
    .with_agent("helper", "mode: subagent\ntools: [sessions_spawn]")
    .with_agent("build", "mode: primary\ntools: [task]")
    .with("defaults.max_spawn_depth", "2");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let boss = client.turn("agent:build:a", "[boss]").await;
        client.in_state(&boss.id, "paused").await;
        let kids = children(&client, "agent:build:a").await;
        let kid = kids[0]["runId"].as_str().unwrap();
        client.in_state(kid, "settling").await;
        place.let_go("go");
        assert_eq!(client.ended(&boss.id).await["result"], "boss is done");
        let answers = tool_results(&client, "agent:build:a").await;
        assert_eq!(answers[0]["output"], "kid has it all");

        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_child_that_waits_for_a_slot_ends_with_its_caller() {
    let place = Place::new(Script::new().on("[slow]", [says("never")]).on(
        "[short]",
        [calls("task", task("Wait", "[slow]")), says("never")],
    ))
    .with("lanes.subagent", "0");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({
            "sessionKey": "agent:build:b", "message": "[short]", "runTimeout": "500ms",
        });
        let short = client.call("agent.run", params).await;
        let ended = client.ended(short["runId"].as_str().unwrap()).await;
        assert_eq!(ended["state"], "timeout", "{ended}");
        let slow = &children(&client, "agent:build:b").await[0];
        assert_eq!(slow["state"], "cancelled", "{slow}");
        assert_eq!(slow["cancel"]["by"], "parent_ended", "{slow}");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn e3_task_tool_event_forwarding() {
    let place = Place::new(
        Script::new()
            .on(
                "[kid]",
                [
                    calls("read", json!({ "path": "notes.txt" }))
                        .and("read", json!({ "path": "nowhere.txt" })),
                    says("kid is done"),
                ],
            )
            .on(
                "[boss]",
                [calls("task", task("Look", "[kid]")), says("boss is done")],
            ),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut events = client.subscribe(json!({ "since": 0 })).await;
        let boss = client.turn("agent:build:a", "[boss]").await;
        let seen = until_ended(&mut events, &boss.id).await;
        let kid = &children(&client, "agent:build:a").await[0]["runId"];
        // Exactly the steps that the child's own stream reports.
        let of_tools = |event: &&Value| {
            let kind = event["kind"].as_str().unwrap();
            event["runId"] == *kid && kind.starts_with("tool.")
        };
        let own: Vec<(&str, &Value)> = seen
            .iter()
            .filter(of_tools)
            .map(|event| {
                let kind = match event["kind"].as_str().unwrap() {
                    "tool.started" => "tool_start",
                    _ => "tool_complete",
                };
                (kind, &event["data"]["toolCallId"])
            })
            .collect();
        let passed: Vec<&Value> = seen
            .iter()
            .filter(|event| event["kind"] == "tool.progress")
            .map(|event| &event["data"]["progress"])
            .collect();
        let forwarded: Vec<(&str, &Value)> = passed
            .iter()
            .filter(|progress| progress["type"] != "thinking")
            .map(|progress| {
                let kind = progress["type"].as_str().unwrap();
                (kind, &progress["subToolCallId"])
            })
            .collect();
        assert_eq!(own.len(), 4, "{own:?}");
        assert_eq!(forwarded, own);
        for progress in passed {
            let status = progress["status"].as_str().unwrap();
            match progress["type"].as_str().unwrap() {
                "tool_complete" if status == "error" => assert!(progress["error"].is_string()),
                "tool_complete" => assert!(progress["resultSummary"].is_string()),
                _ => assert_eq!(status, "running"),
            }
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn e4_event_flow() {
    let read = || calls("read", json!({ "path": "notes.txt" }));
    let place = Place::new(
        Script::new()
            .on("[kid a]", [read(), says("a is done").held_by("go-a")])
            .on("[kid b]", [read(), read(), says("b is done")])
            .on(
                "[boss]",
                [
                    calls("task", task("First", "[kid a]")).and("task", task("Second", "[kid b]")),
                    says("boss is done"),
                ],
            ),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut events = client.subscribe(json!({ "since": 0 })).await;
        let boss = client.turn("agent:build:a", "[boss]").await;
        client.in_state(&boss.id, "paused").await;
        place.let_go("go-a");
        let seen = until_ended(&mut events, &boss.id).await;
        let steps = client.call("runs.steps", json!({ "runId": boss.id })).await;
        let steps = steps["steps"].as_array().unwrap().iter();
        let calls: Vec<(&Value, &Value)> = steps
            .filter(|step| step["kind"] == "tool")
            .map(|step| (&step["toolCallId"], &step["childRunId"]))
            .collect();
        assert_eq!(calls.len(), 2, "{calls:?}");
        // Each call has the progress of its own child, between its start and its end.
        for ((call, child), count) in calls.into_iter().zip([2, 4]) {
            let flow: Vec<(&str, &Value)> = seen
                .iter()
                .filter(|event| {
                    event["runId"] == boss.id.as_str() && event["data"]["toolCallId"] == *call
                })
                .map(|event| (event["kind"].as_str().unwrap(), &event["data"]))
                .collect();
            assert_eq!(flow.first().unwrap().0, "tool.started");
            assert_eq!(flow.last().unwrap().0, "tool.completed");
            let progress = &flow[1..flow.len() - 1];
            for (kind, data) in progress {
                assert_eq!(*kind, "tool.progress");
                assert_eq!(data["childRunId"], *child);
            }
            let tools = progress
                .iter()
                .filter(|(_, data)| data["progress"]["type"] != "thinking");
            assert_eq!(tools.count(), count, "{flow:?}");
        }
        // A later subscriber receives the same events.
        let mut again = client.subscribe(json!({ "since": 0 })).await;
        assert_eq!(until_ended(&mut again, &boss.id).await, seen);
        assert_eq!(daemon.stop().await, 0);
    });
}
