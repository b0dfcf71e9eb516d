//! Stores of earlier versions, opened by the real binary.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use serde_json::json;

use crate::harness::{Place, Script, run, says};

/// A store as the first version left it.
fn old_store(place: &Place) {
    fs::create_dir(place.state()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(place.state(), mode).unwrap();
    let db = Connection::open(place.database()).unwrap();
    db.execute_batch(include_str!(
        "../../src/store/migrations/sqlite/0001_sessions_and_runs.sql"
    ))
    .unwrap();
    db.execute_batch("PRAGMA foreign_keys = 0").unwrap();
    db.execute_batch(include_str!("../../src/store/tests/fixtures/schema_1.sql"))
        .unwrap();
    db.pragma_update(None, "user_version", 1).unwrap();
}

fn place() -> Place {
    Place::new(Script::new().on("*", [says("done")]))
}

fn count(path: &Path, table: &str) -> i64 {
    let db = Connection::open(path).unwrap();
    let sql = format!("SELECT count(*) FROM {table}");
    db.query_row(&sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_store_of_the_first_version_goes_on() {
    run(async {
        let place = place();
        old_store(&place);
        let runs = count(&place.database(), "runs");
        let daemon = place.start().await;
        let client = daemon.client().await;
        client.quiet().await;
        client.call("sessions.list", json!({ "kind": "all" })).await;
        assert_eq!(daemon.stop().await, 0);
        assert!(runs > 0 && count(&place.database(), "runs") >= runs);
    });
}

#[test]
fn g5_10_a_failed_migration_leaves_the_old_store_and_a_copy_and_starts_nothing() {
    run(async {
        let place = place();
        old_store(&place);
        let runs = count(&place.database(), "runs");
        // In the way of the second step.
        let obstacle = Connection::open(place.database()).unwrap();
        obstacle
            .execute_batch("CREATE TABLE new_runs (n); PRAGMA wal_checkpoint(TRUNCATE)")
            .unwrap();
        drop(obstacle);
        let output = place.command(&["serve"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(74), "{said}");
        assert!(
            said.contains("migration 0002_whole_registry failed"),
            "{said}"
        );
        let copy = place.state().join("abide.before-0002_whole_registry.db");
        assert!(said.contains(copy.to_str().unwrap()), "{said}");
        assert!(!place.state().join("endpoint.json").exists());
        for file in [&copy, &place.database()] {
            let version: i64 = Connection::open(file)
                .unwrap()
                .pragma_query_value(None, "user_version", |row| row.get(0))
                .unwrap();
            assert_eq!((version, count(file, "runs")), (1, runs));
        }
        // With the obstacle gone the next start does it.
        Connection::open(place.database())
            .unwrap()
            .execute_batch("DROP TABLE new_runs")
            .unwrap();
        let daemon = place.start().await;
        daemon.client().await.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}
