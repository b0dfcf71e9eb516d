//! Stores of other versions, opened by the real binary.

use std::fs;

use rusqlite::Connection;

use crate::harness::{Place, Script, run};

/// Newer versions and builds from before the first release count their schemas otherwise.
#[test]
fn a_store_of_another_version_is_refused_with_both_numbers_and_left_as_it_is() {
    run(async {
        let place = Place::new(Script::new());
        let daemon = place.start().await;
        assert_eq!(daemon.stop().await, 0);
        let db = Connection::open(place.database()).unwrap();
        let known: i64 = db
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .unwrap();
        db.pragma_update(None, "user_version", known + 22).unwrap();
        db.close().unwrap();
        let before = fs::read(place.database()).unwrap();

        let output = place.command(&["serve"]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(74), "{error}");
        let numbers = format!("schema version {}, this program", known + 22);
        assert!(error.contains(&numbers), "{error}");
        assert!(
            error.contains(&format!("knows {known}: another version")),
            "{error}"
        );
        assert!(error.contains("Nothing was changed"), "{error}");
        assert!(!place.state().join("endpoint.json").exists());
        assert_eq!(fs::read(place.database()).unwrap(), before);
    });
}
