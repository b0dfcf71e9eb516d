//! Every RPC method over a real socket with the real binary.

use serde_json::{Value, json};

use crate::harness::{Faults, Link, Place, Script, calls, fails, kind_of, run, says};

fn script() -> Script {
    Script::new()
        .on("[say]", [says("said")])
        .on(
            "[look]",
            [
                calls("grep", json!({"pattern": "alpha"})).and("list", json!({})),
                says("alpha is in notes.txt:1"),
            ],
        )
        .on("[fail]", [fails("the model is down")])
        .on("[hold]", [says("held").held_by("go")])
        .on_announce("[", [says("NO_REPLY")])
}

/// Runs `test` with a started daemon and a client, then checks that the daemon stops cleanly.
fn with_daemon(test: impl AsyncFnOnce(&Place, &Link)) {
    run(async {
        let place = Place::new(script());
        let daemon = place.start().await;
        let client = daemon.client().await;
        test(&place, &client).await;
        drop(client);
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Expects that the call is refused as `kind`; returns the error's data.
async fn refused(client: &Link, method: &str, params: Value, kind: &str) -> Value {
    let error = client.refused(method, params.clone()).await;
    assert_eq!(kind_of(&error), kind, "{method} {params}: {error}");
    Value::Object(error.data)
}

#[test]
fn gateway_methods_say_who_is_there() {
    with_daemon(async |_, client| {
        let hello = client
            .call(
                "gateway.hello",
                json!({"client": {"name": "t", "version": "1"}, "protocol": {"min": 1, "max": 3}}),
            )
            .await;
        assert_eq!(hello["protocol"], 1);
        assert_eq!(hello["principal"]["org"], "default");
        let capabilities = hello["capabilities"].as_array().unwrap();
        for method in ["sessions.spawn", "agent.wait", "gateway.drain"] {
            assert!(capabilities.contains(&json!(method)), "{method}");
        }
        let data = refused(
            client,
            "gateway.hello",
            json!({"protocol": {"min": 2, "max": 3}}),
            "invalid_params",
        )
        .await;
        assert_eq!(data["supported"], json!([1]));
        assert_eq!(client.call("gateway.ping", json!({})).await, json!({}));
        let status = client.call("gateway.status", json!({})).await;
        assert_eq!(status["phase"], "ready");
        assert_eq!(status["storeId"], hello["storeId"]);
        assert_eq!(status["model"], "script/x");
        assert_eq!(status["counts"]["running"], 0);
    });
}

#[test]
fn agents_are_listed_and_shown() {
    with_daemon(async |_, client| {
        let all = client.call("agents.list", json!({})).await;
        let names: Vec<&str> = all["agents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|agent| agent["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["build", "explore"]);
        let task = client.call("agents.list", json!({"for": "task"})).await;
        assert_eq!(task["agents"].as_array().unwrap().len(), 1);
        let explore = client.call("agents.get", json!({"agent": "explore"})).await;
        assert_eq!(explore["mode"], "subagent");
        assert_eq!(
            explore["tools"],
            json!(["read", "list", "glob", "grep", "skill"])
        );
        let data = refused(
            client,
            "agents.get",
            json!({"agent": "explorer"}),
            "not_found",
        )
        .await;
        assert!(data["hint"].as_str().unwrap().contains("explore"), "{data}");
    });
}

#[test]
fn a_session_is_made_found_and_listed() {
    with_daemon(async |_, client| {
        let made = client
            .call(
                "sessions.create",
                json!({"owner": "client", "key": "client:bot", "label": "bot", "title": "A bot"}),
            )
            .await;
        assert_eq!(
            (&made["created"], &made["session"]["owner"]),
            (&json!(true), &json!("client"))
        );
        let again = client
            .call(
                "sessions.create",
                json!({"owner": "client", "key": "client:bot"}),
            )
            .await;
        assert_eq!(again["created"], false);
        assert_eq!(again["session"]["id"], made["session"]["id"]);
        let taken = json!({"owner": "client", "key": "client:bot", "ifExists": "conflict"});
        refused(client, "sessions.create", taken, "conflict").await;
        refused(
            client,
            "sessions.create",
            json!({"key": "client:bot"}),
            "conflict",
        )
        .await;
        refused(
            client,
            "sessions.create",
            json!({"key": "../x"}),
            "invalid_params",
        )
        .await;
        refused(
            client,
            "sessions.create",
            json!({"agent": "explore"}),
            "forbidden",
        )
        .await;
        let shown = client
            .call("sessions.get", json!({"sessionKey": "client:bot"}))
            .await;
        assert_eq!(shown["title"], "A bot");
        refused(
            client,
            "sessions.get",
            json!({"sessionKey": "client:no"}),
            "not_found",
        )
        .await;
        for n in 0..5 {
            let key = format!("client:n{n}");
            client
                .call("sessions.create", json!({"owner": "client", "key": key}))
                .await;
        }
        // Pages are newest first and contain each item once.
        let mut seen = Vec::new();
        let mut cursor = Value::Null;
        loop {
            let mut params = json!({"limit": 2});
            if !cursor.is_null() {
                params["cursor"] = cursor;
            }
            let page = client.call("sessions.list", params).await;
            let keys = page["sessions"].as_array().unwrap();
            assert!(keys.len() <= 2);
            seen.extend(
                keys.iter()
                    .map(|one| one["key"].as_str().unwrap().to_owned()),
            );
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        assert_eq!(
            seen,
            [
                "client:n4",
                "client:n3",
                "client:n2",
                "client:n1",
                "client:n0",
                "client:bot"
            ]
        );
        let found = client
            .call("sessions.list", json!({"search": "a bot"}))
            .await;
        assert_eq!(found["sessions"].as_array().unwrap().len(), 1);
        let found = client.call("sessions.list", json!({"search": "%"})).await;
        assert_eq!(found["sessions"], json!([]));
        refused(
            client,
            "sessions.list",
            json!({"cursor": "x"}),
            "invalid_params",
        )
        .await;
    });
}

#[test]
fn a_spawn_runs_is_journaled_and_told() {
    with_daemon(async |place, client| {
        let parent = client.session("client", "bot").await;
        let spawned = client
            .call(
                "sessions.spawn",
                json!({
                    "task": "[look] where is alpha?", "agent": "explore", "parent": parent,
                    "label": "alpha", "cwd": place.work(), "runTimeout": "5m",
                    "meta": {"chat": 7},
                }),
            )
            .await;
        assert_eq!(
            (&spawned["status"], &spawned["depth"]),
            (&json!("accepted"), &json!(1))
        );
        let id = spawned["runId"].as_str().unwrap();
        let ended = client.ended(id).await;
        assert_eq!(ended["status"], "ok");
        assert_eq!(ended["result"], "alpha is in notes.txt:1");
        client.quiet().await;

        let shown = client.run(id).await;
        assert_eq!(
            (&shown["toolCalls"], &shown["loops"]),
            (&json!(2), &json!(2))
        );
        assert_eq!(shown["meta"], json!({"chat": 7}));
        assert_eq!(
            shown["announce"],
            json!({"policy": "inbox", "state": "delivered"})
        );
        let steps = client.call("runs.steps", json!({"runId": id})).await;
        let steps = steps["steps"].as_array().unwrap();
        let kinds: Vec<(&str, &str)> = steps
            .iter()
            .map(|step| {
                let what = step["tool"].as_str().unwrap_or("model");
                (what, step["state"].as_str().unwrap())
            })
            .collect();
        assert_eq!(
            kinds,
            [
                ("model", "done"),
                ("grep", "done"),
                ("list", "done"),
                ("model", "done")
            ]
        );
        let first = client
            .call("runs.steps", json!({"runId": id, "limit": 3}))
            .await;
        let rest = json!({"runId": id, "limit": 3, "cursor": first["nextCursor"]});
        let rest = client.call("runs.steps", rest).await;
        assert_eq!(rest["steps"].as_array().unwrap().len(), 1);
        assert_eq!(rest["steps"][0], steps[3]);

        let key = &spawned["childSessionKey"];
        let history = client
            .call("sessions.history", json!({"sessionKey": key}))
            .await;
        let messages = history["messages"].as_array().unwrap();
        assert_eq!(messages.len(), 5);
        assert!(
            messages[2]["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains("notes.txt")
        );
        let plain = json!({"sessionKey": key, "tools": false});
        let plain = client.call("sessions.history", plain).await;
        assert_eq!(plain["messages"].as_array().unwrap().len(), 2);
        let one = json!({"sessionKey": key, "after": 1, "limit": 1});
        let one = client.call("sessions.history", one).await;
        assert_eq!(
            (&one["messages"][0]["seq"], &one["truncated"]),
            (&json!(2), &json!(true))
        );

        let inbox = client
            .call("sessions.inbox", json!({"sessionKey": parent}))
            .await;
        let announce = &inbox["announces"][0];
        assert_eq!(announce["runId"], json!(id));
        assert_eq!(announce["meta"], json!({"chat": 7}));
        let ids = json!({"sessionKey": parent, "announceIds": [announce["announceId"]]});
        assert_eq!(
            client.call("sessions.ack", ids.clone()).await["announceIds"],
            ids["announceIds"]
        );
        let inbox = client
            .call("sessions.inbox", json!({"sessionKey": parent}))
            .await;
        assert_eq!(inbox["announces"], json!([]));
        let all = json!({"sessionKey": parent, "acked": true});
        let all = client.call("sessions.inbox", all).await;
        assert!(all["announces"][0]["ackedAt"].is_string());
        assert_eq!(client.run(id).await["announce"]["state"], "acked");
    });
}

#[test]
fn runs_are_listed_by_what_they_are() {
    with_daemon(async |place, client| {
        let parent = client.session("client", "bot").await;
        let good = client
            .spawn(json!({"task": "[say] a", "parent": parent, "label": "a"}))
            .await;
        let bad = client.spawn(json!({"task": "[fail] b"})).await;
        let open = client
            .spawn(json!({"task": "[hold] c", "agent": "build"}))
            .await;
        client.ended(&good.id).await;
        let failed = client.ended(&bad.id).await;
        assert_eq!(failed["status"], "error");
        assert_eq!(failed["error"]["kind"], "provider");
        client.in_state(&open.id, "running").await;
        let listed = async |filter: Value| -> Vec<String> {
            let page = client.call("runs.list", filter).await;
            let runs = page["runs"].as_array().unwrap();
            runs.iter()
                .map(|run| run["runId"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(listed(json!({})).await, [&*open.id, &*bad.id, &*good.id]);
        assert_eq!(
            listed(json!({"states": ["running", "queued"]})).await,
            [&*open.id]
        );
        assert_eq!(listed(json!({"states": ["error"]})).await, [&*bad.id]);
        assert_eq!(listed(json!({"label": "a"})).await, [&*good.id]);
        assert_eq!(listed(json!({"agent": "build"})).await, [&*open.id]);
        assert_eq!(listed(json!({"parent": parent})).await, [&*good.id]);
        assert_eq!(listed(json!({"sessionKey": bad.session})).await, [&*bad.id]);
        assert_eq!(listed(json!({"tree": good.id})).await, [&*good.id]);
        assert_eq!(listed(json!({"undelivered": true})).await, [&*good.id]);
        refused(
            client,
            "runs.list",
            json!({"states": ["flying"]}),
            "invalid_params",
        )
        .await;
        refused(client, "runs.get", json!({"runId": "x"}), "invalid_params").await;
        let unknown = "01936f0e-0000-7000-8000-000000000001";
        let data = refused(client, "runs.get", json!({"runId": unknown}), "not_found").await;
        assert_eq!(data["id"], unknown);
        refused(client, "runs.steps", json!({"runId": unknown}), "not_found").await;
        place.let_go("go");
        client.ended(&open.id).await;
    });
}

#[test]
fn turns_of_one_session_are_answered_in_order() {
    with_daemon(async |_, client| {
        let params = json!({"sessionKey": "agent:build:chat", "message": "[say] one", "idempotencyKey": "k"});
        let first = client.call("agent.run", params.clone()).await;
        assert_eq!(first["created"], true);
        let second = client.turn("agent:build:chat", "[say] two").await;
        assert_eq!(client.ended(&second.id).await["result"], "said");
        // The key's first answer is repeated exactly.
        assert_eq!(client.call("agent.run", params.clone()).await, first);
        let mut other = params;
        other["message"] = json!("[say] another");
        refused(client, "agent.run", other, "conflict").await;
        let history = json!({"sessionKey": "agent:build:chat"});
        let history = client.call("sessions.history", history).await;
        let texts: Vec<&str> = history["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message["content"][0]["text"].as_str().unwrap())
            .collect();
        assert_eq!(texts, ["[say] one", "said", "[say] two", "said"]);
        client.session("client", "mine").await;
        let mine = client.call("sessions.list", json!({"label": "mine"})).await;
        let key = &mine["sessions"][0]["key"];
        let turn = json!({"sessionKey": key, "message": "hello"});
        refused(client, "agent.run", turn, "conflict").await;
        let child = json!({"sessionKey": "agent:x:new", "message": "hi", "agent": "explore"});
        refused(client, "agent.run", child, "forbidden").await;
    });
}

#[test]
fn a_wait_tells_every_outcome_apart() {
    with_daemon(async |place, client| {
        let good = client.spawn(json!({"task": "[say] a"})).await.id;
        let bad = client.spawn(json!({"task": "[fail] b"})).await.id;
        let open = client.spawn(json!({"task": "[hold] c"})).await.id;
        let late = client
            .spawn(json!({"task": "[hold] d", "runTimeout": 0.05}))
            .await
            .id;
        let unknown = "01936f0e-0000-7000-8000-000000000001";
        for id in [&good, &bad, &late] {
            client.ended(id).await;
        }
        client.in_state(&open, "running").await;
        let ids = json!([good, bad, open, late, unknown]);
        let now = json!({"runIds": ids, "waitTimeout": 0});
        let answer = client.call("agent.wait", now.clone()).await;
        let statuses: Vec<&str> = answer["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run["status"].as_str().unwrap())
            .collect();
        assert_eq!(statuses, ["ok", "error", "pending", "timeout", "not_found"]);
        assert_eq!(
            (&answer["done"], &answer["cause"]),
            (&json!(false), &json!("window"))
        );
        let pending = &answer["runs"][2];
        assert_eq!(
            (&pending["state"], &pending["step"]["seq"]),
            (&json!("running"), &json!(1))
        );
        let any = json!({"runIds": [open, good], "mode": "any", "waitTimeout": 60});
        let any = client.call("agent.wait", any).await;
        assert_eq!(
            (&any["done"], &any["cause"]),
            (&json!(true), &json!("ended"))
        );
        place.let_go("go");
        client.ended(&open).await;
        let answer = client.call("agent.wait", now).await;
        assert_eq!(
            (&answer["done"], &answer["cause"]),
            (&json!(true), &json!("ended"))
        );
        refused(
            client,
            "agent.wait",
            json!({"runId": good, "waitTimeout": "2h"}),
            "invalid_params",
        )
        .await;
        refused(
            client,
            "agent.wait",
            json!({"runIds": []}),
            "invalid_params",
        )
        .await;
    });
}

#[test]
fn what_later_versions_bring_is_refused_by_name() {
    with_daemon(async |_, client| {
        for (name, value) in [
            ("attachments", json!([])),
            // Shared context exists only where an agent calls another agent.
            ("context", json!("shared")),
            ("mode", json!("for_ever")),
            ("cleanup", json!("archive")),
            // Without a parent, every announce mode is refused.
            ("announce", json!("steer")),
            ("nonsense", json!(1)),
        ] {
            let mut params = json!({"task": "[say] a"});
            params[name] = value;
            let data = refused(client, "sessions.spawn", params, "invalid_params").await;
            assert_eq!(data["path"], name);
        }
        let runs = client.call("runs.list", json!({})).await;
        assert_eq!(runs["runs"], json!([]));
        refused(
            client,
            "sessions.spawn",
            json!({"task": ""}),
            "invalid_params",
        )
        .await;
        refused(
            client,
            "sessions.spawn",
            json!({"task": "a", "runTimeout": 0}),
            "invalid_params",
        )
        .await;
        refused(
            client,
            "sessions.spawn",
            json!({"task": "a", "model": "no/such"}),
            "invalid_params",
        )
        .await;
        refused(
            client,
            "sessions.spawn",
            json!({"task": "a", "cwd": "here"}),
            "invalid_params",
        )
        .await;
        refused(client, "sessions.kill", json!({}), "unknown_method").await;
    });
}

#[test]
fn a_panicking_handler_answers_and_the_connection_lives() {
    run(async {
        let place = Place::new(script());
        let faults = Faults::ordered("gateway.handler=panic@2");
        let daemon = place.start_with(&faults).await.unwrap();
        let client = daemon.client().await;
        // Connecting makes no call; the second call of this connection panics.
        client.call("gateway.ping", json!({})).await;
        let error = client.refused("gateway.ping", json!({})).await;
        assert_eq!(kind_of(&error), "internal");
        let reference = error.data["reference"].as_str().unwrap();
        assert_eq!(client.call("gateway.ping", json!({})).await, json!({}));
        assert!(daemon.logged().contains(reference));
        assert_eq!(daemon.stop().await, 0);
    });
}
