//! A disk that is full, or takes no writes.
//!
//! The full disk is a small tmpfs, which only root may mount; elsewhere that test says that it
//! was skipped, and the one with `storage.min_free` shows the same from the daemon's side.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::harness::{Link, Place, Script, eventually, run, says};

fn place() -> Place {
    Place::new(
        Script::new()
            .on("[held]", [says("held is done").held_by("go")])
            // More than the write-ahead file has room for as it is.
            .on("[large]", [says(&"large ".repeat(400_000)).held_by("go")])
            .on("*", [says("done")]),
    )
}

/// A mount that ends with the test.
struct Mount(PathBuf);

impl Mount {
    fn new(arguments: &[&str], at: &Path) -> Option<Mount> {
        let done = Command::new("mount").args(arguments).arg(at).output();
        match done {
            Ok(done) if done.status.success() => Some(Mount(at.to_owned())),
            other => {
                println!("skipped, nothing can be mounted here: {other:?}");
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// Fills what is left of the disk with a file.
fn fill(folder: &Path) -> PathBuf {
    let ballast = folder.join("ballast");
    let mut file = fs::File::create(&ballast).unwrap();
    for size in [64 * 1024, 4096, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    ballast
}

async fn no_new_work(client: &Link) {
    let refused = client
        .refused("sessions.spawn", json!({ "task": "x", "agent": "explore" }))
        .await;
    assert_eq!(refused.data["kind"], "unavailable", "{refused:?}");
    assert!(refused.data["retryAfterMs"].is_u64(), "{refused:?}");
    assert!(
        refused.data["hint"]
            .as_str()
            .unwrap()
            .contains("free some space")
    );
}

#[test]
fn g5_1_a_full_disk_refuses_new_work_loses_nothing_and_goes_on_by_itself() {
    run(async {
        let place = place().with("storage.min_free", "\"1 MiB\"");
        fs::create_dir(place.state()).unwrap();
        let state = place.state();
        let Some(_mount) = Mount::new(
            &["-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs"],
            &state,
        ) else {
            return;
        };
        let daemon = place.start().await;
        let client = daemon.client().await;
        let ended = client.spawn(json!({ "task": "before" })).await;
        client.ended(&ended.id).await;
        let held = client.spawn(json!({ "task": "[large]" })).await;
        client.in_state(&held.id, "running").await;
        let ballast = fill(&state);
        eventually("the last accepted spawn", || async {
            let params = json!({ "task": "x", "agent": "explore" });
            client
                .attempt("sessions.spawn", &params)
                .await
                .is_err()
                .then_some(())
        })
        .await;
        no_new_work(&client).await;
        // Reads and waits are answered; what is at work waits with its outcome.
        assert_eq!(client.run(&ended.id).await["result"], "done");
        place.let_go("go");
        let waited = client
            .call("agent.wait", json!({ "runId": held.id, "waitTimeout": 2 }))
            .await;
        assert_eq!(waited["runs"][0]["status"], "pending", "{waited}");
        let doctor = client.call("gateway.doctor", json!({})).await;
        assert_eq!(doctor["ok"], false, "{doctor}");
        no_new_work(&client).await;

        fs::remove_file(ballast).unwrap();
        let ended = client.ended(&held.id).await;
        assert_eq!(ended["state"], "ok", "{ended}");
        assert!(ended["result"].as_str().unwrap().starts_with("large large"));
        let after = eventually("new work", || async {
            let params = json!({ "task": "after", "agent": "explore" });
            client.attempt("sessions.spawn", &params).await.ok()
        })
        .await;
        let after = after["runId"].as_str().unwrap().to_owned();
        assert_eq!(client.ended(&after).await["result"], "done");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_is_kept_free_is_for_what_was_accepted() {
    run(async {
        let mut place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let held = client.spawn(json!({ "task": "[held]" })).await;
        client.in_state(&held.id, "running").await;
        daemon.kill().await;
        place.let_go("go");
        // More than any disk has.
        place.set("storage.min_free", "\"9000000 GiB\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        no_new_work(&client).await;
        let refused = client
            .refused("sessions.spawn", json!({ "task": "x", "agent": "explore" }))
            .await;
        assert_eq!(refused.data["limit"], "storage.min_free", "{refused:?}");
        // Nothing is resumed either, and nothing is lost of it.
        assert_eq!(client.run(&held.id).await["state"], "queued");
        client.call("runs.list", json!({})).await;
        assert_eq!(daemon.stop().await, 0);
        place.set("storage.min_free", "0");
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(client.ended(&held.id).await["result"], "held is done");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_store_that_takes_no_writes_is_a_matter_of_permissions() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let a = daemon.client().await.spawn(json!({ "task": "a" })).await;
        daemon.client().await.ended(&a.id).await;
        assert_eq!(daemon.stop().await, 0);
        let before = fs::read(place.database()).unwrap();
        let refused = |what: &Path| {
            let output = place.command(&["serve"]).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(77), "{said}");
            assert!(said.contains(what.to_str().unwrap()), "{said}");
        };
        for what in [place.database(), place.state()] {
            let name = what.to_str().unwrap().to_owned();
            let Some(_mount) = Mount::new(&["--bind", &name], &what) else {
                return;
            };
            let closed = Command::new("mount")
                .args(["-o", "remount,ro,bind"])
                .arg(&what)
                .status()
                .unwrap();
            assert!(closed.success());
            refused(&what);
        }
        assert!(before == fs::read(place.database()).unwrap());
        let daemon = place.start().await;
        assert_eq!(daemon.client().await.run(&a.id).await["result"], "done");
        assert_eq!(daemon.stop().await, 0);
    });
}
