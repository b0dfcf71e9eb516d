//! Damages a store behind the daemon's back.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

/// Runs `sql` bypassing every trigger and check, even while a daemon has the store open.
pub(crate) fn damaged(database: &Path, sql: &str) {
    let db = Connection::open(database).unwrap();
    db.busy_timeout(Duration::from_secs(10)).unwrap();
    db.execute_batch("PRAGMA ignore_check_constraints = 1; BEGIN IMMEDIATE")
        .unwrap();
    let triggers: Vec<(String, String)> = db
        .prepare("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for (name, _) in &triggers {
        db.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    db.execute_batch(sql).unwrap();
    for (_, trigger) in &triggers {
        db.execute_batch(trigger).unwrap();
    }
    db.execute_batch("COMMIT").unwrap();
}
