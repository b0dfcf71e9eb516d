//! A store whose files are removed or replaced under a running daemon: nothing that was accepted is
//! lost, and no work is accepted that could not be stored.

use std::fs;

use serde_json::json;

use crate::harness::{Daemon, Place, Script, eventually, run, says};

fn place() -> Place {
    Place::new(
        Script::new()
            .on("[held]", [says("held is done").held_by("go")])
            .on("*", [says("done")]),
    )
}

/// Waits until the daemon has noticed and exited; returns its log.
async fn ended(mut daemon: Daemon, place: &Place) -> String {
    assert_eq!(daemon.ended().await.code(), Some(74), "{}", place.log());
    place.log()
}

#[test]
fn files_that_are_removed_under_the_daemon_cost_nothing_that_was_accepted() {
    run(async {
        for gone in [
            &["abide.db"][..],
            &["abide.db-wal"],
            &["abide.db-shm"],
            &["abide.db", "abide.db-wal", "abide.db-shm"],
        ] {
            let place = place();
            let daemon = place.start().await;
            let client = daemon.client().await;
            let first = client.spawn(json!({ "task": "first" })).await;
            client.ended(&first.id).await;
            let held = client.spawn(json!({ "task": "[held]" })).await;
            client.in_state(&held.id, "running").await;
            for name in gone {
                fs::remove_file(place.state().join(name)).unwrap();
            }
            // Spawns may still be accepted: each accepted one must exist afterwards.
            let mut accepted = Vec::new();
            for number in 0.. {
                let params = json!({ "task": format!("task {number}"), "agent": "explore" });
                match client.attempt("sessions.spawn", &params).await {
                    Ok(spawned) => accepted.push(spawned["runId"].as_str().unwrap().to_owned()),
                    Err(_) => break,
                }
            }
            let log = ended(daemon, &place).await;
            assert!(
                log.contains("was removed while the daemon was running"),
                "{log}"
            );
            let daemon = place.start().await;
            let client = daemon.client().await;
            place.let_go("go");
            assert_eq!(client.ended(&held.id).await["result"], "held is done");
            for id in accepted.iter().chain([&first.id]) {
                assert_eq!(client.ended(id).await["result"], "done", "{gone:?}");
            }
            let told = "SELECT count(*) FROM events WHERE kind = 'alert.raised' \
                        AND data LIKE '%store_moved%'";
            let db = rusqlite::Connection::open(place.database()).unwrap();
            let told: i64 = db.query_row(told, [], |row| row.get(0)).unwrap();
            assert_eq!(told, 1, "{gone:?}");
            client.quiet().await;
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn a_daemon_without_work_notices_as_well() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let first = client.spawn(json!({ "task": "first" })).await;
        client.ended(&first.id).await;
        client.quiet().await;
        // The whole folder, with the token and the lock.
        fs::remove_dir_all(place.state()).unwrap();
        ended(daemon, &place).await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(client.run(&first.id).await["result"], "done");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_file_that_takes_the_stores_place_stays_and_the_store_is_kept_beside_it() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let first = client.spawn(json!({ "task": "first" })).await;
        client.ended(&first.id).await;
        let made = client.call("gateway.backup", json!({})).await;
        let second = client.spawn(json!({ "task": "second" })).await;
        client.ended(&second.id).await;
        client.quiet().await;
        let next = place.path().join("next.db");
        fs::copy(made["path"].as_str().unwrap(), &next).unwrap();
        fs::rename(&next, place.database()).unwrap();
        let log = ended(daemon, &place).await;
        assert!(
            log.contains("was replaced while the daemon was running"),
            "{log}"
        );
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(client.run(&first.id).await["result"], "done");
        client
            .refused("runs.get", json!({ "runId": second.id }))
            .await;
        let doctor = client.call("gateway.doctor", json!({})).await;
        assert!(doctor.to_string().contains("abide.db.rescued-"), "{doctor}");
        assert_eq!(daemon.stop().await, 0);
        let rescued: Vec<_> = fs::read_dir(place.state())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_str().unwrap().contains("abide.db.rescued-"))
            .collect();
        assert_eq!(rescued.len(), 1, "{rescued:?}");
        let file = rescued[0].to_str().unwrap();
        let restored = place
            .command(&["restore", file, "--force"])
            .output()
            .unwrap();
        assert_eq!(restored.status.code(), Some(0), "{restored:?}");
        let daemon = place.start().await;
        assert_eq!(
            daemon.client().await.run(&second.id).await["result"],
            "done"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_cannot_be_saved_yet_stops_new_work_until_it_can() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let first = client.spawn(json!({ "task": "first" })).await;
        client.ended(&first.id).await;
        client.quiet().await;
        // The state folder cannot be created where a file is.
        let kept = place.path().join("kept");
        fs::rename(place.state(), &kept).unwrap();
        fs::write(place.state(), "").unwrap();
        let params = json!({ "task": "more", "agent": "explore" });
        let refused = eventually("a refusal", || async {
            client
                .attempt("sessions.spawn", &params)
                .await
                .err()
                .flatten()
        })
        .await;
        assert_eq!(refused.data["kind"], "unavailable", "{refused:?}");
        assert!(
            refused.message.contains("removed or replaced"),
            "{refused:?}"
        );
        assert_eq!(client.run(&first.id).await["result"], "done");
        let doctor = client.call("gateway.doctor", json!({})).await;
        assert_eq!(doctor["ok"], false, "{doctor}");
        assert!(
            doctor
                .to_string()
                .contains("was removed while the daemon was running"),
            "{doctor}"
        );
        fs::remove_file(place.state()).unwrap();
        ended(daemon, &place).await;
        let daemon = place.start().await;
        assert_eq!(daemon.client().await.run(&first.id).await["result"], "done");
        assert_eq!(daemon.stop().await, 0);
    });
}
