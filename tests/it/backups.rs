//! Backups and restores through the real binary: a backup is complete or absent, and a kill at any
//! moment of a restore leaves either the old store or the new one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::harness::{Faults, Link, Place, Script, eventually, run, says};

fn place() -> Place {
    Place::new(
        Script::new()
            .on("[held]", [says("held is done").held_by("go")])
            .on("*", [says("done")]),
    )
}

fn abide(place: &Place, arguments: &[&str]) -> (i32, String, String) {
    told(place.command(arguments).output().unwrap())
}

fn told(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap_or(-1),
        text(output.stdout),
        text(output.stderr),
    )
}

async fn runs(client: &Link) -> Vec<String> {
    let listed = client.call("runs.list", json!({ "limit": 500 })).await;
    let runs = listed["runs"].as_array().unwrap().iter();
    let mut ids: Vec<String> = runs
        .map(|run| run["runId"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

fn copies(place: &Place, start: &str) -> Vec<PathBuf> {
    let folder = place.state().join("backups");
    let entries = fs::read_dir(folder).map(|entries| entries.map(|entry| entry.unwrap().path()));
    let mut found: Vec<PathBuf> = entries.into_iter().flatten().collect();
    found.retain(|path| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with(start)
    });
    found.sort();
    found
}

fn count(path: &Path, sql: &str) -> i64 {
    let db = Connection::open(path).unwrap();
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_backup_is_whole_private_and_never_overwrites() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        // Work continues while the backup is made.
        let busy = async {
            for number in 0..20 {
                let spawned = client
                    .spawn(json!({ "task": format!("task {number}") }))
                    .await;
                client.ended(&spawned.id).await;
            }
        };
        let other = daemon.client().await;
        let (made, ()) = futures_util::join!(other.call("gateway.backup", json!({})), busy);
        let path = PathBuf::from(made["path"].as_str().unwrap());
        assert_eq!(path.parent().unwrap(), place.state().join("backups"));
        assert_eq!(made["bytes"], fs::metadata(&path).unwrap().len());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(
            count(
                &path,
                "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"
            ),
            0
        );
        assert_eq!(
            count(&path, "SELECT count(*) FROM runs"),
            made["rows"]["runs"]
        );
        let hello = client.call("gateway.hello", json!({})).await;
        assert_eq!(made["storeId"], hello["storeId"]);

        let before = fs::read(&path).unwrap();
        let refused = client
            .refused("gateway.backup", json!({ "path": path.to_str().unwrap() }))
            .await;
        assert_eq!(refused.data["kind"], "conflict", "{refused:?}");
        assert!(before == fs::read(&path).unwrap(), "it was overwritten");
        let refused = client
            .refused("gateway.backup", json!({ "path": "here.db" }))
            .await;
        assert_eq!(refused.data["kind"], "invalid_params", "{refused:?}");
        let nowhere = place.path().join("no/such/folder.db");
        let refused = client
            .refused(
                "gateway.backup",
                json!({ "path": nowhere.to_str().unwrap() }),
            )
            .await;
        assert_eq!(refused.data["path"], "path", "{refused:?}");
        assert_eq!(copies(&place, "").len(), 1);
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_restored_store_is_the_backups_with_an_id_of_its_own() {
    run(async {
        let mut place = place();
        place.set("lanes.global", "16");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "bot").await;
        let a = client.spawn(json!({ "task": "a", "parent": root })).await;
        client.ended(&a.id).await;
        let held = client
            .spawn(json!({ "task": "[held]", "parent": root }))
            .await;
        client.in_state(&held.id, "running").await;
        let store = client.call("gateway.hello", json!({})).await["storeId"].clone();
        let file = place.path().join("kept.db");
        let file = file.to_str().unwrap();
        let (code, out, err) = abide(&place, &["backup", "kept.db"]);
        assert_eq!((code, out.trim()), (0, file), "{err}");
        let later = client.spawn(json!({ "task": "later" })).await;
        client.ended(&later.id).await;

        // Restore is refused while a daemon holds the folder, and over an existing store without
        // `--force`.
        let (code, _, err) = abide(&place, &["restore", file, "--force"]);
        assert_eq!(code, 75, "{err}");
        place.let_go("go");
        client.ended(&held.id).await;
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        let before = fs::read(place.database()).unwrap();
        let (code, _, err) = abide(&place, &["restore", file]);
        assert_eq!(code, 9, "{err}");
        assert!(err.contains("--force"), "{err}");
        assert!(before == fs::read(place.database()).unwrap());

        let (code, out, err) = abide(&place, &["restore", file, "--force", "--json"]);
        assert_eq!(code, 0, "{err}");
        let restored: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(restored["openRuns"], 1);
        let aside = restored["setAside"].as_str().unwrap();
        assert!(
            before == fs::read(aside).unwrap(),
            "what was there is not kept"
        );
        let daemon = place.start().await;
        let client = daemon.client().await;
        let hello = client.call("gateway.hello", json!({})).await;
        assert_ne!(
            hello["storeId"], store,
            "old cursors would meet other events"
        );
        let mut expected = vec![a.id.clone(), held.id.clone()];
        expected.sort();
        assert_eq!(runs(&client).await, expected);
        assert_eq!(client.ended(&held.id).await["result"], "held is done");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_is_no_whole_store_is_not_put_in_place_of_one() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        client.spawn(json!({ "task": "a" })).await;
        client.quiet().await;
        let made = client.call("gateway.backup", json!({})).await;
        assert_eq!(daemon.stop().await, 0);
        let good = fs::read(made["path"].as_str().unwrap()).unwrap();
        let before = fs::read(place.database()).unwrap();
        let file = place.path().join("file.db");
        let newer = place.path().join("newer.db");
        fs::write(&newer, &good).unwrap();
        Connection::open(&newer)
            .unwrap()
            .pragma_update(None, "user_version", 4711)
            .unwrap();
        let foreign = place.path().join("foreign.db");
        Connection::open(&foreign)
            .unwrap()
            .execute_batch("CREATE TABLE other (n)")
            .unwrap();
        let mut torn = good.clone();
        let middle = torn.len() / 2;
        torn[middle..middle + 8192].fill(0x5a);
        for (bytes, says) in [
            (fs::read(&newer).unwrap(), "4711"),
            (fs::read(&foreign).unwrap(), "not an abide store"),
            (torn, "damaged"),
            (b"something else".to_vec(), "not a database"),
            (Vec::new(), "not a database"),
        ] {
            fs::write(&file, bytes).unwrap();
            let (code, _, err) = abide(&place, &["restore", file.to_str().unwrap(), "--force"]);
            assert_eq!(code, 9, "{err}");
            assert!(err.contains(says), "{says}: {err}");
            assert!(
                before == fs::read(place.database()).unwrap(),
                "it was changed"
            );
            assert!(!place.state().join("abide.db.saved").exists());
        }
    });
}

#[test]
fn a_kill_during_a_backup_leaves_no_half_one() {
    run(async {
        let place = place();
        let orders = Faults::ordered("store.backup.copied=kill");
        let daemon = place.start_with(&orders).await.unwrap();
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "a" })).await;
        client.ended(&a.id).await;
        let lost = client.attempt("gateway.backup", &json!({})).await;
        assert_eq!(lost.err().map(|error| error.is_some()), Some(false));
        drop(daemon);
        let names = copies(&place, "");
        let is_half = |path: &PathBuf| path.to_str().unwrap().ends_with(".partial");
        assert!(names.iter().any(is_half), "{names:?}");
        // The start removes it, including a partial file with a custom name.
        let daemon = place.start_with(&orders).await.unwrap();
        assert_eq!(copies(&place, ""), [] as [PathBuf; 0]);
        let named = place.path().join("named.db");
        let params = json!({ "path": named.to_str().unwrap() });
        let lost = daemon
            .client()
            .await
            .attempt("gateway.backup", &params)
            .await;
        assert_eq!(lost.err().map(|error| error.is_some()), Some(false));
        drop(daemon);
        let half = place.path().join("named.db.partial");
        assert!(half.exists(), "the kill came too early");
        let daemon = place.start().await;
        assert!(!half.exists() && !named.exists());
        // The next backup removes it too, whichever process left it.
        let other = place.state().join("backups/abide-old.db.partial");
        fs::write(&other, "half").unwrap();
        let client = daemon.client().await;
        let made = client.call("gateway.backup", json!({})).await;
        assert_eq!(made["rows"]["runs"], 1);
        assert!(!other.exists());
        assert_eq!(daemon.stop().await, 0);
        let left: Vec<_> = fs::read_dir(place.state())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| {
                [".new", ".partial", ".saved", ".copying"]
                    .iter()
                    .any(|end| name.ends_with(end))
            })
            .collect();
        assert_eq!(left, [] as [String; 0]);
    });
}

#[test]
fn a_kill_at_any_point_of_a_restore_leaves_the_old_store_or_the_new_one() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "a" })).await;
        client.ended(&a.id).await;
        let made = client.call("gateway.backup", json!({})).await;
        let file = made["path"].as_str().unwrap().to_owned();
        let b = client.spawn(json!({ "task": "b" })).await;
        client.ended(&b.id).await;
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        let old = fs::read(place.database()).unwrap();
        let mut both = vec![a.id.clone(), b.id.clone()];
        both.sort();
        for (point, expected) in [
            ("store.restore.prepared", &both),
            ("store.switch.ordered", &vec![a.id.clone()]),
            ("store.switch.moved", &vec![a.id.clone()]),
            ("store.switch.placed", &vec![a.id.clone()]),
        ] {
            let output = place
                .command(&["restore", &file, "--force"])
                .env("ABIDE_FAILPOINTS", format!("{point}=kill"))
                .output()
                .unwrap();
            assert_eq!(output.status.code(), None, "{point}: {output:?}");
            let daemon = place.start().await;
            assert_eq!(&runs(&daemon.client().await).await, expected, "{point}");
            assert_eq!(daemon.stop().await, 0);
            // Put the old store back for the next failpoint.
            fs::write(place.database(), &old).unwrap();
        }
    });
}

#[test]
fn the_daemon_makes_backups_by_itself_and_the_newest_is_restored_by_name() {
    run(async {
        let place = place()
            .with("storage.backup_every", "\"100ms\"")
            .with("storage.backup_keep", "2")
            .with("retention.sweep_each", "\"100ms\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let newest = || {
            let mut made = copies(&place, "auto-");
            made.retain(|path| path.extension().is_some_and(|end| end == "db"));
            assert!(
                made.len() <= 3,
                "two are kept, and one may just be made: {made:?}"
            );
            made.pop()
        };
        for number in 1..=3 {
            let spawned = client
                .spawn(json!({ "task": format!("task {number}") }))
                .await;
            client.ended(&spawned.id).await;
            eventually("a backup with every run", async || {
                let ended = "SELECT count(*) FROM runs WHERE ended_at IS NOT NULL";
                newest().filter(|path| count(path, ended) == number)
            })
            .await;
        }
        let status = client.call("gateway.status", json!({})).await;
        assert!(status["backup"]["bytes"].as_u64().unwrap() > 0, "{status}");
        let (_, shown, _) = abide(&place, &["status"]);
        assert!(shown.contains("  backup   "), "{shown}");
        let doctor = client.call("gateway.doctor", json!({})).await;
        let findings = doctor["findings"].as_array().unwrap();
        let found = findings.iter().find(|one| one["id"] == "store.backup");
        assert_eq!(found.unwrap()["status"], "ok", "{doctor}");
        drop(client);
        assert_eq!(daemon.stop().await, 0);
        let (code, out, told) = abide(&place, &["restore", "--latest"]);
        assert_eq!(code, 9, "{out}{told}");
        assert!(told.contains("--force"), "{told}");
        let (code, out, told) = abide(&place, &["restore", "--latest", "--force"]);
        assert_eq!(code, 0, "{told}");
        assert!(out.contains("3 runs"), "{out}");
        assert!(told.contains("the newest backup is "), "{told}");
        fs::remove_dir_all(place.state().join("backups")).unwrap();
        let (code, _, told) = abide(&place, &["restore", "--latest", "--force"]);
        assert_eq!(code, 3, "{told}");
        assert!(told.contains("no intact backup"), "{told}");
    });
}

#[test]
fn a_kill_after_a_daily_backup_leaves_one_too_many_and_the_next_removes_it() {
    run(async {
        let place = place()
            .with("storage.backup_every", "\"100ms\"")
            .with("storage.backup_keep", "1")
            .with("retention.sweep_each", "\"100ms\"");
        let orders = Faults::ordered("store.backup.kept=kill@2");
        let daemon = place.start_with(&orders).await.unwrap();
        let client = daemon.client().await;
        let auto = || {
            let mut made = copies(&place, "auto-");
            made.retain(|path| path.extension().is_some_and(|end| end == "db"));
            made
        };
        eventually("the first backup", async || {
            (!auto().is_empty()).then_some(())
        })
        .await;
        // The daemon is killed when the second one has its name and the first is not removed.
        let _ = client
            .attempt("sessions.create", &json!({ "agent": "build" }))
            .await;
        eventually("the kill", async || {
            client.attempt("gateway.ping", &json!({})).await.err()
        })
        .await;
        drop(daemon);
        let left = auto();
        assert_eq!(left.len(), 2, "{left:?}");
        for path in &left {
            let db = Connection::open(path).unwrap();
            let check = "PRAGMA integrity_check";
            let found: String = db.query_row(check, [], |row| row.get(0)).unwrap();
            assert_eq!(found, "ok", "{path:?}");
            assert_eq!(count(path, "SELECT count(*) FROM boots"), 1, "{path:?}");
        }
        let daemon = place.start().await;
        eventually("one newer backup", async || {
            let made = auto();
            (made.len() == 1 && !left.contains(&made[0])).then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
    });
}
