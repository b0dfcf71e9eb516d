//! Area 1, restart and crash: what runs survive, and what users see of it.

use rusqlite::Connection;
use serde_json::json;

use crate::harness::{ArmedFailpoints, Caller, Place, Script, calls, eventually, run, says};

/// A place with one held text answer.
fn held() -> Place {
    Place::new(Script::new().on("[a]", [says("a is done").held_by("go")]))
}

#[test]
fn d_question_2_unfinished_subtasks_recover_after_a_restart() {
    let read = |path: &str| calls("read", json!({ "path": path }));
    let script = ["[a]", "[b]", "[c]"]
        .iter()
        .fold(Script::new(), |script, task| {
            script.on(
                task,
                [
                    read("notes.txt"),
                    read("src/one.rs").held_by(&format!("go {task}")),
                    says(&format!("{task} is done")),
                ],
            )
        });
    run(async {
        let mut caller = Caller::begin(Place::new(script), None, false).await;
        let root = caller.session("client", "bot:one").await;
        let mut runs = Vec::new();
        for task in ["[a]", "[b]", "[c]"] {
            runs.push((
                task,
                caller.spawn(json!({ "task": task, "parent": root })).await,
            ));
        }
        for (task, _) in &runs {
            caller.until_model_called(task, 1).await;
        }
        caller.kill_once().await;
        for (task, _) in &runs {
            caller.place().let_go(&format!("go {task}"));
        }
        for (task, run) in &runs {
            assert_eq!(
                caller.ended(&run.id).await["result"],
                format!("{task} is done")
            );
            let steps = caller.call("runs.steps", json!({ "runId": run.id })).await;
            let attempts: Vec<_> = steps["steps"]
                .as_array()
                .unwrap()
                .iter()
                .map(|step| &step["attempts"])
                .collect();
            // Model, tool, and only then the model call that the kill interrupted.
            assert_eq!(attempts, [1, 1, 2, 1, 1], "{task}");
        }
        caller.quiet().await;
        assert_eq!(caller.ack_all(&root).await.len(), 3);
        let book = caller.finish().await;
        assert_eq!(book.boots.len(), 2);
    });
}

#[test]
fn g1_1_what_was_accepted_is_listed_and_what_had_ended_is_reported_after_a_restart() {
    let place = Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[b]", [says("b is done").held_by("go")]),
    );
    run(async {
        // The daemon is killed between the end of a run and its announce.
        let arm = ArmedFailpoints::new(0, "store.deliver.begin=kill@1");
        let mut caller = Caller::begin(place, Some(arm), false).await;
        let root = caller.session("client", "bot:one").await;
        let b = caller.spawn(json!({ "task": "[b]", "parent": root })).await;
        let a = caller.spawn(json!({ "task": "[a]", "parent": root })).await;
        assert_eq!(caller.ended(&a.id).await["result"], "a is done");
        caller
            .until("a report", async |caller: &mut Caller| {
                let run = caller.run(&a.id).await;
                (run["announce"]["state"] == "delivered").then_some(())
            })
            .await;
        assert!(caller.was_killed_as_ordered());
        let found = caller.history.latest.as_ref().unwrap();
        assert_eq!(
            found.outbox[&a.id].state, "pending",
            "the kill came too late"
        );
        let open = caller
            .call("runs.list", json!({ "states": ["queued", "running"] }))
            .await;
        assert_eq!(open["runs"].as_array().unwrap().len(), 1, "{open}");
        assert_eq!(open["runs"][0]["runId"], b.id.as_str());
        caller.place().let_go("go");
        caller.ended(&b.id).await;
        caller.finish().await;
    });
}

#[test]
fn g1_2_a_run_that_nobody_missed_for_a_week_is_closed_with_one_notice_and_no_model_call() {
    run(async {
        let place = Place::new(
            Script::new()
                .on("[a]", [says("a is done").held_by("go")])
                .on_announce("*", [says("heard")]),
        );
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("agent", "root").await;
        let a = client
            .spawn(json!({ "task": "[a]", "parent": root, "label": "lost one" }))
            .await;
        eventually("the call", || async {
            place
                .model_calls()
                .contains_key(&("[a]".to_owned(), 0))
                .then_some(())
        })
        .await;
        daemon.kill().await;
        // As if the machine had been off for eight days.
        let db = Connection::open(place.database()).unwrap();
        let older = "UPDATE runs SET last_activity_at = last_activity_at - 8 * 24 * 3600 * 1000";
        assert_eq!(db.execute(older, []).unwrap(), 1);
        drop(db);
        place.let_go("go");

        let daemon = place.start().await;
        let client = daemon.client().await;
        let ended = client.ended(&a.id).await;
        assert_eq!(ended["state"], "interrupted");
        assert_eq!(ended["error"]["kind"], "too_old");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(
            place.model_calls().len(),
            1,
            "a model was called for it: {:?}",
            place.model_calls()
        );
        assert_eq!(place.model_calls()[&("[a]".to_owned(), 0)], 1);
        let book = place.book();
        assert_eq!(book.runs.len(), 1, "somebody was woken for it");
        let notice = &book.outbox[&a.id];
        assert_eq!(
            (notice.policy.as_str(), notice.state.as_str()),
            ("inbox", "delivered")
        );
        let target = book.runs[&a.id].requester.as_ref().unwrap();
        assert_eq!(book.transcript(target).count(), 1);
    });
}

#[test]
fn g1_3_a_lost_link_and_a_wait_that_runs_out_change_no_run() {
    run(async {
        let place = held();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "[a]" })).await;
        client.in_state(&a.id, "running").await;
        let params = json!({ "runId": a.id, "waitTimeout": 0.01 });
        let waited = client.call("agent.wait", params).await;
        assert_eq!(waited["runs"][0]["status"], "pending", "{waited}");

        // This client disconnects in the middle of a wait.
        let leaving = daemon.client().await;
        let params = json!({ "runId": a.id, "waitTimeout": 60 });
        let mut wait = Box::pin(leaving.attempt("agent.wait", &params));
        assert!(futures_util::poll!(&mut wait).is_pending());
        // The daemon has accepted the wait once a later call is answered.
        leaving.call("gateway.ping", json!({})).await;
        drop(wait);
        drop(leaving);
        assert_eq!(client.run(&a.id).await["state"], "running");

        place.let_go("go");
        let again = daemon.client().await;
        assert_eq!(again.ended(&a.id).await["result"], "a is done");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g1_5_an_interrupted_turn_shows_a_notice_and_goes_on_without_a_new_message() {
    let place = Place::new(Script::new().on("[talk]", [says("talked").held_by("go")]));
    run(async {
        let mut caller = Caller::begin(place, None, false).await;
        let turn = caller.turn("agent:build:talk", "[talk]").await;
        caller.until_model_called("[talk]", 0).await;
        caller.kill_once().await;
        caller.place().let_go("go");
        assert_eq!(caller.ended(&turn.id).await["result"], "talked");
        let params = json!({ "sessionKey": turn.session });
        let history = caller.call("sessions.history", params).await;
        let entries: Vec<(&str, &str)> = history["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| {
                (
                    entry["kind"].as_str().unwrap(),
                    entry["role"].as_str().unwrap(),
                )
            })
            .collect();
        let expected = [
            ("text", "user"),
            ("restart_notice", "system"),
            ("text", "assistant"),
        ];
        assert_eq!(entries, expected);
        let notice = &history["messages"][1];
        assert!(
            notice["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains(&turn.id),
            "{notice}"
        );
        caller.finish().await;
    });
}

#[test]
fn g1_6_g1_7_no_view_shows_a_dead_run_as_running_and_all_views_agree() {
    let mut place = held();
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "[a]" })).await;
        client.in_state(&a.id, "running").await;
        daemon.kill().await;
        // No run gets a slot after this start, so its state cannot change meanwhile.
        place.set("lanes.global", "0");
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_views_agree(&client, &a, "queued", "pending").await;
        assert_eq!(daemon.stop().await, 0);

        place.set("lanes.global", "4");
        place.let_go("go");
        let daemon = place.start().await;
        let client = daemon.client().await;
        client.ended(&a.id).await;
        assert_views_agree(&client, &a, "ok", "ok").await;
        assert_eq!(daemon.stop().await, 0);
    });
}

async fn assert_views_agree(
    client: &crate::harness::Link,
    run: &crate::harness::Spawned,
    state: &str,
    status: &str,
) {
    let open = usize::from(state == "queued");
    assert_eq!(client.run(&run.id).await["state"], state);
    let listed = client
        .call("runs.list", json!({ "sessionKey": run.session }))
        .await;
    assert_eq!(listed["runs"][0]["state"], state);
    let live = client
        .call("runs.list", json!({ "states": ["queued", "running"] }))
        .await;
    assert_eq!(live["runs"].as_array().unwrap().len(), open);
    let params = json!({ "runId": run.id, "waitTimeout": 0 });
    let waited = client.call("agent.wait", params).await;
    assert_eq!(waited["runs"][0]["state"], state);
    assert_eq!(waited["runs"][0]["status"], status);
    let counts = client.call("gateway.status", json!({})).await["counts"].clone();
    assert_eq!(
        (&counts["queued"], &counts["running"]),
        (&json!(open), &json!(0))
    );
    let session = client
        .call("sessions.get", json!({ "sessionKey": run.session }))
        .await;
    let expected = if open == 1 { "busy" } else { "idle" };
    assert_eq!(session["state"], expected, "{session}");
}

#[test]
fn g1_8_a_child_that_cannot_be_carried_on_is_reported_once_by_name() {
    run(async {
        let place = held().with("recovery.max_attempts", "1");
        let mut asked = 0;
        let mut daemon = place.start().await;
        let mut client = daemon.client().await;
        let root = client.session("client", "root").await;
        let a = client
            .spawn(json!({ "task": "[a]", "parent": root, "label": "lost one" }))
            .await;
        // Twice in the middle of the same step, while the limit is one.
        for _ in 0..2 {
            asked += 1;
            eventually("the call", || async {
                (place.model_calls().get(&("[a]".to_owned(), 0)) == Some(&asked)).then_some(())
            })
            .await;
            daemon.kill().await;
            daemon = place.start().await;
            client = daemon.client().await;
        }
        let ended = client.ended(&a.id).await;
        assert_eq!(ended["state"], "interrupted");
        assert_eq!(ended["error"]["kind"], "recovery_attempts");
        client.quiet().await;
        let inbox = client
            .call("sessions.inbox", json!({ "sessionKey": root }))
            .await;
        let [announce] = inbox["announces"].as_array().unwrap().as_slice() else {
            panic!("not one report: {inbox}")
        };
        assert_eq!(announce["outcome"], "interrupted");
        assert_eq!(announce["runId"], a.id.as_str());
        assert_eq!(announce["label"], "lost one");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g1_10_the_requester_is_stored_with_the_run_and_told_after_a_restart() {
    let place = Place::new(
        Script::new()
            .on("[c]", [says("c waits").held_by("go")])
            .on("[g]", [says("g is done").held_by("go")])
            .on_announce("g is done", [says("c heard")]),
    )
    .with("defaults.max_spawn_depth", "2");
    run(async {
        let mut caller = Caller::begin(place, None, false).await;
        let root = caller.session("client", "bot:one").await;
        let c = caller.spawn(json!({ "task": "[c]", "parent": root })).await;
        let g = caller
            .spawn(json!({ "task": "[g]", "parent": c.session }))
            .await;
        caller.kill_once().await;
        caller.place().let_go("go");
        caller.ended(&g.id).await;
        caller.ended(&c.id).await;
        let book = caller.finish().await;
        let session = |run: &str| book.runs[run].session.clone();
        let root = book
            .sessions
            .values()
            .find(|session| session.key == root)
            .unwrap();
        assert_eq!(book.outbox[&g.id].target, session(&c.id));
        assert_eq!(book.outbox[&c.id].target, root.id);
    });
}

#[test]
fn g1_11_a_childs_transcript_is_whole_whatever_becomes_of_its_parent() {
    let place = Place::new(
        Script::new()
            .on("[talk]", [says("talked")])
            .on(
                "[a]",
                [
                    calls("read", json!({ "path": "notes.txt" })).held_by("go"),
                    says("a is done"),
                ],
            )
            .on_announce("*", [says("heard")]),
    );
    run(async {
        let mut caller = Caller::begin(place, None, false).await;
        let parent = caller.session("agent", "agent:build:talk").await;
        let turn = caller.turn(&parent, "[talk]").await;
        let a = caller
            .spawn(json!({ "task": "[a]", "parent": parent }))
            .await;
        // The parent's turn ended long before the daemon is killed.
        caller.ended(&turn.id).await;
        caller.until_model_called("[a]", 0).await;
        caller.kill_once().await;
        caller.place().let_go("go");
        caller.ended(&a.id).await;
        let book = caller.finish().await;
        let kinds: Vec<&str> = book
            .transcript(&book.runs[&a.id].session)
            .map(|entry| entry.kind.as_str())
            .collect();
        assert_eq!(
            kinds,
            ["text", "restart_notice", "tool_call", "tool_result", "text"]
        );
    });
}

#[test]
fn g1_13_a_run_that_is_being_cancelled_is_not_carried_on_by_a_restart() {
    let place = Place::new(
        Script::new()
            .on(
                "[c]",
                [crate::harness::fails("out of service").held_by("go")],
            )
            .on("[g]", [says("g is never done").held_by("never")]),
    )
    .with("defaults.max_spawn_depth", "2");
    run(async {
        // The daemon is killed when the cancel is stored and the executor has not stopped yet.
        let arm = ArmedFailpoints::new(0, "store.conclude.begin=kill@1");
        let mut caller = Caller::begin(place, Some(arm), false).await;
        let c = caller.spawn(json!({ "task": "[c]" })).await;
        let g = caller
            .spawn(json!({ "task": "[g]", "parent": c.session }))
            .await;
        caller.until_model_called("[g]", 0).await;
        caller.place().let_go("go");
        assert_eq!(caller.ended(&g.id).await["state"], "cancelled");
        assert!(caller.was_killed_as_ordered());
        let found = &caller.history.latest.as_ref().unwrap().runs[&g.id];
        assert!(found.cancel_by.is_some() && !found.ended, "{found:?}");
        caller.finish().await;
        let asked = caller.place().model_calls();
        assert_eq!(asked[&("[g]".to_owned(), 0)], 1, "it was tried again");
    });
}
