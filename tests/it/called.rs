//! `call_<agent>`: another agent works in its caller's session, within its caller's turn. Tests are
//! named after their requirements.

use serde_json::{Value, json};

use crate::delegations::{children, tool_results, until_ended};
use crate::harness::{
    Link, ModelServer, Place, Script, Spawned, calls, chat, fails, messages, run, says,
};

const HOST: &str = "agent:host:a";

/// A host that may call `helper` and `second`; `link` adds fields to both links.
fn host(script: Script, link: &str) -> Place {
    let links = format!(
        "mode: primary\ntools: [read]\nlinked_agents:\n  - {{agent: helper, session: \
         shared{link}}}\n  - {{agent: second, session: shared}}"
    );
    Place::new(script)
        .with_agent("host", &links)
        .with_agent("helper", "mode: subagent\ntools: [read]")
        .with_agent("second", "mode: subagent\ntools: [glob]")
}

fn message(text: &str) -> Value {
    json!({ "message": text })
}

/// Starts a turn in the host's session.
async fn turn(client: &Link, text: &str) -> Spawned {
    let params = json!({ "key": HOST, "agent": "host", "ifExists": "get" });
    client.call("sessions.create", params).await;
    client.turn(HOST, text).await
}

async fn entries(client: &Link) -> Vec<Value> {
    let history = client
        .call("sessions.history", json!({ "sessionKey": HOST }))
        .await;
    history["messages"].as_array().unwrap().clone()
}

fn text_of(entry: &Value) -> &str {
    entry["content"][0]["text"].as_str().unwrap_or_default()
}

#[test]
fn b1_both_sides_of_a_call_stand_in_the_transcript_of_its_caller() {
    let place = host(
        Script::new()
            .on(
                "[kid]",
                [
                    calls("read", json!({ "path": "notes.txt" })),
                    says("kid found it"),
                ],
            )
            .on(
                "[host]",
                [calls("call_helper", message("[kid]")), says("host is done")],
            ),
        "",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let host = turn(&client, "[host]").await;
        assert_eq!(client.ended(&host.id).await["result"], "host is done");
        let kids = children(&client, HOST).await;
        let [kid] = &kids[..] else {
            panic!("one call, one run: {kids:?}");
        };
        assert_eq!(kid["sessionKey"], HOST);
        assert_eq!(kid["agent"], "helper");
        assert_eq!(kid["delegated"]["mode"], "call");
        assert_eq!(kid["parentRunId"], host.id.as_str());
        assert_eq!(kid["depth"], 1);
        let entries = entries(&client).await;
        let shown: Vec<(&str, &str, bool)> = entries
            .iter()
            .map(|entry| {
                let of_kid = entry["childRunId"] == kid["runId"];
                assert!(of_kid || entry.get("childRunId").is_none(), "{entry}");
                (
                    entry["role"].as_str().unwrap(),
                    entry["kind"].as_str().unwrap(),
                    of_kid,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("user", "text", false),
                ("assistant", "tool_call", false),
                ("user", "sub_agent_user", true),
                ("assistant", "tool_call", true),
                ("tool", "tool_result", true),
                ("assistant", "sub_agent_ai", true),
                ("tool", "tool_result", false),
                ("assistant", "text", false),
            ]
        );
        let call = &entries[1]["content"][0]["id"];
        for (at, text) in [(2, "[kid]"), (5, "kid found it")] {
            assert_eq!(text_of(&entries[at]), text);
            assert_eq!(entries[at]["toolCallId"], *call);
            assert_eq!(entries[at]["metadata"]["agent"], "helper");
        }
        let summary = &entries[1]["subAgentSummary"][0];
        assert_eq!(summary["childRunId"], kid["runId"]);
        assert_eq!(summary["calls"][0]["tool"], "read");
        let result: Value = serde_json::from_str(text_of(&entries[6])).unwrap();
        assert_eq!(result["result"], "kid found it");
        assert_eq!(result["runId"], kid["runId"]);
        assert_eq!(result["sessionKey"], HOST);
        assert_eq!(result["subagent"], "helper");
        assert_eq!(result["supervisor"], "host");
        assert_eq!(result["last"], true);
        // The call created no session.
        let sessions = client.call("sessions.list", json!({ "kind": "all" })).await;
        assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn b1_called_ones_have_the_turn_one_by_one_and_what_is_said_meanwhile_waits() {
    let place = host(
        Script::new()
            .on("[kid a]", [says("a").held_by("go-a")])
            .on("[kid b]", [says("b").held_by("go-b")])
            .on(
                "[host]",
                [
                    calls("call_helper", message("[kid a]")).and("call_second", message("[kid b]")),
                    says("host is done"),
                ],
            )
            .on("[later]", [says("later is done")]),
        "",
    )
    .with("lanes.global", "1")
    .with("lanes.main", "1")
    .with("lanes.subagent", "0");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let host = turn(&client, "[host]").await;
        client.in_state(&host.id, "paused").await;
        let later = client.turn(HOST, "[later]").await;
        let kids = children(&client, HOST).await;
        let id = |agent: &str| {
            let mut kids = kids.iter();
            let kid = kids.find(|kid| kid["agent"] == agent).unwrap();
            kid["runId"].as_str().unwrap().to_owned()
        };
        client.in_state(&id("helper"), "running").await;
        assert_eq!(client.run(&id("second")).await["state"], "queued");
        let session = client
            .call("sessions.get", json!({ "sessionKey": HOST }))
            .await;
        assert_eq!(session["state"], "busy", "{session}");
        place.let_go("go-a");
        client.in_state(&id("second"), "running").await;
        assert_eq!(client.run(&later.id).await["state"], "queued");
        place.let_go("go-b");
        assert_eq!(client.ended(&host.id).await["result"], "host is done");
        assert_eq!(client.ended(&later.id).await["result"], "later is done");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn b1_a_called_one_may_call_another_in_turn_as_deep_as_is_allowed() {
    let script = Script::new()
        .on("[grandkid]", [says("grandkid is done")])
        .on(
            "[kid]",
            [
                calls("call_second", message("[grandkid]")),
                says("kid is done"),
            ],
        )
        .on(
            "[host]",
            [calls("call_helper", message("[kid]")), says("host is done")],
        );
    let place = host(script, "")
        .with_agent(
            "helper",
            "mode: subagent\ntools: []\nlinked_agents: [{agent: second, session: shared}]",
        )
        .with("defaults.max_spawn_depth", "2")
        .with("lanes.global", "1");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let host = turn(&client, "[host]").await;
        assert_eq!(client.ended(&host.id).await["result"], "host is done");
        let tree = client.call("runs.list", json!({ "tree": host.id })).await;
        let depths: Vec<(&str, u64)> = tree["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| {
                (
                    run["agent"].as_str().unwrap(),
                    run["depth"].as_u64().unwrap(),
                )
            })
            .collect();
        assert_eq!(depths, [("second", 2), ("helper", 1), ("host", 0)]);
        let answers = tool_results(&client, HOST).await;
        assert_eq!(answers[0]["result"], "grandkid is done");
        assert_eq!(answers[0]["supervisor"], "helper");
        assert_eq!(answers[1]["result"], "kid is done");
        assert_eq!(daemon.stop().await, 0);
    });
}

/// The roles of a request's messages, except the system prompt.
fn roles(request: &Value) -> Vec<&str> {
    let said = request["messages"].as_array().unwrap().iter();
    let roles = said.map(|message| message["role"].as_str().unwrap());
    roles.filter(|role| *role != "system").collect()
}

fn tools(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| {
            let tool = tool.get("function").unwrap_or(tool);
            tool["name"].as_str().unwrap()
        })
        .collect()
}

#[test]
fn b1_the_sessions_model_tools_and_pins_are_as_before_over_two_providers_and_a_kill() {
    let server = ModelServer::start();
    let answer =
        |text: &str| messages::answers(&[json!({ "type": "text", "text": text })], "end_turn");
    let call = |id: &str, text: &str| {
        chat::calls(&[(id, "call_helper", &json!({ "message": text }).to_string())])
    };
    server
        .on(
            "You are the helper",
            [
                answer("never heard").held_by("never"),
                answer("helper says one"),
                answer("helper says two"),
            ],
        )
        .on(
            "You are the host",
            [
                call("c1", "look once"),
                chat::says(&["host ", "is done"]),
                call("c2", "look twice"),
                chat::says(&["host is done again"]),
            ],
        );
    let mut place = Place::new(Script::new());
    for (name, kind, path) in [("chat", "openai", "/v1"), ("claude", "anthropic", "")] {
        for (field, value) in [("kind", kind.to_owned()), ("base_url", server.url(path))] {
            place.set(&format!("providers.{name}.{field}"), &format!("{value:?}"));
        }
    }
    let place = place
        .with_agent(
            "host",
            "mode: primary\nmodel: chat/big\nsystem_prompt: x\ntools: [read]\nlinked_agents: \
             [{agent: helper, session: shared}]",
        )
        .with_agent(
            "helper",
            "mode: subagent\nmodel: claude/small\ntools: [glob]",
        );
    for (agent, text) in [
        ("host", "You are the host."),
        ("helper", "You are the helper."),
    ] {
        let file = place
            .path()
            .join(format!(".config/abide/agents/{agent}.md"));
        let written = std::fs::read_to_string(&file).unwrap();
        let written = written
            .replace("system_prompt: x\n", "")
            .replace("Do it.", text);
        std::fs::write(&file, written).unwrap();
    }
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let first = turn(&client, "begin").await;
        let before = client
            .call("sessions.get", json!({ "sessionKey": HOST }))
            .await;
        server.until_model_called(2);
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let ended = client.ended(&first.id).await;
        assert_eq!(ended["result"], "host is done", "{ended}");
        let second = turn(&client, "again").await;
        let again = client.ended(&second.id).await;
        assert_eq!(again["result"], "host is done again", "{again}");
        assert_eq!(ended["pins"], again["pins"]);
        assert_eq!(ended["model"], "chat/big");
        assert_eq!(again["model"], "chat/big");
        let after = client
            .call("sessions.get", json!({ "sessionKey": HOST }))
            .await;
        for field in ["model", "agent", "thinking", "cwd"] {
            assert_eq!(before[field], after[field], "{field}");
        }
        // One result per call, wherever the daemon was killed.
        let answers: Vec<Value> = tool_results(&client, HOST).await;
        let results: Vec<&str> = answers
            .iter()
            .map(|answer| answer["result"].as_str().unwrap())
            .collect();
        assert_eq!(results, ["helper says one", "helper says two"]);

        let requests = server.requests();
        let by = |path: &str| -> Vec<Value> {
            let found = requests
                .iter()
                .filter(|request| request.path.ends_with(path));
            found.map(|request| request.json()).collect()
        };
        let hosts = by("/chat/completions");
        let helpers = by("/v1/messages");
        assert_eq!(hosts.len(), 4);
        assert_eq!(helpers.len(), 3, "the one that was killed was asked again");
        for request in &hosts {
            assert_eq!(tools(request), ["read", "call_helper"]);
        }
        assert_eq!(roles(&hosts[1]), ["user", "assistant", "tool"]);
        assert_eq!(
            roles(&hosts[3]),
            [
                "user",
                "assistant",
                "tool",
                "assistant",
                "user",
                "assistant",
                "tool"
            ]
        );
        assert!(!hosts[3].to_string().contains("never heard"));
        for request in &helpers {
            assert_eq!(tools(request), ["glob"]);
            let roles = roles(request);
            assert!(roles.windows(2).all(|two| two[0] != two[1]), "{roles:?}");
            assert_eq!(roles.last(), Some(&"user"), "its call comes last");
        }
        assert_eq!(helpers[0]["messages"], helpers[1]["messages"]);
        // The helper sees its input and its own earlier call.
        assert_eq!(roles(&helpers[2]), ["user", "assistant", "user"]);
        let seen = helpers[2]["messages"].to_string();
        for text in [
            "begin",
            "look once",
            "helper says one",
            "host is done",
            "again",
            "look twice",
        ] {
            assert!(seen.contains(text), "{text}: {seen}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn b2_the_callers_stream_tells_of_the_call_its_words_and_its_end() {
    let text = "one two three four";
    for (stream, words) in [
        ("", true),
        (", stream: direct", true),
        (", stream: none", false),
    ] {
        let place = host(
            Script::new()
                .on("[kid]", [says(text).in_pieces(3, 2, "go")])
                .on(
                    "[host]",
                    [calls("call_helper", message("[kid]")), says("host is done")],
                ),
            stream,
        );
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let mut events = client.subscribe(json!({ "since": 0 })).await;
            let host = turn(&client, "[host]").await;
            client.in_state(&host.id, "paused").await;
            place.let_go("go");
            client.ended(&host.id).await;
            let kid = &children(&client, HOST).await[0];
            let seen = until_ended(&mut events, &host.id).await;
            let of = |kind: &str| -> Vec<&Value> {
                let seen = seen.iter().filter(|event| event["kind"] == kind);
                seen.inspect(|event| {
                    assert_eq!(event["runId"], host.id.as_str(), "{event}");
                    assert_eq!(event["data"]["childRunId"], kid["runId"], "{event}");
                    assert_eq!(event["data"]["agent"], "helper", "{event}");
                })
                .map(|event| &event["data"])
                .collect()
            };
            assert_eq!(of("sub_agent.call_start")[0]["argsSummary"], "[kid]");
            let partial = of("sub_agent.partial");
            let mut heard = String::new();
            for piece in &partial {
                assert_eq!(piece["offset"], heard.len());
                heard.push_str(piece["text"].as_str().unwrap());
            }
            assert_eq!(heard, if words { text } else { "" }, "{stream}");
            let complete = of("sub_agent.complete");
            assert_eq!(complete.len(), 1);
            assert_eq!(complete[0]["text"], text);
            assert_eq!(complete[0]["usage"]["modelCalls"], 1);
            assert_eq!(of("sub_agent.error").len(), 0);
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn b4_a_failed_call_is_told_or_ends_its_caller_as_the_setting_says() {
    for (link, goes_on) in [("", true), (", on_failure: abort", false)] {
        let place = host(
            Script::new().on("[kid]", [fails("no model today")]).on(
                "[host]",
                [calls("call_helper", message("[kid]")), says("host is done")],
            ),
            link,
        );
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let mut events = client.subscribe(json!({ "since": 0 })).await;
            let host = turn(&client, "[host]").await;
            let ended = client.ended(&host.id).await;
            let answer = &tool_results(&client, HOST).await[0];
            assert_eq!(answer["unavailable"], true, "{answer}");
            assert_eq!(answer["kind"], "provider", "{answer}");
            if goes_on {
                assert_eq!(ended["result"], "host is done");
            } else {
                assert_eq!(ended["state"], "error", "{ended}");
                assert_eq!(ended["error"]["kind"], "child_failed", "{ended}");
            }
            let seen = until_ended(&mut events, &host.id).await;
            let error = seen.iter().find(|event| event["kind"] == "sub_agent.error");
            let error = &error.unwrap()["data"];
            assert!(error["error"].as_str().unwrap().contains("no model today"));
            assert!(!error["cause"].as_array().unwrap().is_empty());
            let kinds: Vec<Value> = entries(&client).await;
            assert!(kinds.iter().all(|entry| entry["kind"] != "sub_agent_ai"));
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn b4_an_agent_that_fails_again_and_again_is_not_called_for_a_while() {
    let place = host(
        Script::new().on("[kid]", [fails("no model today")]).on(
            "[host]",
            [
                calls("call_helper", message("[kid]")),
                calls("call_helper", message("[kid]")),
                calls("call_helper", message("[kid]")),
                says("host is done"),
            ],
        ),
        "",
    )
    .with("delegation.breaker.failures", "2")
    .with("delegation.breaker.cool_off", "\"1h\"");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut events = client.subscribe(json!({ "since": 0 })).await;
        let host = turn(&client, "[host]").await;
        assert_eq!(client.ended(&host.id).await["result"], "host is done");
        let answers = tool_results(&client, HOST).await;
        let kinds: Vec<&str> = answers
            .iter()
            .map(|answer| answer["kind"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["provider", "provider", "breaker"]);
        assert_eq!(answers[2]["unavailable"], true);
        assert!(answers[2].get("runId").is_none(), "nobody was asked");
        assert_eq!(children(&client, HOST).await.len(), 2);
        let seen = until_ended(&mut events, &host.id).await;
        let told: Vec<&Value> = seen
            .iter()
            .filter(|event| event["kind"] == "delegation.breaker")
            .collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0]["data"]["agent"], "helper");
        assert_eq!(told[0]["data"]["state"], "open");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn b4_a_breaker_says_once_that_it_is_open_also_of_calls_that_are_under_way() {
    let task = |text: &str| json!({ "task_summary": text });
    let place = host(
        Script::new()
            .on("[kid a]", [fails("no model today").held_by("a")])
            .on("[kid b]", [fails("no model today").held_by("b")])
            .on(
                "[host]",
                [
                    calls("subagent_helper", task("[kid a]"))
                        .and("subagent_helper", task("[kid b]")),
                    says("host is done"),
                ],
            ),
        "",
    )
    .with_agent(
        "host",
        "mode: primary\ntools: [read]\nlinked_agents: [{agent: helper, session: own}]",
    )
    .with("delegation.breaker.failures", "1")
    .with("delegation.breaker.cool_off", "\"1h\"");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut events = client.subscribe(json!({ "since": 0 })).await;
        let host = turn(&client, "[host]").await;
        client.in_state(&host.id, "paused").await;
        place.let_go("a");
        place.let_go("b");
        assert_eq!(client.ended(&host.id).await["result"], "host is done");
        assert_eq!(children(&client, HOST).await.len(), 2);
        let seen = until_ended(&mut events, &host.id).await;
        let told: Vec<&Value> = seen
            .iter()
            .filter(|event| event["kind"] == "delegation.breaker")
            .collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0]["data"]["state"], "open");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_called_run_that_is_done_again_may_do_no_more_than_before() {
    let writes = || calls("write", json!({ "path": "made.txt", "content": "x" }));
    let place = host(
        Script::new()
            .on("[kid]", [writes(), says("kid is done")])
            .on(
                "[host]",
                [calls("call_helper", message("[kid]")), says("host is done")],
            ),
        "",
    )
    .with_agent("helper", "mode: subagent\ntools: [write]")
    .with_agent(
        "host",
        "mode: primary\ntools: [read]\ngate: {write: deny}\nlinked_agents: [{agent: helper, \
         session: shared}]",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let host = turn(&client, "[host]").await;
        assert_eq!(client.ended(&host.id).await["result"], "host is done");
        let [kid] = &children(&client, HOST).await[..] else {
            panic!("expected exactly one called run");
        };
        let again = client
            .call("runs.retry", json!({ "runId": kid["runId"] }))
            .await;
        let again = client.ended(again["runId"].as_str().unwrap()).await;
        assert_eq!(again["result"], "kid is done", "{again}");
        let key = json!({ "sessionKey": again["sessionKey"] });
        let history = client.call("sessions.history", key).await.to_string();
        assert!(
            history.contains("deny") || history.contains("denied"),
            "{history}"
        );
        assert!(!place.work().join("made.txt").exists(), "{history}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn b1_a_called_one_may_do_no_more_than_its_caller_and_leaves_the_session_as_it_was() {
    let place = host(
        Script::new()
            .on(
                "[kid]",
                [
                    calls("read", json!({ "path": "notes.txt" })),
                    calls("glob", json!({ "pattern": "*.txt" })),
                    says("kid is done"),
                ],
            )
            .on(
                "[host]",
                [
                    calls("call_helper", message("[kid]")),
                    calls("glob", json!({ "pattern": "*.txt" })),
                    says("host is done"),
                ],
            ),
        "",
    )
    .with_agent(
        "helper",
        "mode: subagent\ntools: [read, glob]\ngate: {glob: deny}",
    )
    .with_agent(
        "host",
        "mode: primary\ntools: [read, glob]\ngate: {read: deny}\nlinked_agents: [{agent: helper, \
         session: shared}]",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let host = turn(&client, "[host]").await;
        assert_eq!(client.ended(&host.id).await["result"], "host is done");
        let answers = tool_results(&client, HOST).await;
        assert!(
            answers[0].to_string().contains("denied"),
            "the caller's rule: {answers:?}"
        );
        assert!(
            answers[1].to_string().contains("denied"),
            "its own rule: {answers:?}"
        );
        assert_eq!(answers[2]["result"], "kid is done");
        assert!(answers[3].to_string().contains("notes.txt"), "{answers:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn b1_cancelling_a_called_one_ends_it_and_nothing_else() {
    let place = host(
        Script::new()
            .on("[kid]", [says("never").held_by("never")])
            .on(
                "[host]",
                [calls("call_helper", message("[kid]")), says("host is done")],
            ),
        "",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let host = turn(&client, "[host]").await;
        client.in_state(&host.id, "paused").await;
        let kid = children(&client, HOST).await[0]["runId"]
            .as_str()
            .unwrap()
            .to_owned();
        client.in_state(&kid, "running").await;
        client.call("runs.cancel", json!({ "runId": kid })).await;
        assert_eq!(client.ended(&host.id).await["result"], "host is done");
        assert_eq!(client.ended(&kid).await["state"], "cancelled");
        assert_eq!(tool_results(&client, HOST).await[0]["kind"], "cancelled");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn b3_what_a_called_one_uses_is_booked_to_it_and_to_the_session() {
    let place = host(
        Script::new().on("[kid]", [says("kid is done")]).on(
            "[host]",
            [calls("call_helper", message("[kid]")), says("host is done")],
        ),
        "",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let host = turn(&client, "[host]").await;
        let ended = client.ended(&host.id).await;
        let kid = &children(&client, HOST).await[0];
        assert_eq!(ended["usage"]["modelCalls"], 2);
        assert_eq!(kid["usage"]["modelCalls"], 1);
        assert_eq!(kid["rootRunId"], host.id.as_str());
        assert_eq!(kid["traceId"], ended["traceId"]);
        let session = client
            .call("sessions.get", json!({ "sessionKey": HOST }))
            .await;
        assert_eq!(session["usage"]["modelCalls"], 3, "{session}");
        assert_eq!(daemon.stop().await, 0);
    });
}
