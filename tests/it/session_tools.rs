//! Tools of runs for the runs that they have spawned: yield until one of them ends, cancel them,
//! choose how they run; and the to-do list.

use serde_json::{Value, json};

use crate::harness::{Link, Place, Script, calls, eventually, run, says};

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
fn a_run_that_yields_goes_on_with_what_it_waited_for() {
    let spawn = json!({ "task": "[kid]", "agent": "explore" });
    let place = Place::new(
        Script::new()
            .on(
                "[boss]",
                [
                    calls("sessions_yield", json!({})),
                    calls("sessions_spawn", spawn),
                    calls(
                        "sessions_yield",
                        json!({ "message": "I wait for the kid." }),
                    ),
                ],
            )
            .on("[kid]", [says("kid is done").held_by("go")])
            .on_announce("kid is done", [says("boss is done")]),
    )
    .with("defaults.max_spawn_depth", "2");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        // A turn of a root session ends, and a wake run answers instead.
        let turn = client.turn("agent:build:a", "[boss]").await;
        let ended = client.ended(&turn.id).await;
        assert_eq!(ended["result"], "I wait for the kid.");
        let answers = tool_results(&client, "agent:build:a").await;
        assert!(
            answers[0].starts_with("conflict: there is nothing to wait for"),
            "{answers:?}"
        );
        assert!(answers[2].contains("\"yielded\":true"), "{answers:?}");
        // A spawned run settles and resumes as the same run.
        let root = client.session("client", "root").await;
        let params = json!({ "task": "[boss]", "agent": "build", "parent": root });
        let boss = client.spawn(params).await;
        client.in_state(&boss.id, "settling").await;
        place.let_go("go");
        assert_eq!(client.ended(&boss.id).await["result"], "boss is done");
        client.quiet().await;
        let all = client
            .call("runs.list", json!({ "sessionKey": "agent:build:a" }))
            .await;
        let results: Vec<&Value> = all["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| &run["result"])
            .collect();
        assert_eq!(results, ["boss is done", "I wait for the kid."]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_run_cancels_what_lies_below_it_and_nothing_else() {
    let spawn = json!({ "task": "[kid]", "agent": "explore", "label": "kid" });
    let place = Place::new(
        Script::new()
            .on("[boss]", [calls("sessions_spawn", spawn), says("spawned")])
            .on("[kid]", [says("never").held_by("never")])
            .on(
                "[end ",
                [
                    calls("runs_cancel", json!({ "runId": "$id" })),
                    says("cancelled"),
                ],
            )
            .on_announce("kid", [says("NO_REPLY")]),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let boss = client.turn("agent:build:a", "[boss]").await;
        client.ended(&boss.id).await;
        let open = json!({ "parent": "agent:build:a" });
        let kid = client.call("runs.list", open).await["runs"][0]["runId"].clone();
        let kid = kid.as_str().unwrap().to_owned();
        client.in_state(&kid, "running").await;
        // From the next start on, the script contains the id of the run to cancel.
        let path = place.path().join("script.json");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("$id", &kid)).unwrap();
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        client.in_state(&kid, "running").await;
        let stranger = client.turn("agent:build:b", "[end it]").await;
        client.ended(&stranger.id).await;
        let said = tool_results(&client, "agent:build:b").await;
        assert!(said[0].starts_with("not_found: "), "{said:?}");
        assert_eq!(client.run(&kid).await["state"], "running");
        let own = client.turn("agent:build:a", "[end it]").await;
        client.ended(&own.id).await;
        let said = tool_results(&client, "agent:build:a").await;
        assert!(
            said[1].contains(&format!("\"cancelled\":[\"{kid}\"]")),
            "{said:?}"
        );
        assert_eq!(client.ended(&kid).await["state"], "cancelled");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g4_10_a_model_says_how_a_child_runs() {
    let spawn = |more: Value| {
        let mut call = json!({ "task": "[kid]", "agent": "explore" });
        for (name, value) in more.as_object().unwrap() {
            call[name] = value.clone();
        }
        calls("sessions_spawn", call)
    };
    let place = Place::new(
        Script::new()
            .on(
                "[boss]",
                [
                    spawn(json!({ "model": "nobody/none" })),
                    spawn(json!({ "thinking": "much" })),
                    spawn(json!({ "cwd": "/etc" })),
                    spawn(json!({
                        "label": "l", "model": "script/y", "thinking": "low", "cleanup": "keep",
                        "mode": "session", "context": "fork", "runTimeout": 60,
                    })),
                    says("spawned"),
                ],
            )
            .on("[kid]", [says("kid is done")])
            .on_announce("kid is done", [says("NO_REPLY")]),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let boss = client.turn("agent:build:a", "[boss]").await;
        assert_eq!(client.ended(&boss.id).await["result"], "spawned");
        let said = tool_results(&client, "agent:build:a").await;
        for (told, says) in said
            .iter()
            .zip(["unknown model", "off, minimal", "unknown argument"])
        {
            assert!(told.contains(says), "{told}");
        }
        let listed = client
            .call("runs.list", json!({ "parent": "agent:build:a" }))
            .await;
        let runs = listed["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 1, "{listed}");
        let kid = client.ended(runs[0]["runId"].as_str().unwrap()).await;
        assert_eq!(
            (&kid["model"], &kid["thinking"]),
            (&json!("script/y"), &json!("low"))
        );
        assert_eq!(kid["label"], "l");
        let params = json!({ "sessionKey": kid["sessionKey"] });
        let session = client.call("sessions.get", params).await;
        assert_eq!(session["mode"], "session", "{session}");
        assert!(
            session["forkOf"].is_object() || session["forkOf"].is_string(),
            "{session}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_a_run_has_to_do_is_seen_as_it_wrote_it_last() {
    let list = |first: &str, second: &str| {
        json!({ "items": [
            { "text": "look", "status": first }, { "text": "tell", "status": second },
        ] })
    };
    let place = Place::new(Script::new().on(
        "[work]",
        [
            calls("todo", list("in_progress", "open")),
            calls(
                "todo",
                json!({ "items": [{ "text": "x", "status": "later" }] }),
            ),
            calls("todo", list("done", "in_progress")),
            says("told").held_by("go"),
        ],
    ));
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let turn = client.turn("agent:build:a", "[work]").await;
        let last = ("[work]".to_owned(), 3);
        eventually("the last answer", || async {
            place.model_calls().contains_key(&last).then_some(())
        })
        .await;
        assert_eq!(
            client.run(&turn.id).await["todo"],
            list("done", "in_progress")["items"]
        );
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        place.let_go("go");
        let ended = client.ended(&turn.id).await;
        assert_eq!(ended["result"], "told");
        let shown = client.run(&turn.id).await;
        assert_eq!(shown["todo"], list("done", "in_progress")["items"]);
        assert_eq!(daemon.stop().await, 0);
    });
}
