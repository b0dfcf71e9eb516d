//! abide as an MCP server: over the pipes of `abide mcp-serve` and at `/mcp`, for hosts of both
//! revisions.

pub(crate) mod host;
mod outside;
mod search;
mod tasks;

use std::collections::BTreeSet;

use boon::{Compiler, Schemas};
use serde_json::{Value, json};

use crate::harness::{Daemon, Place, Script, calls, eventually, run, says};
use host::{Era, HttpHost, PipeHost, failure, initialize, structured};

const TOOLS: [&str; 10] = [
    "spawn",
    "wait",
    "send",
    "status",
    "result",
    "list",
    "cancel",
    "inbox",
    "ack",
    "search_history",
];

fn place() -> Place {
    Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[b]", [says("b is done").held_by("go")])
            .on(
                "[look]",
                [
                    calls("grep", json!({ "pattern": "alpha" })),
                    says("found").held_by("look"),
                ],
            )
            .on(
                "[step]",
                [
                    calls("grep", json!({ "pattern": "alpha" })).held_by("step"),
                    says("found").held_by("look"),
                ],
            )
            .on("[more]", [says("more is said")])
            .on("[long]", [says(&"long ".repeat(40_000))]),
    )
}

/// Waits until the model was asked for the first answer of this rule.
async fn at_work(place: &Place, rule: &str) {
    eventually("the model call", async || {
        let call = (rule.to_owned(), 0);
        place.model_calls().contains_key(&call).then_some(())
    })
    .await;
}

/// Checks a value against a schema of its own, without unknown fields.
fn assert_matches(schema: &Value, value: &Value) {
    let mut schema = schema.clone();
    closed(&mut schema);
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource("schema.json", schema).unwrap();
    let index = compiler.compile("schema.json", &mut schemas).unwrap();
    if let Err(fault) = schemas.validate(value, index) {
        panic!("{value:#}\n{fault:#}");
    }
}

fn closed(schema: &mut Value) {
    if schema.get("properties").is_some() {
        schema["additionalProperties"] = false.into();
    }
    match schema {
        Value::Object(fields) => fields.values_mut().for_each(closed),
        Value::Array(items) => items.iter_mut().for_each(closed),
        _ => {}
    }
}

#[test]
fn a_host_of_either_revision_starts_waits_reads_and_acknowledges_over_pipes() {
    for era in Era::BOTH {
        run(async {
            let place = place();
            let daemon = place.start().await;
            let mut host = PipeHost::start(&place, era);
            let listed = host.request("tools/list", json!({}));
            let tools = listed["result"]["tools"].as_array().unwrap().clone();
            let names: Vec<&str> = tools
                .iter()
                .map(|tool| tool["name"].as_str().unwrap())
                .collect();
            assert_eq!(names, TOOLS);
            let mut called = BTreeSet::new();
            let mut does = |tool: &'static str, arguments: Value| {
                let known = tools.iter().find(|one| one["name"] == tool).unwrap();
                assert_matches(&known["inputSchema"], &arguments);
                let result = host.does(tool, arguments);
                assert_matches(&known["outputSchema"], &result);
                called.insert(tool);
                result
            };
            let empty = does("inbox", json!({}));
            assert_eq!(empty["results"], json!([]));
            let spawned = does("spawn", json!({ "task": "[a]", "label": "first" }));
            let run_id = spawned["runId"].as_str().unwrap().to_owned();
            assert_eq!(spawned["status"], "accepted");
            let waited = does("wait", json!({ "runIds": [run_id], "timeout": 240 }));
            assert_eq!(waited["done"], true);
            assert_eq!(waited["runs"][0]["status"], "ok");
            assert_eq!(waited["runs"][0]["result"], "a is done");
            assert_eq!(does("status", json!({ "runId": run_id }))["label"], "first");
            let result = does("result", json!({ "runId": run_id }));
            assert_eq!(result["text"], "a is done");
            let ok = does("list", json!({ "states": ["ok"], "inbox": "mcp:inbox" }));
            assert_eq!(ok["runs"][0]["runId"], run_id);
            let session = spawned["sessionKey"].as_str().unwrap();
            let sent = does(
                "send",
                json!({ "sessionKey": session, "message": "[more]", "timeout": "240s" }),
            );
            assert_eq!(sent["reply"], "more is said");
            let found = does("search_history", json!({ "query": "SAID more" }));
            assert_eq!(found["matches"][0]["sessionKey"], session);
            assert_eq!(found["matches"].as_array().unwrap().len(), 1);
            let inbox = does("inbox", json!({}));
            let announce = inbox["results"][0]["announceId"].clone();
            assert_eq!(inbox["results"][0]["result"], "a is done");
            let acked = does("ack", json!({ "announceIds": [announce] }));
            assert_eq!(acked["announceIds"], json!([announce]));
            assert_eq!(does("inbox", json!({}))["results"], json!([]));
            let held = does("spawn", json!({ "task": "[b]" }));
            let held = held["runId"].as_str().unwrap().to_owned();
            let early = does("wait", json!({ "runIds": [run_id, held], "timeout": 0 }));
            assert_eq!(early["done"], false);
            assert_eq!(early["runs"][1]["status"], "pending");
            let cancelled = does("cancel", json!({ "runId": held, "reason": "not needed" }));
            assert_eq!(cancelled["cancelled"], json!([held]));
            let ended = does("wait", json!({ "runIds": [held], "timeout": 240 }));
            assert_eq!(ended["runs"][0]["status"], "cancelled");
            assert_eq!(called.into_iter().collect::<Vec<_>>(), {
                let mut all = TOOLS;
                all.sort_unstable();
                all
            });
            assert_eq!(host.hang_up(), 0);
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn a_host_of_either_revision_is_served_over_http_without_a_session() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        for era in Era::BOTH {
            let host = HttpHost::of(&daemon, era);
            if era == Era::Legacy {
                let hello = host.post(&host.message("initialize", initialize())).await;
                let hello = hello.unwrap();
                assert!(!hello.head.contains("mcp-session-id"), "{hello:?}");
                assert_eq!(hello.response()["result"]["protocolVersion"], era.version());
                let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
                assert_eq!(host.post(&ready).await.unwrap().status, 202);
            } else {
                let hello = host.request("server/discover", json!({})).await;
                let known = hello["result"]["supportedVersions"].as_array().unwrap();
                assert!(known.contains(&era.version().into()), "{hello}");
            }
            let listed = host.request("tools/list", json!({})).await;
            assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 10);
            let spawned = host.does("spawn", json!({ "task": "[a]" })).await;
            let wait = json!({ "runIds": [spawned["runId"]], "timeout": 240 });
            assert_eq!(
                host.does("wait", wait).await["runs"][0]["result"],
                "a is done"
            );
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g10_1_web_pages_and_strangers_do_not_reach_the_mcp_server() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        for era in Era::BOTH {
            let host = HttpHost::of(&daemon, era);
            let list = host.message("tools/list", json!({}));
            let status = async |host: HttpHost| host.post(&list).await.unwrap().status;
            assert_eq!(status(host.clone()).await, 200);
            let rebound = host.clone().with_header("host", "evil.example");
            assert_eq!(status(rebound).await, 403);
            let page = host.clone().with_header("origin", "http://evil.example");
            assert_eq!(status(page).await, 403);
            let stranger = HttpHost::at(daemon.url(), None, era);
            let refused = stranger.post(&list).await.unwrap();
            assert_eq!(refused.status, 401);
            assert!(
                refused.head.contains("www-authenticate: Bearer"),
                "{refused:?}"
            );
            let wrong = HttpHost::at(daemon.url(), Some("wrong"), era);
            assert_eq!(status(wrong).await, 401);
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn calls_of_a_host_have_the_rights_of_its_token_and_are_audited() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let create = json!({ "user": "ann", "scopes": ["read"] });
        let made = client.call("tokens.create", create).await;
        let token = made["secret"].as_str().unwrap();
        let reader = HttpHost::at(daemon.url(), Some(token), Era::Modern);
        assert_eq!(reader.does("list", json!({})).await["runs"], json!([]));
        let refused = reader
            .call("spawn", json!({ "task": "[a]" }))
            .await
            .unwrap();
        let text = failure(&refused);
        assert!(
            text.starts_with("forbidden: ") && text.contains("run"),
            "{text}"
        );
        let owner = HttpHost::of(&daemon, Era::Modern);
        let spawned = owner.does("spawn", json!({ "task": "[a]" })).await;
        client.ended(spawned["runId"].as_str().unwrap()).await;
        let params = json!({ "method": "sessions.spawn" });
        let audit = client.call("gateway.audit", params).await;
        let entries = audit["entries"].as_array().unwrap().iter();
        let done = entries.filter(|entry| entry["outcome"] == "ok");
        assert_eq!(done.count(), 1, "{audit}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn the_same_idempotency_key_is_the_same_run_over_every_way() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawn = || json!({ "task": "[a]", "idempotencyKey": "mine" });
        let first = HttpHost::of(&daemon, Era::Modern)
            .does("spawn", spawn())
            .await;
        let second = HttpHost::of(&daemon, Era::Legacy)
            .does("spawn", spawn())
            .await;
        let third = PipeHost::start(&place, Era::Modern).does("spawn", spawn());
        assert_eq!(first["runId"], second["runId"]);
        assert_eq!(first["runId"], third["runId"]);
        client.ended(first["runId"].as_str().unwrap()).await;
        let runs = client.call("runs.list", json!({ "total": true })).await;
        assert_eq!(runs["total"], 1);
        // Another task with that key is a mistake that the model hears of.
        let other = json!({ "task": "[b]", "idempotencyKey": "mine" });
        let refused = HttpHost::of(&daemon, Era::Modern)
            .call("spawn", other)
            .await;
        assert!(failure(&refused.unwrap()).starts_with("conflict: "));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_wait_notifies_of_progress_and_its_cancellation_ends_nothing_else() {
    for era in Era::BOTH {
        run(async {
            let place = place();
            let daemon = place.start().await;
            let mut host = PipeHost::start(&place, era);
            let spawned = host.does("spawn", json!({ "task": "[step]" }));
            let run_id = spawned["runId"].as_str().unwrap().to_owned();
            let wait = |token: &str| {
                json!({
                    "name": "wait",
                    "arguments": { "runIds": [run_id], "timeout": "1h" },
                    "_meta": { "progressToken": token },
                })
            };
            // Cancelled: no answer comes, the run goes on, and later requests are answered.
            let id = host.send("tools/call", wait("first"));
            waits(&daemon, 1.0).await;
            let cancel = json!({
                "jsonrpc": "2.0", "method": "notifications/cancelled",
                "params": { "requestId": id, "reason": "enough" },
            });
            host.write(&cancel);
            let status = host.does("status", json!({ "runId": run_id }));
            assert_eq!(status["status"], "pending");
            at_work(&place, "[step]").await;
            let id = host.send("tools/call", wait("second"));
            // The daemon lets go of the cancelled one when its time is over.
            waits(&daemon, 2.0).await;
            place.let_go("step");
            // The call of the tool, or at the latest a sign of life.
            let note = host.note();
            assert_eq!(note["method"], "notifications/progress");
            assert_eq!(note["params"]["progressToken"], "second", "{note}");
            place.let_go("look");
            let answer = host.answer(id);
            let waited = structured(&answer);
            assert_eq!(waited["runs"][0]["result"], "found");
            let mut last = 0.0;
            for note in [&note].into_iter().chain(&host.notes) {
                assert_eq!(note["params"]["progressToken"], "second", "{note}");
                assert_eq!(note["method"], "notifications/progress");
                let progress = note["params"]["progress"].as_f64().unwrap();
                assert!(progress > last, "{note}");
                last = progress;
                assert!(note["params"]["message"].is_string(), "{note}");
            }
            assert_eq!(host.hang_up(), 0);
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

/// Waits until this number of `agent.wait` calls is open in the daemon.
async fn waits(daemon: &Daemon, count: f64) {
    eventually("the wait", async || {
        let numbers = crate::metrics::numbers(daemon);
        (numbers["abide_waits_open"] == count).then_some(())
    })
    .await;
}

#[test]
fn progress_over_http_comes_before_the_answer() {
    run(async {
        for era in Era::BOTH {
            let place = place();
            let daemon = place.start().await;
            let host = HttpHost::of(&daemon, era);
            let spawned = host.does("spawn", json!({ "task": "[step]" })).await;
            let params = json!({
                "name": "wait",
                "arguments": { "runIds": [spawned["runId"]], "timeout": "1h" },
                "_meta": { "progressToken": 5 },
            });
            let message = host.message("tools/call", params);
            let release = || place.let_go("look");
            let wait = host.post_until(&message, "notifications/progress", release);
            let step = async {
                waits(&daemon, 1.0).await;
                place.let_go("step");
            };
            let (answer, ()) = tokio::join!(wait, step);
            let answer = answer.unwrap();
            let messages = answer.messages();
            let (last, notes) = messages.split_last().unwrap();
            assert_eq!(structured(last)["done"], true, "{last}");
            assert!(!notes.is_empty());
            for note in notes {
                assert_eq!(note["method"], "notifications/progress", "{note}");
                assert_eq!(note["params"]["progressToken"], 5);
            }
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn a_wait_over_pipes_survives_a_kill_of_the_daemon() {
    for era in Era::BOTH {
        run(async {
            let place = place();
            let daemon = place.start().await;
            let mut host = PipeHost::start(&place, era);
            let spawned = host.does("spawn", json!({ "task": "[b]" }));
            at_work(&place, "[b]").await;
            let wait = json!({ "runIds": [spawned["runId"]], "timeout": "1h" });
            let id = host.send("tools/call", json!({ "name": "wait", "arguments": wait }));
            waits(&daemon, 1.0).await;
            daemon.kill().await;
            let daemon = place.start().await;
            place.let_go("go");
            let waited = structured(&host.answer(id));
            assert_eq!(waited["runs"][0]["result"], "b is done");
            assert_eq!(
                host.does("inbox", json!({}))["results"][0]["result"],
                "b is done"
            );
            assert_eq!(host.hang_up(), 0);
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn a_wait_over_http_is_repeated_after_a_kill_with_no_new_handshake() {
    for era in Era::BOTH {
        run(async {
            let place = place();
            let daemon = place.start().await;
            let host = HttpHost::of(&daemon, era);
            let spawned = host.does("spawn", json!({ "task": "[b]" })).await;
            let wait = || json!({ "runIds": [spawned["runId"]], "timeout": "1h" });
            let waiting = host.call("wait", wait());
            let killing = async {
                waits(&daemon, 1.0).await;
                daemon.kill().await;
            };
            let (lost, ()) = tokio::join!(waiting, killing);
            assert!(lost.is_none(), "{lost:?}");
            let daemon = place.start().await;
            let host = HttpHost::of(&daemon, era);
            place.let_go("go");
            assert_eq!(
                host.does("wait", wait()).await["runs"][0]["result"],
                "b is done"
            );
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn a_drain_does_not_end_a_wait_over_pipes() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut host = PipeHost::start(&place, Era::Legacy);
        let spawned = host.does("spawn", json!({ "task": "[b]" }));
        at_work(&place, "[b]").await;
        let wait = json!({ "runIds": [spawned["runId"]], "timeout": "1h" });
        let id = host.send("tools/call", json!({ "name": "wait", "arguments": wait }));
        waits(&daemon, 1.0).await;
        assert_eq!(daemon.stop().await, 0);
        let daemon = place.start().await;
        place.let_go("go");
        assert_eq!(
            structured(&host.answer(id))["runs"][0]["result"],
            "b is done"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn mistakes_are_told_to_the_model_and_only_strays_are_errors_of_the_protocol() {
    for era in Era::BOTH {
        run(async {
            let place = place();
            let daemon = place.start().await;
            let mut host = PipeHost::start(&place, era);
            let missing = "01936f0e-0000-7000-8000-000000000001";
            for (tool, arguments, expected) in [
                ("spawn", json!({}), "invalid_params: missing field `task`"),
                (
                    "spawn",
                    json!({ "task": " " }),
                    "invalid_params: task: it is empty",
                ),
                (
                    "spawn",
                    json!({ "task": "a", "agent": "nope" }),
                    "not_found: ",
                ),
                (
                    "spawn",
                    json!({ "task": "a", "cwd": "here" }),
                    "invalid_params: cwd: ",
                ),
                (
                    "wait",
                    json!({ "runIds": ["x"] }),
                    "invalid_params: runIds: ",
                ),
                ("wait", json!({ "runIds": [] }), "invalid_params: runIds: "),
                ("status", json!({ "runId": missing }), "not_found: no run"),
                ("result", json!({ "runId": missing }), "not_found: no run"),
                ("cancel", json!({ "runId": missing }), "not_found: no run"),
                ("send", json!({ "message": "a" }), "invalid_params: "),
                ("inbox", json!({ "inbox": "no:such" }), "not_found: "),
                (
                    "search_history",
                    json!({ "query": "a", "cursor": "x" }),
                    "invalid_params: cursor",
                ),
            ] {
                let text = failure(&host.call(tool, arguments));
                assert!(text.starts_with(expected), "{tool}: {text}");
                assert!(text.contains("\nHint: "), "{tool}: {text}");
            }
            let unknown = host.call("explode", json!({}));
            assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
            let unknown = host.request("no/such", json!({}));
            assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
            let code = match era {
                Era::Legacy => -32002,
                Era::Modern => -32602,
            };
            let uri = format!("abide://result/{missing}");
            for uri in [&uri, "abide://other/x", "file:///etc/passwd"] {
                let read = host.request("resources/read", json!({ "uri": uri }));
                assert_eq!(read["error"]["code"], code, "{read}");
            }
            // Bytes that are no message do not end the connection.
            host.write(&json!("no message"));
            let run = host.does("spawn", json!({ "task": "[a]" }));
            let wait = json!({ "runIds": [run["runId"]], "timeout": 240 });
            assert_eq!(host.does("wait", wait)["done"], true);
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn results_transcripts_and_skills_are_resources() {
    run(async {
        let place = place();
        let skill = place.path().join(".agents/skills/tidy");
        std::fs::create_dir_all(&skill).unwrap();
        let text = "---\nname: tidy\ndescription: Tidies up.\n---\nPut it away.\n";
        std::fs::write(skill.join("SKILL.md"), text).unwrap();
        let daemon = place.start().await;
        let mut host = PipeHost::start(&place, Era::Modern);
        let spawned = host.does("spawn", json!({ "task": "[a] & more" }));
        let (run_id, session) = (
            spawned["runId"].as_str().unwrap().to_owned(),
            spawned["sessionKey"].as_str().unwrap().to_owned(),
        );
        host.does("wait", json!({ "runIds": [run_id], "timeout": 240 }));
        let mut uris = Vec::new();
        let mut params = json!({});
        loop {
            let page = host.request("resources/list", params);
            let resources = page["result"]["resources"].as_array().unwrap();
            uris.extend(
                resources
                    .iter()
                    .map(|one| one["uri"].as_str().unwrap().to_owned()),
            );
            match page["result"]["nextCursor"].as_str() {
                Some(cursor) => params = json!({ "cursor": cursor }),
                None => break,
            }
        }
        let mut read = |uri: &str| {
            assert!(uris.iter().any(|one| one == uri), "{uri} in {uris:?}");
            let read = host.request("resources/read", json!({ "uri": uri }));
            let text = read["result"]["contents"][0]["text"].as_str();
            text.unwrap_or_else(|| panic!("{read}")).to_owned()
        };
        assert_eq!(read(&format!("abide://result/{run_id}")), "a is done");
        let transcript = read(&format!("abide://transcript/{session}"));
        assert!(transcript.contains("[a] & more"), "{transcript}");
        assert!(transcript.contains("a is done"), "{transcript}");
        assert!(read("abide://skill/tidy").contains("Put it away."));
        let templates = host.request("resources/templates/list", json!({}));
        assert_eq!(
            templates["result"]["resourceTemplates"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_long_result_is_read_in_parts() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let host = HttpHost::of(&daemon, Era::Modern);
        let spawned = host.does("spawn", json!({ "task": "[long]" })).await;
        let wait = json!({ "runIds": [spawned["runId"]], "timeout": 240 });
        let waited = host.does("wait", wait).await;
        assert_eq!(waited["runs"][0]["resultTruncated"], true);
        let (mut whole, mut offset) = (String::new(), json!(0));
        while !offset.is_null() {
            let params = json!({ "runId": spawned["runId"], "offset": offset });
            let part = host.does("result", params).await;
            whole.push_str(part["text"].as_str().unwrap());
            offset = part["nextOffset"].clone();
        }
        let run = daemon.client().await;
        let run = run.run(spawned["runId"].as_str().unwrap()).await;
        assert_eq!(run["result"], whole);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_search_goes_on_where_the_previous_call_stopped() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let host = HttpHost::of(&daemon, Era::Modern);
        for index in 0..7 {
            let task = format!("[a] needle number {index}");
            let spawned = host.does("spawn", json!({ "task": task })).await;
            let wait = json!({ "runIds": [spawned["runId"]], "timeout": 240 });
            host.does("wait", wait).await;
        }
        let mut found = BTreeSet::new();
        let mut params = json!({ "query": "needle", "limit": 2 });
        loop {
            let page = host.does("search_history", params.clone()).await;
            for one in page["matches"].as_array().unwrap() {
                let key = (one["sessionKey"].to_string(), one["seq"].as_i64());
                assert!(found.insert(key), "twice: {one}");
                assert!(one["text"].as_str().unwrap().contains("needle"));
            }
            match page["nextCursor"].as_str() {
                Some(cursor) => params["cursor"] = cursor.into(),
                None => break,
            }
        }
        let sessions = found.iter().map(|(key, _)| key);
        // The inbox has their results, with the tasks.
        let sessions: BTreeSet<_> = sessions.filter(|key| key.contains("subagent")).collect();
        assert_eq!(sessions.len(), 7, "{found:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_host_starts_the_daemon_that_it_needs() {
    run(async {
        let place = place();
        let mut none = PipeHost::start_without_daemon(&place);
        let text = failure(&none.call("list", json!({})));
        assert!(text.starts_with("unavailable: "), "{text}");
        assert_eq!(none.hang_up(), 0);
        let mut host = PipeHost::start(&place, Era::Legacy);
        assert_eq!(host.does("list", json!({}))["runs"], json!([]));
        assert_eq!(host.hang_up(), 0);
        let stopped = place.command(&["stop"]).output().unwrap();
        assert!(stopped.status.success(), "{stopped:?}");
    });
}
