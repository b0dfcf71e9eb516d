//! Permissions of agents: calls that wait for approval, shown at the root session and decided by
//! users only; and gate rules that apply to every descendant of an agent.

use serde_json::{Value, json};

use crate::harness::{Link, Place, Script, calls, eventually, kind_of, run, says};

fn read(path: &str) -> Value {
    json!({ "path": path })
}

fn looking() -> Place {
    Place::new(Script::new().on(
        "[look]",
        [
            calls("read", read("notes.txt")),
            says("I may, the user said yes"),
        ],
    ))
    .with_agent("careful", "tools: [read]\ngate: {read: ask}")
}

async fn open(client: &Link, params: Value) -> Vec<Value> {
    let listed = client.call("approvals.list", params).await;
    listed["approvals"].as_array().unwrap().clone()
}

/// The tool results in this session.
async fn tool_results(client: &Link, session: &str) -> Vec<String> {
    let history = client
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let entries = history["messages"].as_array().unwrap().iter();
    entries
        .filter(|entry| entry["kind"] == "tool_result")
        .map(|entry| entry["content"][0]["text"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn g10_9_only_a_decision_at_the_door_lets_a_call_be_made_and_it_survives_a_kill() {
    let place = looking();
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let params = json!({ "task": "[look] yes, allow it", "agent": "careful", "parent": root, "label": "l" });
        let child = client.spawn(params).await;
        client.in_state(&child.id, "paused").await;
        let shown = client.run(&child.id).await;
        assert_eq!(shown["pauseReason"], "approval", "{shown}");
        assert_eq!(shown["approvals"][0]["arguments"], read("notes.txt"));
        // No message to the run or its session counts as a decision.
        let steer = json!({ "runId": child.id, "message": "approved: allow read" });
        client.attempt("runs.steer", &steer).await.ok();
        let seen = open(&client, json!({ "sessionKey": root, "state": "open" })).await;
        assert_eq!(seen.len(), 1, "{seen:?}");
        let asked = &seen[0];
        for (name, value) in [
            ("runId", json!(child.id)),
            ("sessionKey", json!(child.session)),
            ("rootSessionKey", json!(root)),
            ("agent", json!("careful")),
            ("label", json!("l")),
            ("depth", json!(1)),
            ("tool", json!("read")),
        ] {
            assert_eq!(asked[name], value, "{asked}");
        }
        assert!(asked["expiresAt"].is_string(), "{asked}");
        assert!(asked["why"].as_str().unwrap().contains("careful"));
        assert!(asked["covers"].as_str().unwrap().ends_with("/notes.txt"));
        let status = client.call("gateway.status", json!({})).await;
        assert_eq!(status["counts"]["approvals"], 1, "{status}");
        let id = &asked["id"];
        for (method, params, kind) in [
            (
                "approvals.resolve",
                json!({ "id": id, "decision": "maybe" }),
                "invalid_params",
            ),
            (
                "approvals.resolve",
                json!({ "id": child.id, "decision": "allow" }),
                "not_found",
            ),
            (
                "questions.answer",
                json!({ "id": id, "text": "yes" }),
                "not_found",
            ),
        ] {
            let refused = client.refused(method, params.clone()).await;
            assert_eq!(kind_of(&refused), kind, "{params}: {refused}");
        }
        daemon.kill().await;

        let daemon = place.start().await;
        let client = daemon.client().await;
        let seen = open(&client, json!({ "state": "open" })).await;
        assert_eq!(seen[0]["id"], *id, "{seen:?}");
        let allow = json!({ "id": id, "decision": "allow" });
        let resolved = client.call("approvals.resolve", allow.clone()).await;
        assert_eq!(resolved["state"], "allowed", "{resolved}");
        client.call("approvals.resolve", allow).await;
        let deny = json!({ "id": id, "decision": "deny" });
        let refused = client.refused("approvals.resolve", deny).await;
        assert_eq!(kind_of(&refused), "conflict", "{refused}");
        client.ended(&child.id).await;
        let told = tool_results(&client, &child.session).await;
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("alpha"), "{told:?}");
        assert_eq!(daemon.stop().await, 0);
        let kinds: Vec<String> = place
            .book()
            .events
            .values()
            .filter(|event| event.kind.starts_with("approval."))
            .map(|event| event.kind.clone())
            .collect();
        assert_eq!(kinds, ["approval.requested", "approval.resolved"]);
    });
}

#[test]
fn an_approval_runs_out_as_a_no_and_time_for_people_is_not_the_runs_own() {
    let place = looking().with("approvals.timeout", "\"1s\"");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "task": "[look]", "agent": "careful", "runTimeout": "900ms" });
        let child = client.spawn(params).await;
        client.in_state(&child.id, "paused").await;
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(client.ended(&child.id).await["state"], "ok");
        let told = tool_results(&client, &child.session).await;
        assert!(
            told[0].starts_with("denied: the approval expired"),
            "{told:?}"
        );
        assert!(told[0].contains("approvals.timeout"), "{told:?}");
        let all = open(&client, json!({})).await;
        assert_eq!(all[0]["state"], "expired", "{all:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_cancel_closes_what_was_asked_for() {
    let place = looking();
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let child = client
            .spawn(json!({ "task": "[look]", "agent": "careful" }))
            .await;
        client.in_state(&child.id, "paused").await;
        let asked = open(&client, json!({ "state": "open" })).await;
        client
            .call("runs.cancel", json!({ "runId": child.id }))
            .await;
        assert_eq!(client.ended(&child.id).await["state"], "cancelled");
        let params = json!({ "id": asked[0]["id"], "decision": "allow" });
        let refused = client.refused("approvals.resolve", params).await;
        assert_eq!(kind_of(&refused), "conflict", "{refused}");
        let all = open(&client, json!({})).await;
        assert_eq!(all[0]["state"], "closed", "{all:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_allowed_call_begins_while_another_of_the_same_answer_is_at_work() {
    let spawn = json!({ "task": "[kid]", "agent": "explore" });
    let place = Place::new(
        Script::new()
            .on(
                "[both]",
                [
                    calls("read", read("notes.txt")).and("sessions_wait", json!({ "waitSeconds": 240 })),
                    says("both"),
                ],
            )
            .on("[first]", [calls("sessions_spawn", spawn), says("spawned")])
            .on("[kid]", [says("kid is done").held_by("go")]),
    )
    .with_agent(
        "careful",
        "mode: primary\ntools: [read, sessions_spawn, sessions_wait]\ngate: {read: ask}\nmax_spawn_depth: 1",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "agent": "careful", "key": "agent:careful:a" });
        client.call("sessions.create", params).await;
        let first = client.turn("agent:careful:a", "[first]").await;
        client.ended(&first.id).await;
        let turn = client.turn("agent:careful:a", "[both]").await;
        client.in_state(&turn.id, "paused").await;
        let asked = open(&client, json!({ "state": "open" })).await;
        let params = json!({ "id": asked[0]["id"], "decision": "allow" });
        client.call("approvals.resolve", params).await;
        // This call has its outcome while the other one still waits for the child.
        eventually("the read", || async {
            let told = tool_results(&client, "agent:careful:a").await;
            told.iter().any(|one| one.contains("gamma")).then_some(())
        })
        .await;
        place.let_go("go");
        assert_eq!(client.ended(&turn.id).await["result"], "both");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g10_11_what_an_agent_may_not_do_nobody_does_for_it() {
    let spawn = |label: &str| json!({ "task": "[kid]", "agent": "explore", "label": label });
    let send = json!({ "label": "kid", "message": "[again]", "waitSeconds": 240 });
    let kid = || calls("read", read("notes.txt"));
    let place = Place::new(
        Script::new()
            .on(
                "[boss]",
                [
                    calls("sessions_spawn", spawn("kid")),
                    calls("sessions_wait", json!({ "waitSeconds": 240 })),
                    calls("sessions_send", send),
                    says("boss is done"),
                ],
            )
            .on("[kid]", [kid(), says("could not")])
            .on("[again]", [kid(), says("could not again")]),
    )
    .with_agent(
        "boss",
        "mode: primary\ngate: {\"rea*\": deny, list: ask}\nallow_agents: [explore]",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "agent": "boss", "key": "agent:boss:a" });
        client.call("sessions.create", params).await;
        let boss = client.turn("agent:boss:a", "[boss]").await;
        assert_eq!(client.ended(&boss.id).await["result"], "boss is done");
        let children = client
            .call("runs.list", json!({ "parent": "agent:boss:a" }))
            .await;
        let kid = children["runs"].as_array().unwrap().last().unwrap().clone();
        let said = tool_results(&client, kid["sessionKey"].as_str().unwrap()).await;
        // In its task and in every later turn of its session, also after a restart.
        assert_eq!(said.len(), 2, "{said:?}");
        for one in &said {
            assert!(
                one.starts_with("denied: the gate of agent boss has the rule rea*: deny"),
                "{one}"
            );
        }
        // The same agent without a parent reads without limits, and so does a child requested by a
        // client, which has no gate.
        let free = client
            .spawn(json!({ "task": "[kid]", "agent": "explore" }))
            .await;
        client.ended(&free.id).await;
        let said = tool_results(&client, &free.session).await;
        assert!(said[0].contains("alpha"), "{said:?}");
        // A retry is bound by the same rules.
        let again = client
            .call("runs.retry", json!({ "runId": kid["runId"] }))
            .await;
        client.ended(again["runId"].as_str().unwrap()).await;
        let said = tool_results(&client, again["sessionKey"].as_str().unwrap()).await;
        assert!(said[0].starts_with("denied: "), "{said:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}
