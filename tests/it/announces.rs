//! Area 2, announces to the parent: recipient, time, count and content.

use serde_json::{Value, json};

use crate::harness::{ArmedFailpoints, Caller, Place, Script, eventually, kind_of, run, says};

fn one() -> Place {
    Place::new(Script::new().on("[a]", [says("a is done")]))
}

/// A child of a client's session, where the daemon is killed at `point` of the announce.
async fn told_with_a_kill_at(point: &str) -> (Caller, String) {
    let arm = ArmedFailpoints::new(0, &format!("{point}=kill@1"));
    let mut caller = Caller::begin(one(), Some(arm), false).await;
    let root = caller.session("client", "bot:one").await;
    let a = caller.spawn(json!({ "task": "[a]", "parent": root })).await;
    caller.ended(&a.id).await;
    caller.quiet().await;
    assert!(caller.was_killed_as_ordered(), "{point}");
    let inbox = caller
        .call("sessions.inbox", json!({ "sessionKey": root }))
        .await;
    assert_eq!(inbox["announces"].as_array().unwrap().len(), 1, "{inbox}");
    (caller, a.id)
}

#[test]
fn g2_1_a_delivery_that_is_repeated_after_an_unclear_end_changes_nothing() {
    run(async {
        let (mut caller, a) = told_with_a_kill_at("store.deliver.committed").await;
        let book = caller.finish().await;
        let told = book
            .messages
            .values()
            .filter(|entry| entry.kind == "announce");
        assert_eq!(told.count(), 1);
        assert_eq!(book.outbox[&a].announce, a, "the id is the run's own");
    });
}

#[test]
fn g2_2_delivered_is_stored_with_the_delivery() {
    run(async {
        let (mut caller, a) = told_with_a_kill_at("store.deliver.committed").await;
        let killed = caller.history.latest.clone().unwrap();
        assert_eq!(killed.outbox[&a].state, "delivered");
        assert!(killed.outbox[&a].message_seq.is_some());
        caller.finish().await;
    });
}

#[test]
fn g2_3_what_is_not_in_the_transcript_is_not_delivered() {
    run(async {
        let (mut caller, a) = told_with_a_kill_at("store.deliver.applied").await;
        let killed = caller.history.latest.clone().unwrap();
        assert_eq!(killed.outbox[&a].state, "pending");
        assert!(
            killed
                .messages
                .values()
                .all(|entry| entry.kind != "announce")
        );
        caller.finish().await;
    });
}

#[test]
fn g2_4_g2_5_a_report_goes_to_the_session_that_asked_whatever_is_active() {
    let place = Place::new(
        Script::new()
            .on("[talk]", [says("talked").held_by("stop talking")])
            .on("[c]", [says("c waits").held_by("go")])
            .on("[g]", [says("g is done").held_by("go")])
            .on_announce("g is done", [says("c heard")]),
    )
    .with("defaults.max_spawn_depth", "2");
    run(async {
        let mut caller = Caller::begin(place, None, false).await;
        let root = caller.session("client", "bot:one").await;
        let other = caller.session("client", "bot:two").await;
        let c = caller.spawn(json!({ "task": "[c]", "parent": root })).await;
        let g = caller
            .spawn(json!({ "task": "[g]", "parent": c.session }))
            .await;
        // A different session is the active one when they end.
        let talk = caller.turn("agent:build:talk", "[talk]").await;
        caller.until_model_called("[talk]", 0).await;
        caller.place().let_go("go");
        caller.ended(&c.id).await;
        caller.place().let_go("stop talking");
        caller.ended(&talk.id).await;
        let book = caller.finish().await;
        let told_in = |run: &str| {
            let announce = &book.outbox[run].announce;
            let mut told = book
                .messages
                .values()
                .filter(|one| one.announce.as_ref() == Some(announce));
            book.sessions[&told.next().unwrap().session].key.clone()
        };
        assert_eq!(told_in(&g.id), c.session);
        assert_eq!(told_in(&c.id), root);
        let other = book
            .sessions
            .values()
            .find(|session| session.key == other)
            .unwrap();
        assert_eq!(book.transcript(&other.id).count(), 0);
    });
}

#[test]
fn g2_7_a_parent_that_is_not_there_is_refused_at_the_spawn() {
    run(async {
        let place = one();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "task": "[a]", "agent": "explore", "parent": "client:nobody" });
        let refused = client.refused("sessions.spawn", params).await;
        assert_eq!(kind_of(&refused), "not_found", "{refused}");
        assert!(refused.message.contains("client:nobody"), "{refused}");
        // An announce mode without a parent is refused.
        let params = json!({ "task": "[a]", "agent": "explore", "announce": "inbox" });
        let refused = client.refused("sessions.spawn", params).await;
        assert_eq!(kind_of(&refused), "invalid_params", "{refused}");
        assert_eq!(daemon.stop().await, 0);
        let book = place.book();
        assert!(book.runs.is_empty() && book.sessions.is_empty());
    });
}

#[test]
fn g2_8_nineteen_children_that_end_during_a_turn_are_all_told_and_the_agent_wakes() {
    const CHILDREN: usize = 19;
    let script = (0..CHILDREN).fold(Script::new(), |script, number| {
        script.on(
            &format!("[k{number:02}]"),
            [says(&format!("child {number:02} is done"))],
        )
    });
    let script = script
        .on("[talk]", [says("talked").held_by("stop talking")])
        .on_announce("*", [says("heard of all")]);
    run(async {
        let mut caller = Caller::begin(Place::new(script), None, false).await;
        let session = caller.session("agent", "agent:build:talk").await;
        let talk = caller.turn(&session, "[talk]").await;
        caller.until_model_called("[talk]", 0).await;
        let mut children = Vec::new();
        for number in 0..CHILDREN {
            let task = format!("[k{number:02}]");
            children.push(
                caller
                    .spawn(json!({ "task": task, "parent": session }))
                    .await,
            );
        }
        for child in &children {
            caller.ended(&child.id).await;
        }
        let count = |entries: &Value, kind: &str| {
            let entries = entries["messages"].as_array().unwrap();
            entries.iter().filter(|entry| entry["kind"] == kind).count()
        };
        let params = json!({ "sessionKey": session, "limit": 100 });
        let during = caller.call("sessions.history", params.clone()).await;
        assert_eq!(count(&during, "announce"), 0, "in the middle of a turn");
        caller.place().let_go("stop talking");
        caller.ended(&talk.id).await;
        caller.quiet().await;
        let after = caller.call("sessions.history", params).await;
        assert_eq!(count(&after, "announce"), CHILDREN);
        let last = after["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(last["content"][0]["text"], "heard of all");

        let book = caller.finish().await;
        // One turn answers all of them, and their order is that of the runs' ends.
        let wakes: Vec<_> = book
            .runs
            .values()
            .filter(|run| run.origin == "wake")
            .collect();
        assert_eq!(wakes.len(), 1);
        let steps: Vec<_> = book.steps_of(&wakes[0].id).collect();
        let target = &wakes[0].session;
        let last = book
            .transcript(target)
            .filter(|entry| entry.kind == "announce")
            .last();
        assert!(steps[0].seen_up_to >= last.map(|entry| entry.seq));
        let ends: Vec<&str> = book
            .events
            .values()
            .filter(|event| event.kind == "announce.queued")
            .map(|event| event.run.as_deref().unwrap())
            .collect();
        let told: Vec<&str> = book
            .transcript(target)
            .filter_map(|entry| entry.announce.as_deref())
            .collect();
        assert_eq!(told, ends);
    });
}

#[test]
fn g2_9_a_report_waits_in_the_inbox_until_it_is_acknowledged() {
    run(async {
        let mut caller = Caller::begin(one(), None, false).await;
        let root = caller.session("client", "bot:one").await;
        let params = json!({ "task": "[a]", "parent": root, "meta": { "chat": 7 } });
        let a = caller.spawn(params).await;
        caller.ended(&a.id).await;
        caller.quiet().await;
        let inbox = json!({ "sessionKey": root });
        let first = caller.call("sessions.inbox", inbox.clone()).await;
        assert_eq!(first["announces"][0]["meta"], json!({ "chat": 7 }));
        let undelivered = json!({ "undelivered": true });
        for _ in 0..2 {
            caller.kill_once().await;
            assert_eq!(caller.call("sessions.inbox", inbox.clone()).await, first);
            let listed = caller.call("runs.list", undelivered.clone()).await;
            assert_eq!(listed["runs"][0]["runId"], a.id.as_str(), "{listed}");
        }
        caller.ack_all(&root).await;
        caller.kill_once().await;
        let left = caller.call("sessions.inbox", inbox).await;
        assert_eq!(left["announces"], json!([]));
        let acked = json!({ "sessionKey": root, "acked": true });
        let acked = caller.call("sessions.inbox", acked).await;
        assert_eq!(acked["announces"][0]["runId"], a.id.as_str());
        let listed = caller.call("runs.list", undelivered).await;
        assert_eq!(listed["runs"], json!([]));
        caller.finish().await;
    });
}

#[test]
fn g2_11_a_report_carries_the_last_text_and_says_where_the_rest_of_a_long_one_is() {
    // Two bytes per character, so that a cut may fall within one.
    let long = "ä".repeat(100 * 1024);
    let read = crate::harness::calls("read", json!({ "path": "notes.txt" }));
    let place = Place::new(
        Script::new()
            .on("[a]", [read, says("what it found")])
            .on("[b]", [says(&long)]),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let a = client.spawn(json!({ "task": "[a]", "parent": root })).await;
        client.ended(&a.id).await;
        client.quiet().await;
        let b = client.spawn(json!({ "task": "[b]", "parent": root })).await;
        client.ended(&b.id).await;
        client.quiet().await;
        let inbox = client
            .call("sessions.inbox", json!({ "sessionKey": root }))
            .await;
        let [first, second] = inbox["announces"].as_array().unwrap().as_slice() else {
            panic!("{inbox}")
        };
        assert_eq!(
            (&first["result"], &first["truncated"]),
            (&json!("what it found"), &json!(false))
        );
        assert_eq!(second["truncated"], true);
        let told = second["result"].as_str().unwrap();
        assert!(long.starts_with(told) && told.len() <= 100 * 1024 && told.len() > 90 * 1024);
        assert_eq!(
            client.run(&b.id).await["result"].as_str(),
            Some(long.as_str())
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g2_12_a_run_without_a_last_text_is_no_success_and_its_report_says_so() {
    let place = Place::new(Script::new().on("[a]", [says(""), says(""), says("")]));
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let a = client.spawn(json!({ "task": "[a]", "parent": root })).await;
        let ended = client.ended(&a.id).await;
        assert_eq!(
            (&ended["state"], &ended["error"]["kind"]),
            (&json!("error"), &json!("no_answer"))
        );
        client.quiet().await;
        let inbox = client
            .call("sessions.inbox", json!({ "sessionKey": root }))
            .await;
        let announce = &inbox["announces"][0];
        assert_eq!(
            (&announce["outcome"], &announce["result"]),
            (&json!("error"), &json!(""))
        );
        assert_eq!(announce["runId"], a.id.as_str());
        assert!(
            announce["error"]
                .as_str()
                .unwrap()
                .contains("without a final text"),
            "{announce}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g2_13_a_report_is_internal_and_never_a_users_message() {
    let place = Place::new(
        Script::new()
            .on("[a]", [says("[talk] as if a user had said it")])
            .on("[talk]", [says("answered a user")])
            .on_announce("*", [says("NO_REPLY")]),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("agent", "root").await;
        let a = client.spawn(json!({ "task": "[a]", "parent": root })).await;
        client.ended(&a.id).await;
        client.quiet().await;
        let history = client
            .call("sessions.history", json!({ "sessionKey": root }))
            .await;
        let [announce, answer] = history["messages"].as_array().unwrap().as_slice() else {
            panic!("{history}")
        };
        assert_eq!(
            (&announce["kind"], &announce["origin"]),
            (&json!("announce"), &json!("internal"))
        );
        // A silent answer needs no announcement.
        assert_eq!(
            (&answer["silent"], &answer["origin"]),
            (&json!(true), &json!("agent"))
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g2_6_g2_14_a_report_without_a_target_stays_on_its_run_and_is_listed() {
    let place = Place::new(Script::new().on("[a]", [says("a is done").held_by("go")]));
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let a = client.spawn(json!({ "task": "[a]", "parent": root })).await;
        eventually("the call", || async {
            place
                .model_calls()
                .contains_key(&("[a]".to_owned(), 0))
                .then_some(())
        })
        .await;
        daemon.kill().await;
        // No method deletes a session yet, so the test removes the row.
        let db = rusqlite::Connection::open(place.database()).unwrap();
        let gone = db
            .execute("DELETE FROM sessions WHERE key = ?1", [&root])
            .unwrap();
        assert_eq!(gone, 1);
        drop(db);
        place.let_go("go");

        let daemon = place.start().await;
        let client = daemon.client().await;
        client.ended(&a.id).await;
        client.quiet().await;
        let run = client.run(&a.id).await;
        assert_eq!(
            (&run["result"], &run["state"]),
            (&json!("a is done"), &json!("ok"))
        );
        assert_eq!(run["announce"]["state"], "undelivered", "{run}");
        let listed = client
            .call("runs.list", json!({ "undelivered": true }))
            .await;
        assert_eq!(listed["runs"][0]["runId"], a.id.as_str(), "{listed}");
        let sessions = client
            .call("sessions.list", json!({ "kind": "main" }))
            .await;
        assert_eq!(sessions["sessions"], json!([]), "the parent was revived");
        assert_eq!(daemon.stop().await, 0);
        let book = place.book();
        assert!(
            book.events
                .values()
                .any(|event| event.kind == "announce.held")
        );
    });
}
