//! Files that an outside agent reads and writes through its client.

use std::fs;

use serde_json::json;

use super::played::{heard, lines};
use super::{calls_of, go, place};
use crate::harness::run;

#[test]
fn files_are_read_and_written_in_the_folder_of_the_run_alone() {
    run(async {
        let place = place("", "");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let folder = place.work().canonicalize().unwrap();
        fs::write(folder.join("a.txt"), "one\ntwo\nthree\n").unwrap();
        fs::write(place.path().join("secret"), "secret").unwrap();
        let secret = place.path().join("secret");
        let task = json!([
            { "read": { "path": folder.join("a.txt") } },
            { "read": { "path": folder.join("a.txt"), "line": 2, "limit": 1 } },
            { "read": { "path": secret } },
            { "read": { "path": folder.join("missing") } },
            { "write": { "path": folder.join("new/b.txt"), "content": "made\n" } },
            { "write": { "path": secret, "content": "changed" } },
            { "other": "session/fly" },
            { "say": "over" },
        ]);
        let spawned = go(&client, &task).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "over", "{ended}");
        let told = lines(&place, "files");
        assert_eq!(
            told[0],
            json!({ "content": "one\ntwo\nthree\n" }).to_string()
        );
        assert_eq!(told[1], json!({ "content": "two\n" }).to_string());
        assert!(told[2].contains("outside the allowed folder"), "{told:?}");
        assert!(told[3].contains("no such file"), "{told:?}");
        assert_eq!(told[4], "{}");
        assert!(told[5].contains("outside the allowed folder"), "{told:?}");
        assert_eq!(told[6], "-32601");
        assert_eq!(
            fs::read_to_string(folder.join("new/b.txt")).unwrap(),
            "made\n"
        );
        assert_eq!(fs::read_to_string(secret).unwrap(), "secret");
        // Writes are steps of the run.
        let calls = calls_of(&client, &spawned.id).await;
        let shown: Vec<_> = calls
            .iter()
            .map(|call| (&call["tool"], &call["state"]))
            .collect();
        assert_eq!(
            json!(shown),
            json!([["write", "done"], ["write", "failed"]]),
            "{calls:?}"
        );
        assert_eq!(daemon.stop().await, 0);
        heard(&place);
    });
}

#[test]
fn rules_apply_to_files_as_to_the_tools() {
    run(async {
        let place = place(
            "",
            "gate: {read: [{match: \"*.key\", decision: deny}], write: deny}",
        );
        let daemon = place.start().await;
        let client = daemon.client().await;
        let folder = place.work().canonicalize().unwrap();
        fs::write(folder.join("a.key"), "secret").unwrap();
        let task = json!([
            { "read": { "path": folder.join("a.key") } },
            { "write": { "path": folder.join("b"), "content": "x" } },
            { "say": "over" },
        ]);
        let spawned = go(&client, &task).await;
        assert_eq!(client.ended(&spawned.id).await["result"], "over");
        let told = lines(&place, "files");
        assert!(
            told.iter().all(|line| line.starts_with("denied")),
            "{told:?}"
        );
        assert!(!folder.join("b").exists());
        assert_eq!(daemon.stop().await, 0);
    });
}
