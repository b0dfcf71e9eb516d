//! Tools whose calls another agent carries out while its caller waits: `task` and
//! `subagent_<agent>`. The names of the tests are those of the requirements that they show.

use abide::client::Events;
use serde_json::{Value, json};

use crate::events::next;
use crate::harness::{Link, Place, Script, Spawned, calls, fails, run, says};

fn task(description: &str, prompt: &str) -> Value {
    json!({
        "description": description, "prompt": prompt,
        "subagent_type": "explore", "session_id": "",
    })
}

/// What the tools in this session have answered, in order.
pub(crate) async fn told(client: &Link, session: &str) -> Vec<Value> {
    let history = client
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let entries = history["messages"].as_array().unwrap().iter();
    entries
        .filter(|entry| entry["kind"] == "tool_result")
        .map(|entry| {
            let text = entry["content"][0]["text"].as_str().unwrap();
            serde_json::from_str(text).unwrap_or_else(|_| text.into())
        })
        .collect()
}

/// The events of these kinds up to the end of `run`.
pub(crate) async fn until_ended(events: &mut Events, run: &str) -> Vec<Value> {
    let mut found = Vec::new();
    loop {
        let event = serde_json::to_value(next(events).await).unwrap();
        let is_end = event["kind"] == "run.ended" && event["runId"] == run;
        found.push(event);
        if is_end {
            return found;
        }
    }
}

pub(crate) async fn children(client: &Link, session: &str) -> Vec<Value> {
    let params = json!({ "parent": session });
    let found = client.call("runs.list", params).await;
    found["runs"].as_array().unwrap().clone()
}

#[test]
fn e3_a_task_has_a_session_of_its_own_and_its_tools_are_shown_on_the_way() {
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
        assert_eq!(kid["delegated"]["face"], "task");
        assert_eq!(kid["parentRunId"], boss.id.as_str());
        assert_eq!(kid["rootRunId"], boss.id.as_str());
        // Told by the outcome of its call, and by nothing else.
        assert_eq!(kid["announce"]["state"], "none");
        let answers = told(&client, "agent:build:a").await;
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

        // The history says it too, at the call.
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
        // From the next start on the script knows the session.
        let path = place.path().join("script.json");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("$key", &key)).unwrap();
        // And who asks is bound more tightly than before.
        let file = place.path().join(".config/abide/agents/build.md");
        let text = std::fs::read_to_string(&file).unwrap();
        let bound = text.replace("tools: [task]", "tools: [task]\ngate: {read: deny}");
        std::fs::write(&file, bound).unwrap();
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let boss = client.turn("agent:build:a", "[again]").await;
        assert_eq!(client.ended(&boss.id).await["result"], "two");
        let answers = told(&client, "agent:build:a").await;
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
        let refused = &told(&client, &key).await[0];
        assert!(refused.to_string().contains("denied"), "{refused}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_task_that_fails_is_a_result_and_one_that_cannot_begin_is_refused_in_words() {
    let unknown = json!({
        "description": "Look", "prompt": "[kid]", "subagent_type": "nobody", "session_id": "",
    });
    let primary = json!({
        "description": "Look", "prompt": "[kid]", "subagent_type": "other", "session_id": "",
    });
    let place = Place::new(Script::new().on("[kid]", [fails("no model today")]).on(
        "[boss]",
        [
            calls("task", task("Look", "[kid]")),
            calls("task", unknown).and("task", primary),
            says("boss is done"),
        ],
    ))
    .with_agent("other", "mode: primary");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let boss = client.turn("agent:build:a", "[boss]").await;
        assert_eq!(client.ended(&boss.id).await["result"], "boss is done");
        let answers = told(&client, "agent:build:a").await;
        assert_eq!(answers[0]["success"], false);
        assert_eq!(answers[0]["unavailable"], true);
        assert_eq!(answers[0]["kind"], "provider");
        assert!(
            answers[0]["output"]
                .as_str()
                .unwrap()
                .contains("no model today")
        );
        // Calls of one answer are made at the same time: either may be refused first.
        for words in ["no agent \"nobody\"", "may not delegate to other"] {
            let mut texts = answers[1..].iter().filter_map(Value::as_str);
            assert!(
                texts.any(|text| text.contains(words)),
                "{words}: {answers:?}"
            );
        }
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
        let answers = told(&client, "agent:build:a").await;
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

/// A turn in the host's session.
async fn host_turn(client: &Link, message: &str) -> Spawned {
    let params = json!({ "key": "agent:host:a", "agent": "host", "ifExists": "get" });
    client.call("sessions.create", params).await;
    client.turn("agent:host:a", message).await
}

/// A host whose only tools are two agents.
fn host(script: Script) -> Place {
    Place::new(script)
        .with_agent(
            "host",
            "mode: primary\ntools: []\nlinked_agents:\n  - {agent: writer, session: own, \
             write_scope: own}\n  - {agent: broken, session: own, timeout: 300ms}\n  - {agent: \
             nobody, session: own}\n  - {agent: away, session: own}",
        )
        .with_agent("writer", "mode: subagent\ntools: [write]")
        .with_agent("broken", "mode: subagent")
        .with_agent("away", "mode: subagent\nmodel: nowhere/none")
}

#[test]
fn c1_host_without_direct_tools() {
    let place = host(Script::new().on("[kid]", [says("kid is done")]).on(
        "[host]",
        [
            calls("subagent_writer", json!({ "task_summary": "[kid]" })),
            says("host is done"),
        ],
    ));
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        // Looked at once, when it was loaded: what could not work is no tool, and says why.
        let agent = client.call("agents.get", json!({ "agent": "host" })).await;
        assert_eq!(
            agent["tools"],
            json!(["subagent_writer", "subagent_broken"])
        );
        let warnings = agent["warnings"].to_string();
        assert!(
            warnings.contains("subagent_nobody is left out: there is no agent"),
            "{agent}"
        );
        assert!(
            warnings.contains("subagent_away is left out: model nowhere/none"),
            "{agent}"
        );

        let mut events = client
            .subscribe(json!({ "since": 0, "sessionKey": "agent:host:a" }))
            .await;
        let turn = host_turn(&client, "[host]").await;
        assert_eq!(client.ended(&turn.id).await["result"], "host is done");
        let answers = told(&client, "agent:host:a").await;
        let [answer] = &answers[..] else {
            panic!("exactly one result: {answers:?}");
        };
        assert_eq!(answer["result"], "kid is done");
        assert_eq!(answer["last"], true);
        assert_eq!(answer["subagent"], "writer");
        assert_eq!(answer["supervisor"], "host");
        assert!(answer.get("unavailable").is_none());
        // Of a sealed child the host's stream has the call and its result alone.
        let seen = until_ended(&mut events, &turn.id).await;
        let outer: Vec<&str> = seen
            .iter()
            .filter_map(|event| event["kind"].as_str())
            .filter(|kind| kind.starts_with("tool.") || kind.starts_with("message.d"))
            .collect();
        assert_eq!(outer, ["tool.started", "tool.completed"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn c3_context_compress_called_once() {
    let place = host(
        Script::new()
            .on("[kid]", [says("kid is done")])
            .on("[before]", [says("nothing yet")])
            .on(
                "[host]",
                [
                    calls("subagent_writer", json!({ "task_summary": "[kid]" })),
                    says("host is done"),
                ],
            ),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let before = host_turn(&client, "[before] we talk").await;
        client.ended(&before.id).await;
        let turn = host_turn(&client, "[host] go").await;
        client.ended(&turn.id).await;
        let history = client
            .call("sessions.history", json!({ "sessionKey": "agent:host:a" }))
            .await;
        let packs: Vec<&Value> = history["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["metadata"].get("delegation_context").is_some())
            .collect();
        let [kept] = &packs[..] else {
            panic!("one pack a delegation: {history}");
        };
        assert_eq!(
            kept["content"][0]["text"], "[host] go",
            "the latest user message"
        );
        let packs = kept["metadata"]["delegation_context"].as_object().unwrap();
        assert_eq!(packs.len(), 1);
        let pack = packs.values().next().unwrap();
        assert_eq!(pack["task_summary"], "[kid]");
        assert_eq!(
            pack["recent_events"],
            json!([
                "user: [before] we talk",
                "assistant: nothing yet",
                "user: [host] go"
            ])
        );
        assert_eq!(pack["safety_flags"]["read_only"], false);
        // And that is what the child was given to know.
        let kid = &children(&client, "agent:host:a").await[0];
        let first = client
            .call(
                "sessions.history",
                json!({ "sessionKey": kid["sessionKey"] }),
            )
            .await;
        let first = first["messages"][0]["content"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(first.starts_with("[kid]\n\n"), "{first}");
        assert!(first.contains("assistant: nothing yet"), "{first}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn c2_subagent_error_propagation() {
    let place = host(
        Script::new()
            .on("[fail]", [fails("no model today")])
            .on("[slow]", [says("never").held_by("never")])
            .on(
                "[host]",
                [
                    calls("subagent_writer", json!({ "task_summary": "[fail]" }))
                        .and("subagent_broken", json!({ "task_summary": "[slow]" })),
                    says("host is done"),
                ],
            ),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let turn = host_turn(&client, "[host]").await;
        assert_eq!(client.ended(&turn.id).await["result"], "host is done");
        let answers = told(&client, "agent:host:a").await;
        assert_eq!(answers.len(), 2, "{answers:?}");
        let of = |agent: &str| {
            let mut answers = answers.iter();
            answers.find(|answer| answer["subagent"] == agent).unwrap()
        };
        assert_eq!(of("writer")["unavailable"], true);
        assert_eq!(of("writer")["kind"], "provider");
        assert_eq!(of("broken")["unavailable"], true);
        assert_eq!(of("broken")["kind"], "run_timeout");
        let steps = client.call("runs.steps", json!({ "runId": turn.id })).await;
        for step in steps["steps"].as_array().unwrap() {
            assert_eq!(step["state"], "done", "nothing fails in the host: {step}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn c5_subagent_filesystem_namespace() {
    let write = |path: &str| calls("write", json!({ "path": path, "content": "x" }));
    let place = host(
        Script::new()
            .on(
                "[kid]",
                [
                    write("out.txt"),
                    write("subagents/writer/in.txt"),
                    says("kid is done"),
                ],
            )
            .on(
                "[host]",
                [
                    calls("subagent_writer", json!({ "task_summary": "[kid]" })),
                    says("host is done"),
                ],
            ),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let turn = host_turn(&client, "[host]").await;
        client.ended(&turn.id).await;
        let kid = &children(&client, "agent:host:a").await[0];
        let answers = told(&client, kid["sessionKey"].as_str().unwrap()).await;
        let refused = answers[0].as_str().unwrap();
        assert!(refused.contains("access_denied"), "{answers:?}");
        assert!(refused.contains("subagents/writer"), "{answers:?}");
        assert!(!place.work().join("out.txt").exists());
        assert!(place.work().join("subagents/writer/in.txt").exists());
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn c5_subagent_parallel_calls() {
    let kid = |name: &str| json!({ "task_summary": format!("[kid {name}]") });
    let place = host(
        Script::new()
            .on("[kid a]", [says("a").held_by("go-a")])
            .on("[kid b]", [says("b").held_by("go-b")])
            .on("[kid c]", [says("c")])
            .on(
                "[host]",
                [
                    calls("subagent_writer", kid("a"))
                        .and("subagent_writer", kid("b"))
                        .and("subagent_writer", kid("c")),
                    says("host is done"),
                ],
            ),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let turn = host_turn(&client, "[host]").await;
        client.in_state(&turn.id, "paused").await;
        // They end in another order than they were called in.
        for (index, name) in ["b", "a"].into_iter().enumerate() {
            let kids = children(&client, "agent:host:a").await;
            let kid = kids
                .iter()
                .find(|kid| kid["title"].as_str().unwrap().contains(name));
            assert!(kid.is_some(), "{index} {kids:?}");
            place.let_go(&format!("go-{name}"));
            let id = kid.unwrap()["runId"].as_str().unwrap();
            assert_eq!(client.ended(id).await["result"], name);
        }
        client.ended(&turn.id).await;
        let steps = client.call("runs.steps", json!({ "runId": turn.id })).await;
        let steps = steps["steps"].as_array().unwrap();
        // Each call has the child that was asked by it, whatever came first.
        let mut results = Vec::new();
        for step in steps.iter().filter(|step| step["kind"] == "tool") {
            let child = client.run(step["childRunId"].as_str().unwrap()).await;
            results.push(child["result"].as_str().unwrap().to_owned());
        }
        assert_eq!(results, ["a", "b", "c"]);
        assert_eq!(daemon.stop().await, 0);
    });
}
