//! Area 5, storage: nothing grows without limit, and no lock causes a loss.

use std::fs;
use std::time::Duration;

use futures_util::future::join_all;
use rusqlite::Connection;
use serde_json::json;

use crate::harness::{Daemon, Link, Place, Script, run, says};

/// Maximum size of the WAL file, in bytes.
const WAL_LIMIT: u64 = 64 * 1024 * 1024;

fn place() -> Place {
    Place::new(Script::new().on("*", [says("done")]))
}

fn wal(place: &Place) -> u64 {
    let file = place.database().with_extension("db-wal");
    fs::metadata(file).map_or(0, |file| file.len())
}

/// Number of open files of the daemon's process.
fn open_files(daemon: &Daemon) -> usize {
    fs::read_dir(format!("/proc/{}/fd", daemon.pid()))
        .unwrap()
        .count()
}

/// Private memory of the daemon's process, in KiB.
fn memory(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The writer's cache fills up once, whatever the number of runs; its size is a design constant.
const WRITER_CACHE_KIB: u64 = 8 * 1024;

/// Spawns `count` runs, a few at a time, and waits for them.
async fn many(client: &Link, count: usize) {
    for chunk in 0..count / 50 {
        let spawns = (0..50).map(|number| {
            client.spawn(json!({ "task": format!("task {chunk} {number}"), "announce": "none" }))
        });
        let runs = join_all(spawns).await;
        let ids: Vec<&str> = runs.iter().map(|run| run.id.as_str()).collect();
        let params = json!({ "runIds": ids, "waitTimeout": 60 });
        let waited = client.call("agent.wait", params).await;
        assert_eq!(waited["cause"], "ended");
    }
    client.quiet().await;
}

#[test]
fn g5_4_a_lock_that_somebody_else_holds_for_a_moment_is_waited_out() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let db = Connection::open(place.database()).unwrap();
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        let release = async {
            client.call("gateway.ping", json!({})).await;
            // Blocked while the spawn is being written; reads are answered meanwhile.
            client.call("runs.list", json!({})).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            db.execute_batch("COMMIT").unwrap();
        };
        let (spawned, ()) = futures_util::join!(client.spawn(json!({ "task": "x" })), release);
        assert_eq!(client.ended(&spawned.id).await["result"], "done");
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Takes some 12 s: leaks show only after thousands of runs.
#[test]
fn g5_5_g5_12_five_thousand_runs_and_their_sessions_leave_nothing_behind_in_the_process() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        many(&client, 100).await;
        let (files, start) = (open_files(&daemon), memory(&daemon));
        // The first part fills the caches of the database.
        many(&client, 3400).await;
        let warm = memory(&daemon);
        many(&client, 1500).await;
        let (files_after, after) = (open_files(&daemon), memory(&daemon));
        println!("files {files}, {files_after}; memory {start}, {warm}, {after} KiB");
        // A pool of readers may still have grown by a few, but not with the sessions.
        assert!(
            files_after <= files + 8,
            "{files} open files became {files_after}"
        );
        assert!(
            after <= 2 * start + WRITER_CACHE_KIB,
            "{start} KiB became {after}: stated is twice the start and the writer's cache"
        );
        assert!(
            after * 10 <= warm * 11,
            "it still grows: {warm} KiB became {after}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Takes some 6 s: the test must write more than the file's limit.
#[test]
fn g5_7_g5_8_the_write_ahead_file_is_bounded_beside_readers_and_empty_after_a_stop() {
    run(async {
        let place = place().with("lanes.global", "0");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let task = "a long task ".repeat(256 * 1024 / 12);
        let mut largest = 0;
        for number in 0..36 {
            // Two MiB per round, and concurrent readers.
            let spawns = (0..8).map(|_| client.spawn(json!({ "task": &task })));
            let reads = (0..4).map(|_| client.call("runs.list", json!({ "limit": 20 })));
            futures_util::join!(join_all(spawns), join_all(reads));
            largest = largest.max(wal(&place));
            assert!(largest <= WAL_LIMIT, "{largest} bytes after round {number}");
        }
        println!("the write-ahead file had {largest} bytes at most");
        let written = fs::metadata(place.database()).unwrap().len() + wal(&place);
        assert!(
            written > WAL_LIMIT,
            "too little was written to show anything: {written}"
        );
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(wal(&place), 0);
    });
}

#[test]
fn g5_9_a_child_is_never_shown_as_a_root_session() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let child = client.spawn(json!({ "task": "x", "parent": root })).await;
        client.ended(&child.id).await;
        let keys = async |kind: &str| {
            let listed = client.call("sessions.list", json!({ "kind": kind })).await;
            let sessions = listed["sessions"].as_array().unwrap().clone();
            sessions
                .iter()
                .map(|one| one["key"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(keys("main").await, [root]);
        assert_eq!(keys("child").await, [child.session]);
        assert_eq!(daemon.stop().await, 0);
    });
}
