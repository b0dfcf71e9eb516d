//! Messages between sessions: separate delivery and reply, chains, rings, exchanges, late replies,
//! restarts in between.

use serde_json::{Value, json};

use crate::harness::{Caller, Link, Place, Script, calls, kind_of, run, says};

fn with_reach(script: Script) -> Place {
    Place::new(script).with("sessions.visibility", "\"agent\"")
}

/// Creates a root session of agent build; returns its key, which contains `name`, its label.
async fn talker(client: &Link, name: &str) -> String {
    let key = format!("agent:build:{name}");
    let params = json!({ "agent": "build", "key": key, "label": name });
    client.call("sessions.create", params).await;
    key
}

/// The last tool result in this session.
async fn last_result(client: &Link, session: &str) -> (String, bool) {
    let history = client
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let entries = history["messages"].as_array().unwrap();
    let result = entries
        .iter()
        .rfind(|entry| entry["kind"] == "tool_result")
        .unwrap();
    let block = &result["content"][0];
    let text = block["text"].as_str().unwrap().to_owned();
    (text, block["isError"].as_bool().unwrap())
}

#[test]
fn d4_a_client_sends_by_key_or_label_and_hears_of_delivery_and_reply_apart() {
    let place = Place::new(
        Script::new()
            .on("[a]", [says("yes")])
            .on("[b]", [says("later").held_by("go")])
            .on("[skip]", [says("REPLY_SKIP")]),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let b = talker(&client, "b").await;
        let params = json!({ "sessionKey": b, "label": " ", "message": "[a]" });
        let sent = client.call("sessions.send", params).await;
        assert_eq!(sent["status"], "ok", "{sent}");
        assert_eq!(
            (&sent["delivered"], &sent["replied"], &sent["reply"]),
            (&json!(true), &json!(true), &json!("yes"))
        );
        // Naming the target by both key and label is allowed if they agree.
        let params = json!({ "sessionKey": b, "label": "b", "message": "[skip]" });
        let sent = client.call("sessions.send", params).await;
        assert_eq!(
            (&sent["delivered"], &sent["replied"]),
            (&json!(true), &json!(false)),
            "{sent}"
        );
        let params = json!({ "label": "b", "message": "[b]", "waitTimeout": 0 });
        let first = client.call("sessions.send", params.clone()).await;
        assert_eq!(
            (&first["status"], &first["replied"]),
            (&json!("accepted"), &json!(false)),
            "{first}"
        );
        client
            .in_state(first["runId"].as_str().unwrap(), "running")
            .await;
        // Queued behind it: accepted, but not delivered before its turn starts.
        let params = json!({ "label": "b", "message": "[a]", "waitTimeout": "50ms" });
        let second = client.call("sessions.send", params).await;
        assert_eq!(
            (&second["status"], &second["delivered"]),
            (&json!("pending"), &json!(false)),
            "{second}"
        );
        place.let_go("go");
        let ended = client.ended(second["runId"].as_str().unwrap()).await;
        assert_eq!(ended["result"], "yes");
        let run = client.run(first["runId"].as_str().unwrap()).await;
        assert_eq!(run["result"], "later", "{run}");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_send_that_cannot_be_is_refused_and_leaves_nothing() {
    let place = Place::new(Script::new().on("*", [says("done").held_by("go")]))
        .with("defaults.max_queued_turns", "1");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = talker(&client, "a").await;
        let b = talker(&client, "b").await;
        for (params, kind) in [
            (json!({ "message": "x" }), "invalid_params"),
            (
                json!({ "sessionKey": "agent:build:c", "message": "x" }),
                "not_found",
            ),
            (json!({ "label": "nobody", "message": "x" }), "not_found"),
            (
                json!({ "sessionKey": a, "label": "b", "message": "x" }),
                "conflict",
            ),
            (
                json!({ "sessionKey": b, "from": a, "message": "x" }),
                "forbidden",
            ),
            (json!({ "sessionKey": b, "message": " " }), "invalid_params"),
            (
                json!({ "sessionKey": b, "message": "x", "waitTimeout": "2h" }),
                "invalid_params",
            ),
        ] {
            let refused = client.refused("sessions.send", params.clone()).await;
            assert_eq!(kind_of(&refused), kind, "{params}: {refused}");
        }
        let turn = client.turn(&b, "first").await;
        client.in_state(&turn.id, "running").await;
        client.turn(&b, "second").await;
        let params = json!({ "sessionKey": b, "message": "x", "waitTimeout": 0 });
        let refused = client.refused("sessions.send", params).await;
        assert_eq!(kind_of(&refused), "limit", "{refused}");
        assert_eq!(refused.data["limit"], "max_queued_turns");
        place.let_go("go");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        assert!(place.book().sends.is_empty());
    });
}

#[test]
fn a_message_to_a_clients_session_stands_in_its_transcript_and_runs_nothing() {
    let to_bot = json!({ "sessionKey": "bot:one", "message": "for the bot" });
    let place =
        Place::new(Script::new().on("[tell]", [calls("sessions_send", to_bot), says("told it")]))
            .with("sessions.visibility", "\"agent\"");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "owner": "client", "key": "bot:one" });
        client.call("sessions.create", params).await;
        let a = talker(&client, "a").await;
        let turn = client.turn(&a, "[tell]").await;
        assert_eq!(client.ended(&turn.id).await["result"], "told it");
        let params = json!({ "sessionKey": "bot:one", "message": "again", "idempotencyKey": "k" });
        for _ in 0..2 {
            let sent = client.call("sessions.send", params.clone()).await;
            assert_eq!(
                (&sent["status"], &sent["delivered"]),
                (&json!("delivered"), &json!(true)),
                "{sent}"
            );
            assert!(sent.get("runId").is_none(), "{sent}");
        }
        let history = client
            .call("sessions.history", json!({ "sessionKey": "bot:one" }))
            .await;
        let entries = history["messages"].as_array().unwrap();
        assert_eq!(entries.len(), 2, "{history}");
        assert_eq!(entries[0]["origin"], "session");
        assert_eq!(entries[0]["metadata"]["from"], a.as_str());
        assert_eq!(daemon.stop().await, 0);
    });
}

fn asks(to: &str, what: &str) -> Value {
    json!({ "sessionKey": format!("agent:build:{to}"), "message": what, "waitSeconds": 240 })
}

#[test]
fn g4_11_g4_3_a_ring_of_three_with_every_cap_at_one_ends() {
    let place = with_reach(
        Script::new()
            .on(
                "[start]",
                [calls("sessions_send", asks("b", "[one]")), says("a: end")],
            )
            .on(
                "[one]",
                [calls("sessions_send", asks("c", "[two]")), says("b: end")],
            )
            .on(
                "[two]",
                [calls("sessions_send", asks("a", "[three]")), says("c: end")],
            )
            .on("[three]", [says("never")]),
    )
    .with("lanes.main", "1")
    .with("lanes.subagent", "1")
    .with("lanes.nested", "1")
    .with("lanes.global", "1");
    run(async {
        let mut caller = Caller::begin(place, None, false).await;
        for name in ["a", "b", "c"] {
            caller
                .session("agent", &format!("agent:build:{name}"))
                .await;
        }
        let run = caller.turn("agent:build:a", "[start]").await;
        assert_eq!(caller.ended(&run.id).await["result"], "a: end");
        let book = caller.finish().await;
        // The third message would have gone back to the origin of the first.
        assert_eq!(book.sends.len(), 2);
        let refused = book
            .steps
            .values()
            .find(|step| step.state == "failed")
            .unwrap();
        let words = refused.error.as_ref().unwrap();
        assert!(words.contains("chain"), "{words}");
    });
}

#[test]
fn a_ring_of_sessions_that_began_apart_ends_with_every_cap_at_one() {
    // Each has its own turn before any message: no chain leads back, but each would wait for a
    // waiting session.
    let place = with_reach(
        Script::new()
            .on(
                "[start a]",
                [
                    calls("list", json!({})).held_by("go"),
                    calls("sessions_send", asks("b", "[to b]")),
                    says("a: end"),
                ],
            )
            .on(
                "[start b]",
                [
                    calls("list", json!({})).held_by("go"),
                    calls("sessions_send", asks("c", "[to c]")),
                    says("b: end"),
                ],
            )
            .on(
                "[start c]",
                [
                    calls("list", json!({})).held_by("go"),
                    calls("sessions_send", asks("a", "[to a]")),
                    says("c: end"),
                ],
            )
            .on("[to a]", [says("a replies")])
            .on("[to b]", [says("b replies")])
            .on("[to c]", [says("c replies")]),
    )
    .with("lanes.nested", "1")
    .with("sessions.max_ping_pong", "0");
    run(async {
        let mut caller = Caller::begin(place, None, false).await;
        let mut runs = Vec::new();
        for name in ["a", "b", "c"] {
            let key = format!("agent:build:{name}");
            caller.session("agent", &key).await;
            runs.push(caller.turn(&key, &format!("[start {name}]")).await);
        }
        for name in ["a", "b", "c"] {
            caller
                .until_model_called(&format!("[start {name}]"), 0)
                .await;
        }
        caller.place().let_go("go");
        for (run, name) in runs.iter().zip(["a", "b", "c"]) {
            let ended = caller.ended(&run.id).await;
            assert_eq!(ended["result"], format!("{name}: end"));
        }
        let book = caller.finish().await;
        // The last one was refused, since it would wait for a session that waits for it.
        let refused = book.steps.values().filter(|step| step.state == "failed");
        let refused: Vec<_> = refused.map(|step| step.error.clone().unwrap()).collect();
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].contains("waits for a reply"), "{refused:?}");
    });
}

#[test]
fn a_reply_skip_ends_the_exchange_and_the_asker_is_told_once() {
    let to_b = json!({ "sessionKey": "agent:build:b", "message": "[q]", "waitSeconds": 0 });
    let place = with_reach(
        Script::new()
            .on("[ask]", [calls("sessions_send", to_b), says("asked")])
            .on("[q]", [says("[b1] fine")])
            .on("[b1]", [says("REPLY_SKIP")])
            .on_announce("[b1]", [says("NO_REPLY")]),
    );
    run(async {
        let mut caller = Caller::begin(place, None, false).await;
        for name in ["a", "b"] {
            caller
                .session("agent", &format!("agent:build:{name}"))
                .await;
        }
        let run = caller.turn("agent:build:a", "[ask]").await;
        caller.ended(&run.id).await;
        caller.quiet().await;
        let book = caller.finish().await;
        assert_eq!(book.sends.len(), 2, "{:?}", book.sends);
        assert_eq!(book.outbox.len(), 1, "{:?}", book.outbox);
    });
}

#[test]
fn a_spawned_run_that_sends_waits_for_the_late_reply_before_it_reports() {
    let to_kid = json!({ "label": "kid", "message": "[hurry]", "waitSeconds": 0 });
    let place = Place::new(
        Script::new()
            .on(
                "[boss]",
                [
                    calls(
                        "sessions_spawn",
                        json!({ "task": "[work]", "agent": "explore", "label": "kid" }),
                    ),
                    calls("sessions_send", to_kid),
                    says("half"),
                ],
            )
            .on("[work]", [says("worked")])
            .on("[hurry]", [says("hurried").held_by("go")])
            .on_announce("hurried", [says("whole")])
            .on_announce("worked", [says("more than half")]),
    )
    .with("defaults.max_spawn_depth", "2")
    .with("sessions.max_ping_pong", "0")
    .with("lanes.global", "1");
    run(async {
        let mut caller = Caller::begin(place, None, false).await;
        let root = caller.session("client", "bot:one").await;
        let params = json!({ "task": "[boss]", "agent": "build", "parent": root });
        let boss = caller.spawn(params).await;
        // It has reported half by then, and the lane is occupied.
        caller.until_model_called("[hurry]", 0).await;
        caller.place().let_go("go");
        assert_eq!(caller.ended(&boss.id).await["result"], "whole");
        caller.quiet().await;
        assert_eq!(caller.ack_all(&root).await.len(), 1);
        caller.finish().await;
    });
}

#[test]
fn a_kill_while_a_run_waits_for_a_reply_changes_nothing() {
    let place = with_reach(
        Script::new()
            .on(
                "[ask]",
                [calls("sessions_send", asks("b", "[q]")), says("heard")],
            )
            .on("[q]", [says("the answer").held_by("go")]),
    );
    run(async {
        let mut caller = Caller::begin(place, None, false).await;
        for name in ["a", "b"] {
            caller
                .session("agent", &format!("agent:build:{name}"))
                .await;
        }
        let run = caller.turn("agent:build:a", "[ask]").await;
        caller.in_state(&run.id, "paused").await;
        let shown = caller.run(&run.id).await;
        assert_eq!(shown["pauseReason"], "reply", "{shown}");
        // Its session is busy, and another turn waits behind it.
        let behind = caller.turn("agent:build:a", "[ask]").await;
        assert_eq!(caller.run(&behind.id).await["state"], "queued");
        caller.kill_once().await;
        assert_eq!(caller.run(&run.id).await["state"], "paused");
        assert_eq!(caller.run(&behind.id).await["state"], "queued");
        caller.place().let_go("go");
        assert_eq!(caller.ended(&run.id).await["result"], "heard");
        assert_eq!(caller.ended(&behind.id).await["result"], "heard");
        let book = caller.finish().await;
        assert_eq!(book.sends.len(), 2);
    });
}

#[test]
fn the_text_that_a_model_gets_says_whose_it_is() {
    let place = with_reach(
        Script::new()
            .on(
                "[ask]",
                [
                    calls("sessions_send", asks("b", "[q] <<<message")),
                    says("heard"),
                ],
            )
            .on("[message from session agent:build:a] ", [says("framed")]),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = talker(&client, "a").await;
        talker(&client, "b").await;
        let turn = client.turn(&a, "[ask]").await;
        client.ended(&turn.id).await;
        let (result, failed) = last_result(&client, &a).await;
        assert!(result.contains("framed") && !failed, "{result}");
        assert_eq!(daemon.stop().await, 0);
    });
}
