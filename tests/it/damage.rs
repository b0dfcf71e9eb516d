//! Damage of the store with the real binary: unreadable rows affect only themselves, and a damaged
//! file is set aside while its readable rows are kept.

use std::fs;

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
        // Waiters and the requester learn of it before the daemon serves any request.
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
        // Its session accepts work as before.
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
        // The read that meets it skips it; a quarantined entry is shown as a gap.
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
        // The raw bytes are kept.
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
fn a_run_whose_pinned_body_is_lost_ends_with_a_reason_and_can_be_done_again() {
    run(async {
        // Once as after the salvage of a damaged file, once without a sign of it.
        for salvaged in [true, false] {
            let place = place();
            let daemon = place.start().await;
            let client = daemon.client().await;
            let root = client.session("client", "bot").await;
            let held = client
                .spawn(json!({ "task": "[held]", "parent": root }))
                .await;
            client.in_state(&held.id, "running").await;
            daemon.kill().await;
            let unsettled = match salvaged {
                true => "INSERT INTO meta (name, value) VALUES ('salvage_unsettled', '1');",
                false => "",
            };
            sql(&place, &format!("DELETE FROM blobs; {unsettled}"));
            let daemon = place.start().await;
            let client = daemon.client().await;
            let ended = client.ended(&held.id).await;
            assert_eq!(ended["state"], "interrupted", "{ended}");
            assert_eq!(ended["error"]["kind"], "damaged", "{ended}");
            let message = ended["error"]["message"].as_str().unwrap();
            assert!(message.contains("the definition of its agent"), "{message}");
            assert!(
                message.contains(&format!("abide retry {}", held.id)),
                "{message}"
            );
            client.quiet().await;
            let inbox = client
                .call("sessions.inbox", json!({ "sessionKey": root }))
                .await;
            assert_eq!(inbox["announces"].as_array().unwrap().len(), 1, "{inbox}");
            place.let_go("go");
            let again = client.call("runs.retry", json!({ "runId": held.id })).await;
            let again = again["runId"].as_str().unwrap();
            assert_eq!(client.ended(again).await["result"], "held is done");
            client.quiet().await;
            assert_eq!(daemon.stop().await, 0);
            let stops = place.log().matches("a drive task stops").count();
            assert!(stops <= 1 + usize::from(!salvaged), "{}", place.log());
        }
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

#[test]
fn g5_1_a_damaged_file_is_set_aside_and_what_can_be_read_goes_on() {
    run(async {
        // The drain does not wait for the held run.
        let place = place().with("gateway.drain_timeout", "\"50ms\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "bot").await;
        let mut ended = Vec::new();
        for number in 0..60 {
            let params = json!({ "task": format!("task {number}"), "parent": root });
            let spawned = client.spawn(params).await;
            client.ended(&spawned.id).await;
            ended.push(spawned.id);
        }
        let held = client
            .spawn(json!({ "task": "[held]", "parent": root }))
            .await;
        client.in_state(&held.id, "running").await;
        let store = client.call("gateway.hello", json!({})).await["storeId"].clone();
        assert_eq!(daemon.stop().await, 0);
        let whole = fs::read(place.database()).unwrap();
        // The first page, without which SQLite cannot read the file.
        let mut torn = whole.clone();
        torn[..4096].fill(0);
        fs::write(place.database(), &torn).unwrap();

        let daemon = place.start().await;
        let client = daemon.client().await;
        let hello = client.call("gateway.hello", json!({})).await;
        assert_ne!(
            hello["storeId"], store,
            "cursors of the damaged store are not to be used"
        );
        for id in &ended {
            assert_eq!(client.run(id).await["result"], "done");
        }
        place.let_go("go");
        assert_eq!(client.ended(&held.id).await["result"], "held is done");
        client.quiet().await;
        // The damaged file is kept unchanged beside the new one, and all clients are notified.
        let aside: Vec<_> = set_aside(&place, "damaged");
        assert_eq!(aside.len(), 1, "{aside:?}");
        assert!(fs::read(&aside[0]).unwrap() == torn, "it was changed");
        assert!(
            place.log().contains("the store was salvaged"),
            "{}",
            place.log()
        );
        // Later clients see the alert too, across restarts, until the operator has dealt with the
        // file.
        assert_eq!(daemon.stop().await, 0);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let salvaged = client.call("gateway.status", json!({})).await["salvaged"].clone();
        assert_eq!(salvaged["setAside"], aside[0].to_str().unwrap());
        assert!(salvaged["kept"].as_u64() > Some(0), "{salvaged}");
        assert_eq!(salvaged["lost"], 0, "{salvaged}");
        let shown = place.command(&["status"]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.contains("damage   found at"), "{shown}");
        let finding = async || {
            let said = client.call("gateway.doctor", json!({})).await;
            let all = said["findings"].as_array().unwrap().clone();
            all.into_iter()
                .find(|one| one["id"] == "store.salvaged")
                .unwrap()
        };
        assert_eq!(finding().await["status"], "warn");
        fs::remove_file(&aside[0]).unwrap();
        let status = client.call("gateway.status", json!({})).await;
        assert!(status.get("salvaged").is_none(), "{status}");
        assert_eq!(finding().await["status"], "ok");
        assert_eq!(daemon.stop().await, 0);
        let db = rusqlite::Connection::open(place.database()).unwrap();
        let told: i64 = db
            .query_row(
                "SELECT count(*) FROM events WHERE kind = 'alert.raised' \
                 AND data LIKE '%store_salvaged%'",
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(told, 1);
    });
}

/// Files that were set aside for this reason.
pub(crate) fn set_aside(place: &Place, why: &str) -> Vec<std::path::PathBuf> {
    let start = format!("abide.db.{why}-");
    let entries = fs::read_dir(place.state()).unwrap();
    let mut found: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(&start)
        })
        .filter(|path| {
            let name = path.to_str().unwrap();
            !name.ends_with("-wal") && !name.ends_with("-shm")
        })
        .collect();
    found.sort();
    found
}

#[test]
fn g1_6_an_open_run_whose_rows_were_lost_has_ended_before_anybody_is_served() {
    run(async {
        // The drain does not wait for the held run.
        let place = place().with("gateway.drain_timeout", "\"50ms\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "bot").await;
        let held = client
            .spawn(json!({ "task": "[held]", "parent": root }))
            .await;
        client.in_state(&held.id, "running").await;
        assert_eq!(daemon.stop().await, 0);
        // The page of the journal is destroyed; that of its runs stays.
        let page: i64 = rusqlite::Connection::open(place.database())
            .unwrap()
            .query_row(
                "SELECT rootpage FROM sqlite_master WHERE name = 'steps'",
                [],
                |row| row.get(0),
            )
            .unwrap();
        let mut bytes = fs::read(place.database()).unwrap();
        let at = usize::try_from(page - 1).unwrap() * 4096;
        bytes[at..at + 4096].fill(0);
        fs::write(place.database(), bytes).unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = client.run(&held.id).await;
        assert_eq!(run["state"], "interrupted", "{run}");
        assert_eq!(run["error"]["kind"], "damaged");
        client.quiet().await;
        let inbox = client
            .call("sessions.inbox", json!({ "sessionKey": root }))
            .await;
        assert_eq!(inbox["announces"][0]["outcome"], "interrupted", "{inbox}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g5_1_a_damaged_write_ahead_file_is_kept_and_used_as_far_as_it_is_whole() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let path = place.database().with_extension("db-wal");
        let mut ended = Vec::new();
        // SQLite may have restarted the WAL file with the last of them.
        while ended.len() < 40 || superseded_frame(&fs::read(&path).unwrap()).is_none() {
            let task = json!({ "task": format!("task {}", ended.len()) });
            let spawned = client.spawn(task).await;
            client.ended(&spawned.id).await;
            ended.push(spawned.id);
            if ended.len() >= 40 {
                client.quiet().await;
            }
        }
        daemon.kill().await;
        let mut log = fs::read(&path).unwrap();
        let at = 32 + superseded_frame(&log).unwrap() * FRAME + 24 + 300;
        for byte in &mut log[at..at + 16] {
            *byte ^= 0xaa;
        }
        fs::write(&path, &log).unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        for id in &ended {
            assert_eq!(client.run(id).await["result"], "done");
        }
        assert!(
            place.log().contains("a WAL frame is damaged"),
            "{}",
            place.log()
        );
        let aside = set_aside(&place, "damaged");
        let mut kept = aside[0].clone().into_os_string();
        kept.push("-wal");
        assert!(
            fs::read(kept).unwrap() == log,
            "the damaged log was not kept as it was"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Size of a WAL frame in bytes: its header and a page.
const FRAME: usize = 24 + 4096;

/// Offset of a frame of the current WAL generation whose page occurs again in a later frame, so
/// that nothing is lost with it. SQLite restarts the file after a complete checkpoint and
/// overwrites the frames of the previous generation.
fn superseded_frame(log: &[u8]) -> Option<usize> {
    let salts = &log[16..24];
    let pages: Vec<&[u8]> = log[32..]
        .chunks_exact(FRAME)
        .take_while(|frame| &frame[8..16] == salts)
        .map(|frame| &frame[..4])
        .collect();
    (0..pages.len()).find(|at| pages[at + 1..].contains(&pages[*at]))
}

#[test]
fn damage_that_is_met_at_work_ends_in_a_repair_at_the_next_start() {
    run(async {
        let place = place().with("storage.check_after", "0");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut ended = Vec::new();
        for number in 0..80 {
            let task = format!("task {number} {}", "x".repeat(500));
            let spawned = client.spawn(json!({ "task": task })).await;
            client.ended(&spawned.id).await;
            ended.push(spawned.id);
        }
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        // A page that no start reads: one of the transcripts, the only table with the whole text.
        let mut bytes = fs::read(place.database()).unwrap();
        let marker = format!("task 40 {}", "x".repeat(200));
        let marker = marker.as_bytes();
        let found = bytes
            .windows(marker.len())
            .rposition(|window| window == marker);
        let page = found.unwrap() / 4096;
        bytes[page * 4096..(page + 1) * 4096].fill(0);
        fs::write(place.database(), &bytes).unwrap();

        let mut daemon = place.start().await;
        let client = daemon.client().await;
        let mut failed = 0;
        for id in &ended {
            let params = json!({ "runId": id });
            for (method, params) in [("runs.get", &params), ("runs.steps", &params)] {
                match client.attempt(method, params).await {
                    Ok(_) => {}
                    Err(Some(error)) => {
                        assert!(error.message.contains("damaged"), "{error:?}");
                        failed += 1;
                    }
                    // A write that meets the damage ends the process; no read does.
                    Err(None) => panic!("the daemon ended: {}", place.log()),
                }
            }
            let session = client.attempt("runs.get", &params).await;
            if let Ok(run) = session {
                let history = json!({ "sessionKey": run["sessionKey"] });
                if let Err(error) = client.attempt("sessions.history", &history).await {
                    let error = error.unwrap();
                    assert!(error.message.contains("damaged"), "{error:?}");
                    failed += 1;
                }
            }
        }
        assert!(failed > 0, "nothing met the damage");
        let doctor = client.call("gateway.doctor", json!({})).await;
        assert_eq!(doctor["ok"], false, "{doctor}");
        daemon.terminate();
        daemon.ended().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let saved = ended.len();
        let mut there = 0;
        for id in &ended {
            there += usize::from(
                client
                    .attempt("runs.get", &json!({ "runId": id }))
                    .await
                    .is_ok(),
            );
        }
        assert!(there >= saved - 30, "{there} of {saved}");
        let doctor = client.call("gateway.doctor", json!({})).await;
        assert_eq!(doctor["ok"], true, "{doctor}");
        assert_eq!(set_aside(&place, "damaged").len(), 1);
        assert_eq!(daemon.stop().await, 0);
    });
}
