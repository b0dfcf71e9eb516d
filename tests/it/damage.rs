//! Damage of the store, seen through the real binary: rows that cannot be read cost
//! themselves only, a damaged file is set aside and what can be read of it is kept.

use serde_json::{Value, json};

use crate::harness::{Place, Script, damaged, run, says};

fn place() -> Place {
    Place::new(
        Script::new()
            .on("[held]", [says("held is done").held_by("go")])
            .on("*", [says("done")]),
    )
}

fn sql(place: &Place, sql: &str) {
    damaged(&place.database(), sql);
}

#[test]
fn g5_3_one_bad_row_among_a_thousand_costs_itself_at_a_start() {
    run(async {
        let place = place().with("lanes.global", "0");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "bot").await;
        let mut spawned = Vec::new();
        for group in 0..20 {
            let spawns = (0..50).map(|number| {
                let parent = (group == 0 && number == 7).then_some(&root);
                client.spawn(json!({ "task": format!("task {group} {number}"), "parent": parent }))
            });
            spawned.extend(futures_util::future::join_all(spawns).await);
        }
        daemon.kill().await;
        let bad = &spawned[7];
        let id = bad.id.replace('-', "");
        sql(
            &place,
            &format!("UPDATE runs SET warnings = 'no JSON' WHERE id = x'{id}'"),
        );

        let mut place = place;
        place.set("lanes.global", "16");
        let daemon = place.start().await;
        let client = daemon.client().await;
        // Whoever waits for it is told before anybody is served, and so is its requester.
        let ended = client.ended(&bad.id).await;
        assert_eq!(ended["state"], "interrupted", "{ended}");
        assert_eq!(ended["error"]["kind"], "damaged", "{ended}");
        for other in spawned.iter().filter(|other| other.id != bad.id) {
            let ended = client.ended(&other.id).await;
            assert_eq!(ended["result"], "done", "{ended}");
        }
        client.quiet().await;
        let inbox = client
            .call("sessions.inbox", json!({ "sessionKey": root }))
            .await;
        let told: Vec<&Value> = inbox["announces"].as_array().unwrap().iter().collect();
        assert_eq!(told.len(), 1, "{inbox}");
        assert_eq!(told[0]["outcome"], "interrupted");
        // Its session takes work as before.
        let again = client.turn(&bad.session, "go on").await;
        assert_eq!(client.ended(&again.id).await["result"], "done");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g5_3_a_damaged_entry_is_a_gap_that_is_shown() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let session = "agent:build:talk";
        for message in ["one", "two", "three"] {
            let turn = client.turn(session, message).await;
            client.ended(&turn.id).await;
        }
        sql(
            &place,
            "UPDATE messages SET content = '[{\"type\":' WHERE seq = 3",
        );
        let history = async || {
            client
                .call("sessions.history", json!({ "sessionKey": session }))
                .await["messages"]
                .clone()
        };
        // The read that meets it leaves it out; what was set aside is shown as a gap.
        let shown = crate::harness::eventually("the gap", || async {
            let shown = history().await;
            (shown.as_array().unwrap().len() == 6).then_some(shown)
        })
        .await;
        let text = shown[2]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("damaged"), "{text}");
        assert_eq!(
            (&shown[2]["seq"], &shown[2]["role"]),
            (&json!(3), &json!("user"))
        );
        let turn = client.turn(session, "four").await;
        assert_eq!(client.ended(&turn.id).await["result"], "done");
        // Nothing of the bytes is lost.
        assert_eq!(daemon.stop().await, 0);
        let db = rusqlite::Connection::open(place.database()).unwrap();
        let row: String = db
            .query_row("SELECT row FROM quarantine", [], |row| row.get(0))
            .unwrap();
        let row: Value = serde_json::from_str(&row).unwrap();
        assert_eq!(row["content"], "[{\"type\":");
    });
}

#[test]
fn a_step_that_cannot_be_read_ends_its_run_and_releases_who_waits() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let held = client.spawn(json!({ "task": "[held]" })).await;
        client.in_state(&held.id, "running").await;
        sql(&place, "UPDATE steps SET input = '{'");
        let wait = async {
            let watcher = daemon.client().await;
            watcher.ended(&held.id).await
        };
        let look = client.call("runs.steps", json!({ "runId": held.id }));
        let (ended, _) = futures_util::join!(wait, look);
        assert_eq!(ended["state"], "interrupted", "{ended}");
        assert_eq!(ended["error"]["kind"], "damaged", "{ended}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_repeat_is_refused_when_nobody_knows_what_its_key_did() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "task": "x", "agent": "explore", "idempotencyKey": "once" });
        client.spawn(params.clone()).await;
        sql(&place, "UPDATE idempotency SET answer = '{'");
        for _ in 0..2 {
            let refused = client.refused("sessions.spawn", params.clone()).await;
            assert_eq!(refused.data["kind"], "conflict", "{refused:?}");
            assert!(refused.message.contains("once"), "{refused:?}");
        }
        let runs = client.call("runs.list", json!({})).await;
        assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}
