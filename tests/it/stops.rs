//! The lasting effects of a cancel: no announce wakes a cancelled session, no agent restarts a run
//! that a user has cancelled, and no wake run calls a model needlessly.

use serde_json::{Value, json};

use crate::delegations::{children, tool_results};
use crate::harness::{
    Caller, Link, ModelServer, Place, Script, calls, chat, eventually, kind_of, run, says,
};
use crate::providers;

const TALK: &str = "agent:build:talk";

async fn inbox(client: &Link, session: &str) -> Vec<String> {
    let inbox = client
        .call("sessions.inbox", json!({ "sessionKey": session }))
        .await;
    let announces = inbox["announces"].as_array().unwrap().iter();
    announces
        .map(|one| one["runId"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn what_ended_before_a_cancel_wakes_no_agent_until_a_person_begins_again() {
    for (method, all) in [
        ("runs.cancel", false),
        ("sessions.cancel", false),
        ("sessions.cancel", true),
    ] {
        let place = Place::new(
            Script::new()
                .on("[talk]", [says("never").held_by("never")])
                .on("[k]", [says("k is done")])
                .on("[n]", [says("n is done")])
                .on("[more]", [says("more is done")])
                .on_announce("n is done", [says("heard of n")]),
        );
        run(async {
            let mut caller = Caller::begin(place, None, false).await;
            let session = caller.session("agent", TALK).await;
            let talk = caller.turn(&session, "[talk]").await;
            caller.until_model_called("[talk]", 0).await;
            let k = caller
                .spawn(json!({ "task": "[k]", "parent": session }))
                .await;
            caller.ended(&k.id).await;
            let params = match method {
                "runs.cancel" => json!({ "runId": talk.id }),
                _ => json!({ "sessionKey": session, "all": all }),
            };
            let done = caller.call(method, params).await;
            assert_eq!(done["notEnded"], json!([]), "{done}");
            let asked = caller.place().model_calls();
            caller.quiet().await;
            caller.kill_once().await;
            caller.quiet().await;
            assert_eq!(caller.place().model_calls(), asked, "{method} {all}");
            let params = json!({ "sessionKey": session });
            let unread = caller.call("sessions.inbox", params).await;
            assert_eq!(unread["announces"][0]["runId"], k.id.as_str(), "{unread}");
            // The next turn is shown it, and its own children wake the session again.
            let more = caller.turn(&session, "[more]").await;
            assert_eq!(caller.ended(&more.id).await["result"], "more is done");
            let n = caller
                .spawn(json!({ "task": "[n]", "parent": session }))
                .await;
            caller.ended(&n.id).await;
            caller.quiet().await;
            assert!(
                caller
                    .place()
                    .model_calls()
                    .contains_key(&("n is done".to_owned(), 0)),
                "{method} {all}"
            );
            caller.ack_all(&session).await;
            caller.finish().await;
        });
    }
}

#[test]
fn no_agent_goes_on_with_a_task_that_a_person_has_cancelled() {
    let task = |prompt: &str, more: &Value| {
        let mut call = json!({
            "description": "Look", "prompt": prompt, "subagent_type": "explore",
        });
        call.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        calls("task", call)
    };
    let again = json!({ "session_id": "$key" });
    let place = Place::new(
        Script::new()
            .on("[kid]", [says("never").held_by("never")])
            .on("[person]", [says("as you like")])
            .on("[more]", [says("more is done")])
            .on(
                "[boss]",
                [task("[kid]", &json!({})), says("cancelled, I see")],
            )
            .on(
                "[again]",
                [
                    task("[more]", &again),
                    calls(
                        "sessions_send",
                        json!({ "sessionKey": "$key", "message": "[more]" }),
                    ),
                    task("[more]", &json!({})),
                    says("in another one"),
                ],
            )
            .on(
                "[once more]",
                [task("[more]", &again), says("in the same one")],
            ),
    )
    .with_agent("build", "mode: primary\ntools: [task, sessions_send]");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let boss = client.turn("agent:build:a", "[boss]").await;
        let kid = eventually("the child", async || {
            let kids = children(&client, "agent:build:a").await;
            kids.into_iter().find(|kid| kid["state"] == "running")
        })
        .await;
        let params = json!({ "runId": kid["runId"] });
        client.call("runs.cancel", params).await;
        assert_eq!(client.ended(&boss.id).await["result"], "cancelled, I see");
        let key = kid["sessionKey"].as_str().unwrap().to_owned();
        // From the next start on, the script contains the session's key.
        let path = place.path().join("script.json");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("$key", &key)).unwrap();
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let shown = async || {
            let params = json!({ "sessionKey": key });
            client.call("sessions.get", params).await["stopped"].clone()
        };
        let stopped = shown().await;
        assert_eq!(stopped["by"], "person", "{stopped}");
        assert!(stopped["at"].is_string(), "{stopped}");
        let mut list = place.command(&["sessions", "--all"]);
        let list = tokio::task::spawn_blocking(move || list.output());
        let list = String::from_utf8(list.await.unwrap().unwrap().stdout).unwrap();
        assert!(list.contains("stopped"), "{list}");
        let again = client.turn("agent:build:a", "[again]").await;
        assert_eq!(client.ended(&again.id).await["result"], "in another one");
        let answers = tool_results(&client, "agent:build:a").await;
        for refused in &answers[1..3] {
            let text = refused.as_str().unwrap();
            assert!(text.contains("cancelled_by_person"), "{answers:?}");
            assert!(text.contains(&key), "{answers:?}");
        }
        assert_eq!(answers[3]["output"], "more is done", "{answers:?}");
        // A user starts it again, and from then on agents may, too.
        let params = json!({ "sessionKey": key, "message": "[person]" });
        let sent = client.call("sessions.send", params).await;
        assert_eq!(sent["reply"], "as you like", "{sent}");
        assert_eq!(shown().await, Value::Null);
        let more = client.turn("agent:build:a", "[once more]").await;
        assert_eq!(client.ended(&more.id).await["result"], "in the same one");
        let answers = tool_results(&client, "agent:build:a").await;
        assert_eq!(answers[4]["metadata"]["sessionId"], key.as_str());
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_agent_whose_call_a_person_cancelled_is_not_called_again_by_that_run() {
    for (session, tool, argument) in [
        ("shared", "call_helper", "message"),
        ("own", "subagent_helper", "task_summary"),
    ] {
        let call = || calls(tool, json!({ argument: "[kid]" }));
        let place = Place::new(
            Script::new()
                .on("[kid]", [says("never").held_by("never")])
                .on("[host]", [call(), call(), says("host is done")]),
        )
        .with_agent(
            "host",
            &format!(
                "mode: primary\ntools: [read]\nlinked_agents:\n  - {{agent: helper, session: \
                 {session}}}"
            ),
        )
        .with_agent("helper", "mode: subagent\ntools: [read]");
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let params = json!({ "key": "agent:host:a", "agent": "host" });
            client.call("sessions.create", params).await;
            let host = client.turn("agent:host:a", "[host]").await;
            let kid = eventually("the call", async || {
                let kids = children(&client, "agent:host:a").await;
                kids.into_iter().find(|kid| kid["state"] == "running")
            })
            .await;
            let params = json!({ "runId": kid["runId"] });
            client.call("runs.cancel", params).await;
            assert_eq!(client.ended(&host.id).await["result"], "host is done");
            let answers = tool_results(&client, "agent:host:a").await;
            assert_eq!(answers.len(), 2, "{answers:?}");
            assert!(
                answers[1].to_string().contains("cancelled_by_person"),
                "{answers:?}"
            );
            assert_eq!(children(&client, "agent:host:a").await.len(), 1);
            client.quiet().await;
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn an_announce_that_a_queued_turn_has_answered_asks_no_model_again() {
    let place = Place::new(
        Script::new()
            .on("[talk]", [says("talked").held_by("go")])
            .on("[k]", [says("k is done")])
            // A superfluous call would find no second answer in the script, and fail.
            .on("[x]", [says("x, and whatever else there was")])
            .on_announce("k is done", [says("heard of k")]),
    )
    .with("lanes.main", "64")
    .with("lanes.global", "64");
    run(async {
        let mut caller = Caller::begin(place, None, false).await;
        let mut rounds = Vec::new();
        for round in 0..24 {
            let key = format!("agent:build:talk-{round}");
            let session = caller.session("agent", &key).await;
            caller.turn(&session, "[talk]").await;
            let k = caller
                .spawn(json!({ "task": "[k]", "parent": session }))
                .await;
            caller.ended(&k.id).await;
            let queued = caller.turn(&session, "[x]").await;
            rounds.push((session, queued));
        }
        // The queued turns begin while the announces are delivered.
        caller.place().let_go("go");
        for (session, queued) in &rounds {
            assert_eq!(caller.ended(&queued.id).await["state"], "ok");
            caller.quiet().await;
            let params = json!({ "sessionKey": session });
            let listed = caller.call("runs.list", params).await;
            for run in listed["runs"].as_array().unwrap() {
                let superseded = run["cancel"]["by"] == "superseded";
                assert!(run["state"] == "ok" || superseded, "{run}");
                assert!(!superseded || run["usage"]["modelCalls"] == 0, "{run}");
            }
        }
        caller.finish().await;
    });
}

#[test]
fn a_request_for_an_announce_that_is_shown_again_does_not_end_with_an_answer() {
    let heard = ["heard", "heard again"].map(|text| chat::says(&[text]));
    let server = ModelServer::start();
    server
        .on("k is done", heard)
        .on("[k]", [chat::says(&["k is done"])]);
    let place = providers::place(&server, "chat/small");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let session = client.session("agent", "talk").await;
        let k = client
            .spawn(json!({ "task": "[k]", "parent": session }))
            .await;
        client.ended(&k.id).await;
        client.quiet().await;
        let params = json!({ "runId": k.id });
        let again = client.call("runs.retry_announce", params).await;
        let again = client.ended(again["wakeRunId"].as_str().unwrap()).await;
        assert_eq!(again["result"], "heard again", "{again}");
        assert_eq!(server.requests().len(), 3);
        for request in server.requests() {
            let request = request.json();
            let last = request["messages"].as_array().unwrap().last().unwrap();
            assert_ne!(last["role"], "assistant", "{request}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn one_command_ends_everything_of_a_conversation() {
    let spawn = |label: &str| {
        let task = json!({ "task": format!("[{label}]"), "agent": "explore", "label": label });
        calls("sessions_spawn", task)
    };
    let place = Place::new(
        Script::new()
            .on("[boss]", [spawn("kid"), spawn("quick"), says("spawned")])
            .on("[kid]", [says("never").held_by("never")])
            .on("[quick]", [says("quick is done")])
            .on("[later]", [says("never").held_by("never")])
            .on("[last]", [says("never")])
            .on_announce("quick is done", [says("heard of quick")]),
    )
    .with_agent("build", "mode: primary\ntools: [sessions_spawn]");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let boss = client.turn(TALK, "[boss]").await;
        client.ended(&boss.id).await;
        eventually(
            "the child at work, and the other one heard of",
            async || {
                let asked = place.model_calls();
                let both = ["[kid]", "quick is done"].map(|rule| (rule.to_owned(), 0));
                both.iter()
                    .all(|call| asked.contains_key(call))
                    .then_some(())
            },
        )
        .await;
        let later = client.turn(TALK, "[later]").await;
        client.in_state(&later.id, "running").await;
        let last = client.turn(TALK, "[last]").await;
        let cancel = async |session: &str| {
            let mut command = place.command(&["cancel", session, "--all"]);
            let output = tokio::task::spawn_blocking(move || command.output());
            output.await.unwrap().unwrap()
        };
        let done = cancel(TALK).await;
        let (out, told) = (
            String::from_utf8(done.stdout).unwrap(),
            String::from_utf8(done.stderr).unwrap(),
        );
        assert!(done.status.success(), "{out}{told}");
        assert!(
            told.contains("no agent runs there until you start new work"),
            "{told}"
        );
        for run in [&later.id, &last.id] {
            assert_eq!(client.run(run).await["state"], "cancelled");
        }
        for kid in children(&client, TALK).await {
            assert_ne!(kid["state"], "running", "{kid}");
        }
        let asked = place.model_calls();
        client.quiet().await;
        assert_eq!(place.model_calls(), asked);
        // The announce of the cancelled child is in the inbox.
        assert_eq!(inbox(&client, TALK).await.len(), 1);
        assert!(cancel(TALK).await.status.success());
        let nowhere = cancel("agent:build:nowhere").await;
        assert_eq!(nowhere.status.code(), Some(3));
        let params = json!({ "sessionKey": "agent:build:nowhere", "all": true });
        let refused = client.refused("sessions.cancel", params).await;
        assert_eq!(kind_of(&refused), "not_found");
        assert_eq!(daemon.stop().await, 0);
    });
}
