//! Following the event log: snapshots, cursors, filters.

use std::collections::BTreeSet;

use abide::wire::events::Event;
use futures_util::future::join_all;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::{is_mark, logged, mark, next, snapshot, stored_events, until};
use crate::harness::{Place, Script, calls, kind_of, run, says};

fn place() -> Place {
    let script = Script::new()
        .on("[held]", [says("held is done").held_by("go")])
        .on(
            "[tool]",
            [calls("read", json!({ "path": "notes.txt" })), says("read")],
        )
        .on("[a]", [says("a is done")])
        .on_announce("a is done", [says("told")]);
    Place::new(script)
}

#[test]
fn g9_5_without_a_position_comes_a_picture_of_what_is_live_and_then_what_follows() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let ended = client.spawn(json!({ "task": "[a]" })).await;
        client.ended(&ended.id).await;
        let held = client.spawn(json!({ "task": "[held]" })).await;
        client.in_state(&held.id, "running").await;

        let mut events = client.subscribe(json!({})).await;
        let first = next(&mut events).await;
        let picture = snapshot(&first);
        assert_eq!(picture["more"], false);
        assert_eq!(picture["runs"].as_array().unwrap().len(), 1, "{picture}");
        assert_eq!(picture["runs"][0]["runId"], held.id.as_str());
        assert_eq!(picture["runs"][0]["state"], "running");
        assert_eq!(picture["sessions"][0]["key"], held.session.as_str());
        let hello = client.call("gateway.hello", json!({})).await;
        assert_eq!(picture["storeId"], hello["storeId"]);

        place.let_go("go");
        let followed = until(&mut events, |event| event.kind == "run.ended").await;
        let start = picture["cursor"].as_i64().unwrap();
        assert!(followed.iter().all(|event| event.cursor.unwrap() > start));
        let kinds: Vec<&str> = followed.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["message.added", "run.step", "run.ended"]);
        let last = followed.last().unwrap();
        assert_eq!(last.run_id.unwrap().to_string(), held.id);
        assert_eq!(last.session_key.as_deref(), Some(held.session.as_str()));
        assert_eq!(last.org_id.as_deref(), Some("default"));
        assert_eq!(last.data["state"], "ok");
        let trace = client.run(&held.id).await["traceId"].clone();
        assert_eq!(json!(last.trace_id), trace);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g9_4_a_reader_that_comes_back_over_kills_sees_every_event_once_and_in_order() {
    run(async {
        let place = place();
        let mut seen: Vec<Event> = Vec::new();
        for life in 0..6 {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let since = seen.last().map_or(0, |event| event.cursor.unwrap());
            let mut events = client.subscribe(json!({ "since": since })).await;
            let root = client.session("agent", &format!("root-{life}")).await;
            for task in ["[a]", "[tool]", "[a]"] {
                client.spawn(json!({ "task": task, "parent": root })).await;
            }
            if life < 5 {
                // The daemon is killed after a different number of events each time.
                for _ in 0..7 * (life + 1) {
                    seen.push(next(&mut events).await);
                }
                daemon.kill().await;
                continue;
            }
            client.quiet().await;
            let end = mark(&client, "client:end").await;
            seen.extend(until(&mut events, |event| is_mark(event, &end)).await);
            assert_eq!(daemon.stop().await, 0);
        }
        let last = seen.last().unwrap().cursor.unwrap();
        assert_eq!(stored_events(&seen), logged(&place.book(), 0, last));
        let starts = seen.iter().filter(|event| event.kind == "gateway.started");
        assert_eq!(starts.count(), 6);
    });
}

#[test]
fn a_picture_and_what_follows_it_have_no_gap_and_no_double_under_load() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let load = async {
            for _ in 0..8 {
                let spawns = (0..12).map(|_| client.spawn(json!({ "task": "[tool]" })));
                join_all(spawns).await;
            }
        };
        let watch = async {
            let mut watched = Vec::new();
            for _ in 0..20 {
                let mut events = client.subscribe(json!({})).await;
                let first = next(&mut events).await;
                // Each is read while the others are created.
                watched.push(tokio::spawn(async move {
                    let is_last = |event: &Event| is_mark(event, "client:end");
                    (first, until(&mut events, is_last).await)
                }));
            }
            watched
        };
        let ((), watched) = futures_util::join!(load, watch);
        client.quiet().await;
        mark(&client, "client:end").await;
        let all = join_all(watched).await;
        assert_eq!(daemon.stop().await, 0);
        let book = place.book();
        let mut pictured = 0;
        for watched in all {
            let (first, followed) = watched.unwrap();
            let picture = snapshot(&first);
            let start = picture["cursor"].as_i64().unwrap();
            let last = followed.last().unwrap().cursor.unwrap();
            assert_eq!(stored_events(&followed), logged(&book, start, last));
            // The snapshot describes exactly that moment of the log.
            let mut live = BTreeSet::new();
            for event in book.events.range(..=start).map(|(_, event)| event) {
                match event.kind.as_str() {
                    "run.queued" => drop(live.insert(event.run.clone().unwrap())),
                    "run.ended" => drop(live.remove(event.run.as_ref().unwrap())),
                    _ => {}
                }
            }
            let runs = picture["runs"].as_array().unwrap().iter();
            let shown: BTreeSet<String> = runs
                .map(|run| run["runId"].as_str().unwrap().to_owned())
                .collect();
            assert_eq!(shown, live);
            pictured += live.len();
        }
        assert!(pictured > 0, "no picture was taken under load");
    });
}

#[test]
fn each_filter_lets_through_exactly_what_it_names() {
    run(async {
        let place = place().with("defaults.max_spawn_depth", "2");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let held = client
            .spawn(json!({ "task": "[held]", "parent": root }))
            .await;
        let below = json!({ "task": "[tool]", "parent": held.session });
        let below = client.spawn(below).await;
        let other = client.spawn(json!({ "task": "[a]" })).await;
        client.ended(&below.id).await;
        client.ended(&other.id).await;
        place.let_go("go");
        client.ended(&held.id).await;
        client.quiet().await;
        let end = mark(&client, "client:end").await;

        let mut all = client.subscribe(json!({ "since": 0 })).await;
        let all = until(&mut all, |event| is_mark(event, &end)).await;
        let tree = client.run(&below.id).await["rootRunId"].clone();
        let of_run =
            |event: &Event, id: &str| event.run_id.is_some_and(|run| run.to_string() == id);
        let in_tree = |event: &Event| {
            let is_root = |id: &&String| tree == id.as_str();
            let root = [&held.id, &below.id].into_iter().find(is_root).unwrap();
            of_run(event, &below.id) || of_run(event, root)
        };
        let of_session = |event: &Event| event.session_key.as_deref() == Some(root.as_str());
        let of_tools = |event: &Event| event.kind.starts_with("tool.");
        type Chosen<'a> = &'a dyn Fn(&Event) -> bool;
        let cases: [(Value, Chosen<'_>); 5] = [
            (json!({ "runId": below.id }), &|event| {
                of_run(event, &below.id)
            }),
            (json!({ "sessionKey": root }), &of_session),
            (json!({ "tree": tree }), &in_tree),
            (json!({ "kinds": ["tool.*", "run.ended"] }), &|event| {
                of_tools(event) || event.kind == "run.ended"
            }),
            (
                json!({ "runId": below.id, "kinds": ["tool.*"] }),
                &|event| of_run(event, &below.id) && of_tools(event),
            ),
        ];
        for (mut filter, is_chosen) in cases {
            let expected: Vec<Event> = all.iter().filter(|one| is_chosen(one)).cloned().collect();
            assert!(
                !expected.is_empty() && expected.len() < all.len(),
                "{filter}"
            );
            filter["since"] = json!(0);
            let mut events = client.subscribe(filter).await;
            let mut seen = Vec::new();
            while seen.len() < expected.len() {
                seen.push(next(&mut events).await);
            }
            assert_eq!(seen, expected);
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_cursor_that_is_too_old_or_of_another_store_is_refused_by_name() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "[a]" })).await;
        client.ended(&a.id).await;
        let ahead = json!({ "since": 1_000_000_000 });
        let refused = client.refused("events.subscribe", ahead).await;
        assert_eq!(kind_of(&refused), "cursor_unknown", "{refused}");
        let elsewhere = json!({ "since": 1, "storeId": "another" });
        let refused = client.refused("events.subscribe", elsewhere).await;
        assert_eq!((kind_of(&refused), refused.code), ("cursor_unknown", 410));
        assert_eq!(daemon.stop().await, 0);

        let cursors: Vec<i64> = place.book().events.keys().copied().collect();
        let cut = cursors[cursors.len() / 2];
        let db = Connection::open(place.database()).unwrap();
        db.execute("DELETE FROM events WHERE cursor <= ?1", [cut])
            .unwrap();
        drop(db);

        let daemon = place.start().await;
        let client = daemon.client().await;
        let old = json!({ "since": cut - 1 });
        let refused = client.refused("events.subscribe", old).await;
        assert_eq!((kind_of(&refused), refused.code), ("cursor_expired", 410));
        assert_eq!(refused.data["oldest"], cut);
        // The cursor that it names is valid, and so is a snapshot.
        let mut events = client.subscribe(json!({ "since": cut })).await;
        let first = next(&mut events).await;
        assert_eq!(
            first.cursor,
            cursors.iter().find(|one| **one > cut).copied()
        );
        let mut events = client.subscribe(json!({})).await;
        snapshot(&next(&mut events).await);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_run_that_is_asked_for_by_its_id_is_in_the_picture_in_any_state() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "[a]" })).await;
        client.ended(&a.id).await;
        for filter in [json!({ "runId": a.id }), json!({ "tree": a.id })] {
            let mut events = client.subscribe(filter).await;
            let first = next(&mut events).await;
            let runs = snapshot(&first)["runs"].as_array().unwrap();
            assert_eq!(runs.len(), 1);
            assert_eq!(runs[0]["state"], "ok");
        }
        let unknown = json!({ "sessionKey": "agent:build:nobody" });
        let mut events = client.subscribe(unknown).await;
        let first = next(&mut events).await;
        assert_eq!(snapshot(&first)["runs"], json!([]));
        assert_eq!(snapshot(&first)["sessions"], json!([]));
        assert_eq!(daemon.stop().await, 0);
    });
}
