//! `rpc.discover` matches the implementation: it lists every method, answers and events match its
//! schemas, and parameters that violate it are refused. A third-party validator confirms it.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use crate::harness::peers;
use crate::harness::{
    Daemon, FakeLink, Link, NodeKey, Place, Script, calls, eventually, fails, kind_of, run, says,
};
use crate::house::root;
use crate::schemas::Document;

const RUN: &str = "01936f0e-0000-7000-8000-000000000001";
const SESSION: &str = "agent:build:desk";

/// The webhook of the examples. It has no address, so nothing is sent.
const WEBHOOK: (&str, &str) = ("webhooks.audit.kinds", "[\"run.ended\"]");

/// Waits until the webhook is configured, which happens behind the start.
async fn has_webhook(client: &Link) {
    eventually("the webhook", async || {
        let listed = client.call("webhooks.list", json!({})).await;
        (listed["webhooks"][0]["name"] == "audit").then_some(())
    })
    .await;
}

fn script() -> Script {
    Script::new()
        .on("[say]", [says("said")])
        .on(
            "[look]",
            [
                calls("grep", json!({"pattern": "alpha"})).and("read", json!({"path": "none"})),
                says("alpha is in notes.txt:1"),
            ],
        )
        .on("[fail]", [fails("the model is down")])
        .on(
            "[ask]",
            [
                calls(
                    "ask",
                    json!({"question": "which port?", "choices": ["80", "81"]}),
                ),
                says("asked"),
            ],
        )
        .on("[leave]", [calls("list", json!({})), says("listed")])
        .on("Where", [says("In src/one.rs.")])
        .on("What", [says("Two files.")])
        .on("[hold]", [says("held").held_by("go")])
        .on("[later]", [says("late").held_by("later")])
        .on("[last]", [says("at last").held_by("never")])
        .on_announce("[", [says("NO_REPLY")])
}

async fn document(client: &Link) -> Document {
    Document::new(client.call("rpc.discover", json!({})).await)
}

/// A connection that checks each call and its answer against the document.
struct Checked {
    link: Link,
    document: Document,
    called: BTreeSet<String>,
}

impl Checked {
    async fn call(&mut self, method: &str, params: Value) -> Value {
        let faults = self.document.faults_of_params(method, &params);
        assert!(faults.is_empty(), "{method} {params}: {faults:#?}");
        let answer = self.link.call(method, params).await;
        self.document.assert_result(method, &answer);
        self.called.insert(method.to_owned());
        answer
    }

    /// Makes a call that may be refused because of the current state; an answer must match its
    /// schema.
    async fn attempt(&mut self, method: &str, params: Value) {
        match self.link.attempt(method, &params).await {
            Ok(answer) => self.document.assert_result(method, &answer),
            Err(error) => {
                let error = error.expect("the link must not be lost");
                assert_ne!(kind_of(&error), "internal", "{method}: {error}");
            }
        }
        self.called.insert(method.to_owned());
    }

    /// Calls every method with its own example, in an order in which each finds what it refers to.
    async fn examples(&mut self) {
        let first = [
            "sessions.create",
            "sessions.spawn",
            "agents.create",
            "agents.update",
        ];
        // They need specific state and are called in the scenario.
        let last = [
            "events.unsubscribe",
            "questions.answer",
            "approvals.resolve",
            "runs.output",
            "tokens.revoke",
            "runs.resolve",
            "runs.provide_env",
            "runs.steer",
            "runs.retry",
            "runs.retry_announce",
            "runs.dismiss_announce",
            "sessions.reset",
            "sessions.delete",
            "sessions.compact",
            "trust.add",
            "trust.revoke",
            "gateway.cancel_runs",
            "gateway.drain",
            "nodes.get",
            "nodes.approve",
            "nodes.refuse",
            "nodes.rename",
            "nodes.remove",
            "nodes.answer",
            "nodes.call",
        ];
        let mut methods = self.document.methods();
        methods.sort_by_key(|name| {
            let first = first
                .iter()
                .position(|of| of == name)
                .unwrap_or(first.len());
            (last.contains(&name.as_str()), first)
        });
        for name in methods {
            let examples = self.document.method(&name)["examples"].clone();
            let examples = examples.as_array().unwrap_or_else(|| {
                panic!("{name} has no example: give it its row in wire/methods.rs")
            });
            for example in examples {
                // Without a value, it would be an example of a notification.
                let result = &example["result"]["value"];
                self.document.assert_result(&name, result);
                let params = example["params"].as_array().unwrap().iter();
                let params: Map<String, Value> = params
                    .map(|param| (text(&param["name"]), param["value"].clone()))
                    .collect();
                if last.contains(&name.as_str()) {
                    let params = Value::Object(params);
                    let faults = self.document.faults_of_params(&name, &params);
                    assert!(faults.is_empty(), "{name}: {faults:#?}");
                    continue;
                }
                self.call(&name, Value::Object(params)).await;
            }
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[test]
fn answers_and_events_are_what_the_document_says() {
    run(async {
        let place = Place::new(script())
            .with(WEBHOOK.0, WEBHOOK.1)
            .with("defaults.max_spawn_depth", "2")
            .with_agent("careful", "gate: {list: ask}");
        let daemon = place.start().await;
        let link = daemon.client().await;
        has_webhook(&link).await;
        let document = document(&link).await;
        let mut client = Checked {
            link,
            document,
            called: BTreeSet::new(),
        };
        client.examples().await;
        course(&mut client, &place).await;
        nodes(&mut client, &daemon).await;
        let hello = client.call("gateway.hello", json!({})).await;
        client
            .call("gateway.cancel_runs", json!({"reason": "enough"}))
            .await;
        client.call("gateway.drain", json!({"then": "stop"})).await;

        let document = client.document;
        let all: BTreeSet<String> = document.methods().into_iter().collect();
        assert_eq!(client.called, all, "each method was called and checked");
        let capabilities: BTreeSet<String> = hello["capabilities"]
            .as_array()
            .unwrap()
            .iter()
            .map(text)
            .collect();
        assert_eq!(capabilities, all, "each method is in the document");

        let mut daemon = daemon;
        assert_eq!(daemon.ended().await.code(), Some(0));
        let mut kinds = BTreeSet::new();
        for event in place.book().events.values() {
            document.assert_event(&event.kind, &event.data);
            kinds.insert(event.kind.clone());
        }
        for kind in [
            "session.created",
            "run.queued",
            "run.started",
            "run.step",
            "run.settling",
            "run.ended",
            "message.added",
            "announce.queued",
            "announce.delivered",
            "announce.acked",
            "tool.started",
            "tool.completed",
            "question.asked",
            "question.answered",
            "approval.requested",
            "approval.resolved",
            "gateway.started",
        ] {
            assert!(kinds.contains(kind), "{kind} was never seen: {kinds:?}");
        }
    });
}

/// Produces answers of many shapes: succeeded, failed, open and unknown runs, with announces and
/// tools.
async fn course(client: &mut Checked, place: &Place) {
    let bot = json!({"owner": "client", "key": "client:bot", "label": "bot", "title": "A bot"});
    client.call("sessions.create", bot).await;
    let mut runs = Vec::new();
    for task in ["[say]", "[look]", "[fail]", "[hold]"] {
        let params = json!({
            "task": task, "agent": "explore", "parent": "client:bot", "label": task,
            "runTimeout": "10m", "meta": {"route": [1, null]}, "announce": "inbox",
            "cleanup": "keep", "mode": "run", "context": "isolated", "idempotencyKey": task,
        });
        let spawned = client.call("sessions.spawn", params).await;
        runs.push(text(&spawned["runId"]));
    }
    for id in &runs[..3] {
        client.link.ended(id).await;
    }
    client.link.in_state(&runs[3], "running").await;
    let mut ids = runs.clone();
    ids.push(RUN.replace('1', "2"));
    let params = json!({"runIds": ids, "mode": "any", "waitTimeout": 0});
    let waited = client.call("agent.wait", params).await;
    assert_eq!(waited["runs"][4]["status"], "not_found");
    for id in &runs {
        client.call("runs.get", json!({"runId": id})).await;
        client
            .call("runs.steps", json!({"runId": id, "limit": 1}))
            .await;
        client.call("runs.steps", json!({"runId": id})).await;
    }
    for params in [
        json!({}),
        json!({"parent": "client:bot", "states": ["ok", "running"], "undelivered": true}),
        json!({"agent": "explore", "label": "[say]", "limit": 1}),
        json!({"tree": runs[0], "createdAfter": "2020-01-01T00:00:00.000Z"}),
    ] {
        client.call("runs.list", params).await;
    }
    let steps = client
        .link
        .call("runs.steps", json!({"runId": runs[1]}))
        .await;
    let output = json!({"runId": runs[1], "toolCallId": steps["steps"][1]["toolCallId"]});
    client.call("runs.output", output).await;
    let looked = client.call("runs.get", json!({"runId": runs[1]})).await;
    let key = &looked["sessionKey"];
    client
        .call("sessions.history", json!({"sessionKey": key}))
        .await;
    let params = json!({"sessionKey": key, "after": 1, "limit": 2, "tools": false});
    client.call("sessions.history", params).await;
    client
        .call("sessions.list", json!({"kind": "child", "limit": 1}))
        .await;
    client.call("sessions.list", json!({"search": "bot"})).await;
    client
        .call("sessions.get", json!({"sessionKey": "client:bot"}))
        .await;
    // Ends are announced a moment later.
    eventually("three announces", async || {
        let params = json!({"sessionKey": "client:bot"});
        let inbox = client.link.call("sessions.inbox", params).await;
        (inbox["announces"].as_array()?.len() == 3).then_some(())
    })
    .await;
    let inbox = client
        .call("sessions.inbox", json!({"sessionKey": "client:bot"}))
        .await;
    let announces = inbox["announces"].as_array().unwrap();
    let ids: Vec<&Value> = announces.iter().map(|entry| &entry["announceId"]).collect();
    assert_eq!(ids.len(), 3);
    let params = json!({"sessionKey": "client:bot", "announceIds": ids});
    client.call("sessions.ack", params).await;
    let params = json!({"sessionKey": "client:bot", "acked": true, "limit": 2});
    client.call("sessions.inbox", params).await;

    // A run whose turn ends before its own child's.
    let held = client.call("runs.get", json!({"runId": runs[3]})).await;
    let params = json!({"task": "[later]", "agent": "explore", "parent": held["sessionKey"]});
    let later = client.call("sessions.spawn", params).await;
    place.let_go("go");
    client.link.in_state(&runs[3], "settling").await;
    client.call("runs.get", json!({"runId": runs[3]})).await;
    place.let_go("later");
    client.link.ended(&text(&later["runId"])).await;
    client.link.ended(&runs[3]).await;
    let params = json!({"sessionKey": SESSION, "message": "[say]", "model": "script/x"});
    client.call("agent.run", params).await;
    client.call("agents.list", json!({})).await;
    let of_session = json!({"sessionKey": SESSION});
    client.call("tools.list", of_session).await;
    client.call("mcp.list", json!({})).await;
    client
        .call("skills.list", json!({"name": "delegate"}))
        .await;
    let skills = json!({"agent": "build"});
    client.call("skills.snapshot", skills).await;
    client
        .call("skills.refresh", json!({"sessionKey": SESSION}))
        .await;
    client.call("gateway.status", json!({})).await;
    let again = client.call("runs.retry", json!({"runId": runs[2]})).await;
    client.link.ended(&text(&again["runId"])).await;
    let told = json!({"task": "[say]", "agent": "explore", "parent": "client:bot"});
    let told = client.call("sessions.spawn", told).await;
    client.link.ended(&text(&told["runId"])).await;
    for method in ["runs.dismiss_announce", "runs.retry_announce"] {
        client
            .attempt(method, json!({"runId": told["runId"]}))
            .await;
    }
    let asks = json!({"task": "[ask]", "agent": "build"});
    let asks = client.call("sessions.spawn", asks).await;
    client.link.in_state(&text(&asks["runId"]), "paused").await;
    client
        .call("runs.get", json!({"runId": asks["runId"]}))
        .await;
    let open = client
        .call("questions.list", json!({"state": "open"}))
        .await;
    let answer = json!({"id": open["questions"][0]["id"], "choice": "80"});
    client.call("questions.answer", answer).await;
    client.link.ended(&text(&asks["runId"])).await;
    let leave = json!({"task": "[leave]", "agent": "careful"});
    let leave = client.call("sessions.spawn", leave).await;
    client.link.in_state(&text(&leave["runId"]), "paused").await;
    client
        .call("runs.get", json!({"runId": leave["runId"]}))
        .await;
    let open = client
        .call("approvals.list", json!({"state": "open"}))
        .await;
    let id = &open["approvals"][0]["id"];
    let allow = json!({"id": id, "decision": "allow", "remember": "agent"});
    client.call("approvals.resolve", allow).await;
    client.link.ended(&text(&leave["runId"])).await;
    client.call("approvals.list", json!({})).await;
    client.call("approvals.remembered", json!({})).await;
    client.call("approvals.forget", json!({"id": id})).await;
    let said = json!({"sessionKey": SESSION, "message": "[say]", "waitTimeout": "1m"});
    client.call("sessions.send", said).await;
    let late = json!({"task": "[last]", "agent": "explore"});
    let late = client.call("sessions.spawn", late).await;
    let (late, key) = (text(&late["runId"]), late["childSessionKey"].clone());
    client.link.in_state(&late, "running").await;
    let steer = json!({"runId": late, "message": "Look again."});
    client.call("runs.steer", steer).await;
    // It has no interrupted call; `runs.resolve` with one is tested by the kill scenarios.
    let said = json!({"runId": late, "stepId": late, "decision": "done"});
    client.attempt("runs.resolve", said).await;
    // It has no environment of its own; providing a value is tested where a run lacks one.
    let given = json!({"runId": late, "env": {}});
    client.call("runs.provide_env", given).await;
    client
        .call("runs.cancel", json!({"runId": late, "reason": "enough"}))
        .await;
    client.link.ended(&late).await;
    client.call("runs.get", json!({"runId": late})).await;
    client
        .call("sessions.cancel", json!({"sessionKey": key}))
        .await;
    let patch = json!({"sessionKey": key, "label": "late", "title": null});
    client.call("sessions.patch", patch).await;
    let compacting = client
        .call("sessions.compact", json!({"sessionKey": key}))
        .await;
    client
        .link
        .ended(compacting["runId"].as_str().unwrap())
        .await;
    client
        .call("sessions.reset", json!({"sessionKey": key, "force": true}))
        .await;
    client
        .call("sessions.delete", json!({"sessionKey": key, "force": true}))
        .await;
    let subscription = client
        .call("events.subscribe", json!({"kinds": ["run.*"]}))
        .await;
    let over = json!({"subscription": subscription});
    client.call("events.unsubscribe", over).await;
    let token = client.call("tokens.list", json!({"limit": 1})).await;
    let over = json!({"id": token["tokens"][0]["id"]});
    client.call("tokens.revoke", over).await;
    let folder = place.work();
    std::fs::create_dir_all(folder.join(".abide/agents")).unwrap();
    client.call("trust.add", json!({"folder": folder})).await;
    client.call("trust.list", json!({})).await;
    client.call("trust.revoke", json!({"folder": folder})).await;
}

/// A node is paired and called, and another is refused.
async fn nodes(client: &mut Checked, daemon: &Daemon) {
    let key = NodeKey::new();
    let mut asking = FakeLink::open(daemon.url(), "/pair", None).await.unwrap();
    asking.ask(&key, json!({})).await;
    let code = asking.next_of("waiting").await["code"].clone();
    client.call("nodes.list", json!({})).await;
    let params = json!({"code": code, "name": "mac", "commands": ["system.run"], "roots": []});
    client.call("nodes.approve", params).await;
    let token = text(&asking.next_of("paired").await["token"]);
    let mut other = FakeLink::open(daemon.url(), "/pair", None).await.unwrap();
    other.ask(&NodeKey::new(), json!({})).await;
    let code = other.next_of("waiting").await["code"].clone();
    client.call("nodes.refuse", json!({"code": code})).await;

    let opened = FakeLink::open(daemon.url(), "/node", Some(&token)).await;
    let mut link = opened.unwrap_or_else(|status| panic!("{status}"));
    link.hello(&key, json!({})).await;
    link.next_of("welcome").await;
    client.call("nodes.get", json!({"node": "mac"})).await;
    let operator = daemon.client().await;
    let params = json!({"node": "mac", "id": RUN, "call": {"command": "system.run",
        "argv": ["true"], "cwd": "/", "env": {"A": "b"}, "timeoutMs": 1000, "keep": 10}});
    tokio::join!(client.call("nodes.call", params), async {
        let call = link.next_of("call").await;
        let question = json!({"program": "/bin/true", "argv": ["true"], "cwd": "/",
            "env": ["A"], "digest": "d"});
        link.send(&json!({"type": "ask", "id": RUN, "question": question}))
            .await;
        eventually("the question", async || {
            let shown = operator.call("nodes.list", json!({})).await;
            shown["questions"].get(0).map(drop)
        })
        .await;
        link.done(&call, "").await;
    });
    let answer = json!({"id": RUN, "digest": "d", "decision": "deny"});
    client.attempt("nodes.answer", answer).await;
    let renamed = json!({"node": "mac", "name": "studio"});
    client.call("nodes.rename", renamed).await;
    client.call("nodes.list", json!({})).await;
    client.call("nodes.remove", json!({"node": "studio"})).await;
}

#[test]
fn what_the_document_calls_wrong_is_refused_and_named() {
    run(async {
        let place = Place::new(script());
        let daemon = place.start().await;
        let client = daemon.client().await;
        let document = document(&client).await;
        let mut refused = 0;
        for method in document.methods() {
            refused += wrong_params(&client, &document, &method).await;
        }
        assert!(refused > 200, "{refused} calls were refused");
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Calls `method` with each of its parameters missing, and with many invalid values; returns the
/// number of refusals.
async fn wrong_params(client: &Link, document: &Document, method: &str) -> usize {
    let about = document.method(method);
    let example = &about["examples"][0]["params"];
    let example: Map<String, Value> = example
        .as_array()
        .unwrap()
        .iter()
        .map(|param| (text(&param["name"]), param["value"].clone()))
        .collect();
    let mut refused = 0;
    let mut unknown = example.clone();
    unknown.insert("nonsense".to_owned(), json!(1));
    let error = client.refused(method, unknown.into()).await;
    assert_eq!(error.data["path"], "nonsense", "{method}");
    for param in about["params"].as_array().unwrap() {
        let name = text(&param["name"]);
        if param["required"] == true {
            let mut without = example.clone();
            without.remove(&name);
            let error = client.refused(method, without.into()).await;
            assert_eq!(kind_of(&error), "invalid_params", "{method} without {name}");
            assert_eq!(error.data["path"], name.as_str(), "{method} without {name}");
            refused += 1;
        } else {
            let mut without = example.clone();
            without.remove(&name);
            let faults = document.faults_of_params(method, &without.into());
            assert!(faults.is_empty(), "{method} without {name}: {faults:#?}");
        }
        let long = "x".repeat(300);
        for value in [
            json!(null),
            json!(true),
            json!(-1),
            json!(0),
            json!(1.5),
            json!(501),
            json!(1e300),
            json!(""),
            json!(" "),
            json!("x"),
            json!("../x"),
            json!("90s"),
            json!(long),
            json!([]),
            json!(["x"]),
            json!({}),
            json!({"x": 1}),
        ] {
            let mut wrong = example.clone();
            wrong.insert(name.clone(), value.clone());
            let wrong = Value::Object(wrong);
            if document.faults_of_params(method, &wrong).is_empty() {
                continue;
            }
            let error = client.refused(method, wrong).await;
            assert_eq!(
                kind_of(&error),
                "invalid_params",
                "{method} {name} = {value}"
            );
            refused += 1;
        }
    }
    refused
}

/// Takes some 10 s if node is installed: the validator calls every method.
#[test]
fn an_outside_judge_finds_every_answer_as_described() {
    let folder = match peers::node("common") {
        Ok(folder) => folder,
        Err(why) => return peers::skipped("the outside judge of rpc.discover", &why),
    };
    run(async {
        let place = Place::new(script()).with(WEBHOOK.0, WEBHOOK.1);
        let daemon = place.start().await;
        stage(&daemon).await;
        let judged = Command::new("node")
            .arg(root().join("tests/it/openrpc/judge.js"))
            .arg(daemon.url())
            .env("ABIDE_TOKEN", daemon.token())
            .env("NODE_PATH", folder.join("node_modules"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&judged.stdout);
        assert!(
            judged.status.success(),
            "{said}\n{}",
            String::from_utf8_lossy(&judged.stderr)
        );
        let last = said.lines().last().unwrap();
        peers::announce(&format!(
            "the third-party validator of rpc.discover: {last}"
        ));
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Creates the objects that the document's examples refer to.
async fn stage(daemon: &Daemon) {
    let client = daemon.client().await;
    has_webhook(&client).await;
    let desk = json!({"agent": "build", "key": SESSION, "label": "desk"});
    client.call("sessions.create", desk).await;
    let look = json!({"task": "[look]", "runId": RUN, "parent": SESSION, "announce": "inbox"});
    let spawned = client.spawn(look).await;
    client.ended(&spawned.id).await;
}
