//! `subagent_<agent>`: what its host and the host's event stream receive from a sealed child.

use serde_json::{Value, json};

use super::{children, host, host_turn, tool_results, until_ended};
use crate::harness::{Script, calls, fails, run, says};

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
        // Checked once, when it was loaded: an agent that could not work is not offered, with a
        // reason.
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
        let answers = tool_results(&client, "agent:host:a").await;
        let [answer] = &answers[..] else {
            panic!("exactly one result: {answers:?}");
        };
        assert_eq!(answer["result"], "kid is done");
        assert_eq!(answer["last"], true);
        assert_eq!(answer["subagent"], "writer");
        assert_eq!(answer["supervisor"], "host");
        assert!(answer.get("unavailable").is_none());
        // The host's stream contains only the call of a sealed child and its result.
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
        // The child's input is that context pack.
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
        let answers = tool_results(&client, "agent:host:a").await;
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
        let answers = tool_results(&client, kid["sessionKey"].as_str().unwrap()).await;
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
        // They end in a different order than they were called.
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
        // Each call has the result of its own child, whichever ended first.
        let mut results = Vec::new();
        for step in steps.iter().filter(|step| step["kind"] == "tool") {
            let child = client.run(step["childRunId"].as_str().unwrap()).await;
            results.push(child["result"].as_str().unwrap().to_owned());
        }
        assert_eq!(results, ["a", "b", "c"]);
        assert_eq!(daemon.stop().await, 0);
    });
}
