//! Runs that spawn, wait, send and ask questions: kills hit each waiting state.

use serde_json::{Value, json};

use super::Scenario;
use crate::harness::{Caller, Place, Script, calls, says};

/// The scenarios of runs that use the registry.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "delegation",
        place: delegation_place,
        play: |caller| Box::pin(delegation(caller)),
    },
    Scenario {
        name: "reply",
        place: reply_place,
        play: |caller| Box::pin(reply(caller)),
    },
    Scenario {
        name: "late",
        place: late_place,
        play: |caller| Box::pin(late(caller)),
    },
    Scenario {
        name: "window",
        place: window_place,
        play: |caller| Box::pin(window(caller)),
    },
    Scenario {
        name: "sent",
        place: sent_place,
        play: |caller| Box::pin(sent(caller)),
    },
    Scenario {
        name: "question",
        place: question_place,
        play: |caller| Box::pin(question(caller)),
    },
    Scenario {
        name: "unanswered",
        place: unanswered_place,
        play: |caller| Box::pin(unanswered(caller)),
    },
];

fn delegation_place() -> Place {
    Place::new(
        Script::new()
            .on(
                "[boss]",
                [
                    calls(
                        "sessions_spawn",
                        json!({ "task": "[kid a]", "agent": "explore" }),
                    )
                    .and(
                        "sessions_spawn",
                        json!({ "task": "[kid b]", "agent": "explore" }),
                    )
                    .and("agents_list", json!({})),
                    calls("sessions_wait", json!({ "waitSeconds": 240 }))
                        .and("read", json!({ "path": "notes.txt" })),
                    says("boss is done"),
                ],
            )
            .on("[kid a]", [says("a is done")])
            .on(
                "[kid b]",
                [
                    calls("read", json!({ "path": "notes.txt" })),
                    says("b is done").held_by("go-b"),
                ],
            ),
    )
    .with("lanes.global", "1")
}

/// A turn spawns two children and waits for both, in parallel with another call; all share one
/// slot.
async fn delegation(caller: &mut Caller) {
    let session = caller.session("agent", "agent:build:boss").await;
    let boss = caller.turn(&session, "[boss]").await;
    caller.in_state(&boss.id, "paused").await;
    caller.place().let_go("go-b");
    assert_eq!(caller.ended(&boss.id).await["result"], "boss is done");
    caller.quiet().await;
    let params = json!({ "parent": session });
    let children = caller.call("runs.list", params).await;
    let children = children["runs"].as_array().unwrap();
    assert_eq!(children.len(), 2, "{children:?}");
    for child in children {
        assert_eq!(child["announce"]["state"], "delivered", "{child}");
        assert_eq!(child["parentRunId"], boss.id.as_str(), "{child}");
    }
    // The wait returned the ends, and they are not announced again.
    let all = caller
        .call("runs.list", json!({ "sessionKey": session }))
        .await;
    assert_eq!(all["runs"].as_array().unwrap().len(), 1, "{all}");
}

fn reply_place() -> Place {
    let to_b = json!({
        "sessionKey": "agent:build:b", "label": "", "message": "[question]", "waitSeconds": 240,
    });
    Place::new(
        Script::new()
            .on("[ask b]", [calls("sessions_send", to_b), says("b said it")])
            .on("[question]", [says("b answers").held_by("go-b")]),
    )
    .with("sessions.visibility", "\"agent\"")
    .with("lanes.global", "1")
}

/// A turn waits for another session's reply without a slot.
async fn reply(caller: &mut Caller) {
    let a = caller.session("agent", "agent:build:a").await;
    caller.session("agent", "agent:build:b").await;
    let run = caller.turn(&a, "[ask b]").await;
    caller.in_state(&run.id, "paused").await;
    caller.until_model_called("[question]", 0).await;
    caller.place().let_go("go-b");
    assert_eq!(caller.ended(&run.id).await["result"], "b said it");
    caller.quiet().await;
    let answered = last_tool_result(caller, &a).await;
    assert_eq!(
        (&answered["replied"], &answered["reply"]),
        (&json!(true), &json!("b answers"))
    );
}

/// The last tool result in this session.
async fn last_tool_result(caller: &mut Caller, session: &str) -> Value {
    let history = caller
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let entries = history["messages"].as_array().unwrap();
    let result = entries
        .iter()
        .rfind(|entry| entry["kind"] == "tool_result")
        .unwrap();
    serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap()
}

fn late_place() -> Place {
    let to_b = json!({ "label": "agent:build:b", "message": "[question]", "waitSeconds": 0 });
    Place::new(
        Script::new()
            .on("[ask b]", [calls("sessions_send", to_b), says("asked b")])
            .on("[question]", [says("[b1] yes").held_by("go-b")])
            .on("[b1]", [says("[a2] why?")])
            .on("[a2]", [says("[b2] because")])
            .on_announce("[b2]", [says("a knows now")]),
    )
    .with("sessions.visibility", "\"agent\"")
    .with("sessions.max_ping_pong", "2")
}

/// A reply comes after the requesting turn has ended: the sessions exchange the allowed number of
/// turns, then the one that began gets one announce.
async fn late(caller: &mut Caller) {
    let a = caller.session("agent", "agent:build:a").await;
    caller.session("agent", "agent:build:b").await;
    let run = caller.turn(&a, "[ask b]").await;
    assert_eq!(caller.ended(&run.id).await["result"], "asked b");
    caller.place().let_go("go-b");
    caller.quiet().await;
    let history = caller
        .call(
            "sessions.history",
            json!({ "sessionKey": a, "tools": false }),
        )
        .await;
    let said: Vec<(&str, &str)> = history["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["kind"] == "text")
        .map(|entry| {
            let text = entry["content"][0]["text"].as_str().unwrap();
            (entry["origin"].as_str().unwrap(), text)
        })
        .collect();
    assert_eq!(
        said,
        [
            ("user", "[ask b]"),
            ("agent", "asked b"),
            ("session", "[b1] yes"),
            ("agent", "[a2] why?"),
            ("agent", "a knows now"),
        ]
    );
}

fn window_place() -> Place {
    let to_b = json!({ "sessionKey": "agent:build:b", "message": "[question]", "waitSeconds": 1 });
    Place::new(
        Script::new()
            .on("[ask b]", [calls("sessions_send", to_b), says("b is slow")])
            .on("[question]", [says("b answers").held_by("go-b")])
            .on_announce("b answers", [says("at last")]),
    )
    .with("sessions.visibility", "\"agent\"")
    .with("sessions.max_ping_pong", "0")
}

/// The wait for a reply times out: the turn continues, and the reply comes as an announce.
async fn window(caller: &mut Caller) {
    let a = caller.session("agent", "agent:build:a").await;
    caller.session("agent", "agent:build:b").await;
    let run = caller.turn(&a, "[ask b]").await;
    assert_eq!(caller.ended(&run.id).await["result"], "b is slow");
    let pending = last_tool_result(caller, &a).await;
    assert_eq!(
        (&pending["status"], &pending["replied"]),
        (&json!("pending"), &json!(false))
    );
    caller.place().let_go("go-b");
    caller.quiet().await;
}

fn sent_place() -> Place {
    Place::new(
        Script::new()
            .on("[now]", [says("at once")])
            .on("[later]", [says("in a while").held_by("go-b")]),
    )
}

/// A client sends on behalf of a session that it owns: a reply in time is the call's answer, a
/// later one goes to its inbox.
async fn sent(caller: &mut Caller) {
    let from = caller.session("client", "bot:one").await;
    let b = caller.session("agent", "agent:build:b").await;
    let params = json!({
        "sessionKey": b, "message": "[now]", "from": from, "waitTimeout": 240,
    });
    let now = caller.send(params).await;
    assert_eq!(caller.ended(&now.id).await["result"], "at once");
    let params = json!({
        "label": b, "message": "[later]", "from": from, "waitTimeout": "300ms",
    });
    let later = caller.send(params).await;
    caller.until_model_called("[later]", 0).await;
    // The waiting call may have been lost with the daemon; its timeout passes regardless.
    let params = json!({ "runId": later.id, "waitTimeout": "1500ms" });
    let waited = caller.call("agent.wait", params).await;
    assert_eq!(waited["cause"], "window", "{waited}");
    caller.place().let_go("go-b");
    assert_eq!(caller.ended(&later.id).await["result"], "in a while");
    caller.quiet().await;
    let inbox = caller.ack_all(&from).await;
    assert_eq!(inbox.len(), 1, "{inbox:?}");
    assert_eq!(inbox[0]["runId"], later.id.as_str());
    assert_eq!(inbox[0]["result"], "in a while");
}

fn question_place() -> Place {
    let port = json!({ "question": "which port?", "choices": ["80", "8080"], "timeout": 3600 });
    Place::new(
        Script::new()
            .on(
                "[deploy]",
                [
                    calls("ask", port).and("read", json!({ "path": "notes.txt" })),
                    says("deployed"),
                ],
            )
            .on(
                "[drop]",
                [
                    calls("ask", json!({ "question": "really?" })),
                    says("dropped"),
                ],
            ),
    )
}

/// A child asks the user: the question is shown at the root session, and the answer goes to that
/// child.
async fn question(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let params = json!({ "task": "[deploy]", "agent": "build", "parent": root, "label": "d" });
    let run = caller.spawn(params).await;
    caller.in_state(&run.id, "paused").await;
    let params = json!({ "sessionKey": root, "state": "open" });
    let open = caller.call("questions.list", params).await;
    let question = open["questions"][0].clone();
    assert_eq!(question["runId"], run.id.as_str(), "{open}");
    assert_eq!(question["rootSessionKey"], root.as_str(), "{open}");
    let params = json!({ "id": question["id"], "choice": "8080" });
    let answered = caller.call("questions.answer", params.clone()).await;
    assert_eq!(answered["answer"], "8080");
    assert_eq!(
        caller.call("questions.answer", params).await["answer"],
        "8080"
    );
    assert_eq!(caller.ended(&run.id).await["result"], "deployed");
    // A run that ends while it asks closes its question.
    let params = json!({
        "task": "[drop]", "agent": "build", "parent": root, "runTimeout": 3600,
    });
    let dropped = caller.spawn(params).await;
    caller.in_state(&dropped.id, "paused").await;
    let open = caller
        .call(
            "questions.list",
            json!({ "sessionKey": root, "state": "open" }),
        )
        .await;
    let id = open["questions"][0]["id"].clone();
    caller
        .call("questions.answer", json!({ "id": id, "text": "no" }))
        .await;
    assert_eq!(caller.ended(&dropped.id).await["result"], "dropped");
    caller.quiet().await;
    caller.ack_all(&root).await;
}

fn unanswered_place() -> Place {
    let ask = json!({ "question": "may I?", "timeout": 1 });
    Place::new(Script::new().on("[may]", [calls("ask", ask), says("nobody was there")]))
}

/// A question expires at its stated time.
async fn unanswered(caller: &mut Caller) {
    let session = caller.session("agent", "agent:build:may").await;
    let run = caller.turn(&session, "[may]").await;
    assert_eq!(caller.ended(&run.id).await["result"], "nobody was there");
    let told = last_tool_result(caller, &session).await;
    assert_eq!(told["answered"], false, "{told}");
    let all = caller.call("questions.list", json!({})).await;
    assert_eq!(all["questions"][0]["state"], "expired", "{all}");
}
