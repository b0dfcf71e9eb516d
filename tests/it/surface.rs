//! Snapshots of what clients and stored files rely on: the document of `rpc.discover`, the schema
//! of a fresh store, and the data of each kind of event. A change here is visible to users.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::harness::{Place, Script, StoreRows, run};

/// The paths in the data of events, with the type at each path, by kind.
#[derive(Default)]
pub(crate) struct EventPaths(BTreeMap<String, BTreeSet<String>>);

impl EventPaths {
    /// The paths of all events in a store.
    pub(crate) fn of(book: &StoreRows) -> EventPaths {
        let mut paths = EventPaths::default();
        for event in book.events.values() {
            let seen = paths.0.entry(event.kind.clone()).or_default();
            collect(&event.data, "", seen);
        }
        paths
    }

    pub(crate) fn merge(&mut self, other: EventPaths) {
        for (kind, seen) in other.0 {
            self.0.entry(kind).or_default().extend(seen);
        }
    }

    /// Compares with the snapshot. An optional field may be missing from one run of all scenarios
    /// only if it depends on timing.
    pub(crate) fn check(&self) {
        let mut text = String::new();
        for (kind, paths) in &self.0 {
            text.push_str(kind);
            text.push('\n');
            for path in paths {
                text.push_str(&format!("  {path}\n"));
            }
        }
        insta::assert_snapshot!("events", text);
    }
}

fn collect(value: &Value, path: &str, seen: &mut BTreeSet<String>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(items) => {
            for item in items {
                collect(item, &format!("{path}[]"), seen);
            }
            "array"
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                collect(field, &format!("{path}{dot}{name}"), seen);
            }
            "object"
        }
    };
    if !path.is_empty() {
        seen.insert(format!("{path}: {kind}"));
    }
}

#[test]
fn methods_and_schemas_of_the_protocol() {
    let mut document = run(async {
        let place = Place::new(Script::new());
        let daemon = place.start().await;
        let client = daemon.client().await;
        client.call("rpc.discover", json!({})).await
    });
    document["servers"][0]["url"] = json!("http://127.0.0.1:PORT");
    let text = serde_json::to_string_pretty(&document).unwrap();
    insta::assert_snapshot!("discover", text);
}

#[test]
fn schema_of_a_fresh_store() {
    let text = run(async {
        let place = Place::new(Script::new());
        let daemon = place.start().await;
        assert_eq!(daemon.stop().await, 0);
        let db = Connection::open(place.database()).unwrap();
        let mut rows = db
            .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name")
            .unwrap();
        let rows: Vec<String> = rows
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        rows.join(";\n\n")
    });
    insta::assert_snapshot!("schema", text);
}
