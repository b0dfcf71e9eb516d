//! Questions of runs to users: shown at the root session, answered, expired, closed with their run.

use serde_json::{Value, json};

use crate::harness::{Place, Script, calls, kind_of, run, says};

fn asking() -> Place {
    let ask = json!({ "question": "which port?", "choices": ["80", "8080"] });
    Place::new(Script::new().on("[deploy]", [calls("ask", ask), says("deployed")]))
        .with("defaults.max_spawn_depth", "2")
}

#[test]
fn g14_7_g4_17_a_childs_question_is_seen_at_the_top_and_its_answer_goes_back_to_it() {
    let place = asking();
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let other = client.session("client", "other").await;
        let params = json!({ "task": "[deploy]", "agent": "build", "parent": root, "label": "d" });
        let child = client.spawn(params.clone()).await;
        let twin = client.spawn(params).await;
        for run in [&child, &twin] {
            client.in_state(&run.id, "paused").await;
        }
        let shown = client.run(&child.id).await;
        assert_eq!(shown["pauseReason"], "input", "{shown}");
        let question = &shown["questions"][0];
        assert_eq!(question["text"], "which port?");
        assert_eq!(question["choices"], json!(["80", "8080"]));
        assert!(question["expiresAt"].is_string() && question["askedAt"].is_string());

        let params = json!({ "sessionKey": root, "state": "open" });
        let open = client.call("questions.list", params).await;
        let all = open["questions"].as_array().unwrap();
        assert_eq!(all.len(), 2, "{open}");
        let of_child = all
            .iter()
            .find(|one| one["runId"] == child.id.as_str())
            .unwrap();
        assert_eq!(of_child["sessionKey"], child.session.as_str());
        assert_eq!(of_child["agent"], "build");
        assert_eq!(of_child["label"], "d");
        for (params, expected) in [
            (json!({ "sessionKey": other }), 0),
            (json!({ "sessionKey": root, "tree": false }), 0),
            (json!({ "sessionKey": child.session, "tree": false }), 1),
            (json!({ "state": "answered" }), 0),
            (json!({ "limit": 1 }), 1),
        ] {
            let found = client.call("questions.list", params.clone()).await;
            let found = found["questions"].as_array().unwrap().len();
            assert_eq!(found, expected, "{params}");
        }

        let id = &of_child["id"];
        for (params, kind) in [
            (json!({ "id": id }), "invalid_params"),
            (json!({ "id": id, "choice": "81" }), "invalid_params"),
            (json!({ "id": id, "text": "" }), "invalid_params"),
            (json!({ "id": child.id, "text": "x" }), "not_found"),
        ] {
            let refused = client.refused("questions.answer", params.clone()).await;
            assert_eq!(kind_of(&refused), kind, "{params}: {refused}");
        }
        let params = json!({ "id": id, "text": "443, please" });
        client.call("questions.answer", params).await;
        assert_eq!(client.ended(&child.id).await["result"], "deployed");
        assert_eq!(client.run(&twin.id).await["state"], "paused");
        let params = json!({ "id": id, "choice": "80" });
        let refused = client.refused("questions.answer", params).await;
        assert_eq!(kind_of(&refused), "conflict", "{refused}");
        let history = client
            .call("sessions.history", json!({ "sessionKey": child.session }))
            .await;
        assert!(history.to_string().contains("443, please"), "{history}");
        daemon.kill().await;

        // The other question survives a restart.
        let daemon = place.start().await;
        let client = daemon.client().await;
        let open = client
            .call("questions.list", json!({ "state": "open" }))
            .await;
        let question = &open["questions"][0];
        assert_eq!(question["runId"], twin.id.as_str(), "{open}");
        let params = json!({ "id": question["id"], "choice": "80" });
        client.call("questions.answer", params).await;
        assert_eq!(client.ended(&twin.id).await["result"], "deployed");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        let kinds: Vec<String> = place
            .book()
            .events
            .values()
            .filter(|event| event.kind.starts_with("question."))
            .map(|event| event.kind.clone())
            .collect();
        assert_eq!(
            kinds,
            [
                "question.asked",
                "question.asked",
                "question.answered",
                "question.answered"
            ]
        );
    });
}

#[test]
fn an_unanswered_question_runs_out_as_no_answer_while_the_daemon_is_away() {
    let ask = json!({ "question": "may I?", "timeout": 1 });
    let place = Place::new(Script::new().on("[may]", [calls("ask", ask), says("I did not")]));
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let turn = client.turn("agent:build:a", "[may]").await;
        client.in_state(&turn.id, "paused").await;
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(client.ended(&turn.id).await["result"], "I did not");
        let all = client.call("questions.list", json!({})).await;
        assert_eq!(all["questions"][0]["state"], "expired", "{all}");
        let params = json!({ "id": all["questions"][0]["id"], "text": "yes" });
        let refused = client.refused("questions.answer", params).await;
        assert_eq!(kind_of(&refused), "conflict", "{refused}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_run_that_ends_closes_its_question_and_time_for_people_is_not_its_own() {
    let ask = json!({ "question": "may I?" });
    let place = Place::new(
        Script::new()
            .on("[boss]", [says("failed boss").held_by("go")])
            .on("[may]", [calls("ask", ask), says("never")]),
    )
    .with("defaults.max_spawn_depth", "2");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let params = json!({
            "task": "[boss]", "agent": "build", "parent": root, "runTimeout": "1s",
        });
        let boss = client.spawn(params).await;
        let params = json!({
            "task": "[may]", "agent": "build", "parent": boss.session, "runTimeout": "300ms",
        });
        let asks = client.spawn(params).await;
        client.in_state(&asks.id, "paused").await;
        // The boss reaches its limit, which cancels the asking child; the child's own, shorter
        // limit did not count the wait for a user.
        assert_eq!(client.ended(&boss.id).await["state"], "timeout");
        assert_eq!(client.ended(&asks.id).await["state"], "cancelled");
        let all = client.call("questions.list", json!({})).await;
        assert_eq!(all["questions"][0]["state"], "closed", "{all}");
        let shown: Value = client.run(&asks.id).await;
        assert!(shown.get("questions").is_none(), "{shown}");
        assert_eq!(daemon.stop().await, 0);
    });
}
