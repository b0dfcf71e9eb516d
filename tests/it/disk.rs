//! A disk that is full or rejects writes.
//!
//! The full disk is a small tmpfs, which only root may mount; elsewhere that test reports that it
//! was skipped, and the one with `storage.min_free` shows the daemon's side.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::harness::{Daemon, Link, Place, Script, eventually, run, says};

fn place() -> Place {
    Place::new(
        Script::new()
            .on("[held]", [says("held is done").held_by("go")])
            // Larger than the allocated WAL file.
            .on("[large]", [says(&"large ".repeat(400_000)).held_by("go")])
            .on("*", [says("done")]),
    )
}

/// A mount that is removed when the test ends.
struct Mount(PathBuf);

impl Mount {
    /// `None` if nothing can be mounted here.
    fn new(arguments: &[&str], at: &Path) -> Option<Mount> {
        let done = Command::new("mount").args(arguments).arg(at).output();
        let done = done.is_ok_and(|done| done.status.success());
        done.then(|| Mount(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// Fills the remaining space of the disk with a file.
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
        // Reads and waits are answered; running work keeps its outcome until it can be stored.
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
        // Nothing is resumed either, and nothing is lost.
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
                println!("skipped: no file system can be mounted here");
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

/// A daemon that is not waited for: its socket shows what it can do on a full disk.
struct Started(Child);

impl Started {
    fn new(place: &Place) -> Started {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(place.path().join("daemon.log"))
            .unwrap();
        let mut command = place.command(&["serve"]);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Started(command.spawn().unwrap())
    }

    async fn client(&mut self, place: &Place) -> Link {
        let socket = place.state().join("abide.sock");
        eventually("its socket", || {
            let ended = self.0.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}; {}", place.log());
            Link::local(&socket)
        })
        .await
    }

    fn terminate(&self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    }

    fn ended(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A place on a small separate disk, with one finished and one running run.
async fn small(min_free: &str) -> Option<(Place, Mount, Daemon, [String; 2])> {
    let place = place().with("storage.min_free", min_free);
    fs::create_dir(place.state()).unwrap();
    let options = ["-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs"];
    let mount = Mount::new(&options, &place.state())?;
    let daemon = place.start().await;
    let client = daemon.client().await;
    let ended = client.spawn(json!({ "task": "before" })).await;
    client.ended(&ended.id).await;
    let held = client.spawn(json!({ "task": "[held]" })).await;
    client.in_state(&held.id, "running").await;
    Some((place, mount, daemon, [ended.id, held.id]))
}

#[test]
fn g5_1_a_start_on_a_full_disk_answers_what_only_reads_and_goes_on_by_itself() {
    run(async {
        for killed in [true, false] {
            let Some((place, _mount, daemon, [ended, held])) = small("\"1 MiB\"").await else {
                println!("skipped: no file system can be mounted here");
                return;
            };
            if killed {
                daemon.kill().await;
            } else {
                let client = daemon.client().await;
                let order = json!({ "then": "stop", "timeout": 0 });
                client.call("gateway.drain", order).await;
                let mut daemon = daemon;
                assert_eq!(daemon.ended().await.code(), Some(0));
            }
            let ballast = fill(&place.state());
            let mut started = Started::new(&place);
            let client = started.client(&place).await;
            eventually("what only reads", || async {
                client.attempt("runs.list", &json!({})).await.ok()
            })
            .await;
            assert_eq!(client.run(&ended).await["result"], "done");
            let waited = client
                .call("agent.wait", json!({ "runId": ended, "waitTimeout": 0 }))
                .await;
            assert_eq!(waited["runs"][0]["status"], "ok");
            let waited = client
                .call("agent.wait", json!({ "runId": held, "waitTimeout": 0 }))
                .await;
            assert_eq!(waited["runs"][0]["status"], "pending", "{waited}");
            let mut events = client
                .subscribe(json!({ "since": 0, "kinds": ["run.ended"] }))
                .await;
            let event = events.next().await.unwrap().unwrap();
            assert_eq!(event.run_id.unwrap().to_string(), ended);
            no_new_work(&client).await;
            let status = client.call("gateway.status", json!({})).await;
            assert_eq!(status["phase"], "ready", "{status}");

            fs::remove_file(ballast).unwrap();
            place.let_go("go");
            assert_eq!(client.ended(&held).await["result"], "held is done");
            let event = events.next().await.unwrap().unwrap();
            assert_eq!(event.run_id.unwrap().to_string(), held);
            let after = client.spawn(json!({ "task": "after" })).await;
            assert_eq!(client.ended(&after.id).await["result"], "done");
            let own = format!("\"pid\": {}", started.0.id());
            eventually("its address", || async {
                let endpoint = fs::read_to_string(place.state().join("endpoint.json"));
                endpoint.is_ok_and(|text| text.contains(&own)).then_some(())
            })
            .await;
            client.quiet().await;
            started.terminate();
            assert_eq!(started.ended(), Some(0), "{}", place.log());
        }
    });
}

#[test]
fn a_start_that_waits_for_room_can_be_stopped() {
    run(async {
        let Some((place, _mount, daemon, [ended, held])) = small("\"1 MiB\"").await else {
            println!("skipped: no file system can be mounted here");
            return;
        };
        daemon.kill().await;
        let ballast = fill(&place.state());
        let mut started = Started::new(&place);
        let client = started.client(&place).await;
        eventually("what only reads", || async {
            client.attempt("runs.list", &json!({})).await.ok()
        })
        .await;
        started.terminate();
        assert_eq!(started.ended(), Some(0), "{}", place.log());
        fs::remove_file(ballast).unwrap();
        place.let_go("go");
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(client.run(&ended).await["result"], "done");
        assert_eq!(client.ended(&held).await["result"], "held is done");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_first_start_on_a_full_disk_says_so() {
    let place = place();
    fs::create_dir(place.state()).unwrap();
    let options = ["-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs"];
    let Some(_mount) = Mount::new(&options, &place.state()) else {
        println!("skipped: no file system can be mounted here");
        return;
    };
    for fills in [false, true] {
        let ballast = fills.then(|| fill(&place.state()));
        let output = place.command(&["serve"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(74), "{said}");
        assert!(said.contains("is full"), "{said}");
        assert!(said.contains("Free some space"), "{said}");
        assert!(!place.database().exists(), "no half store is left");
        drop(ballast);
    }
}

/// A separate file system on a loop file that rejects writes after its first error; also returns
/// the file that triggers the error.
fn failing(place: &Place) -> Option<(Mount, PathBuf)> {
    let image = place.path().join("disk.img");
    fs::File::create(&image)
        .and_then(|file| file.set_len(32 << 20))
        .unwrap();
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F"])
        .arg(&image)
        .output();
    let made = made.is_ok_and(|made| made.status.success());
    let name = image.to_str().unwrap();
    let options = ["-o", "loop,errors=remount-ro", name];
    let mount = made
        .then(|| Mount::new(&options, &place.state()))
        .flatten()?;
    let source = Command::new("findmnt")
        .args(["-n", "-o", "SOURCE"])
        .arg(place.state())
        .output()
        .ok()?;
    let source = String::from_utf8(source.stdout).ok()?;
    let device = Path::new(source.trim()).file_name()?;
    let trigger = Path::new("/sys/fs/ext4")
        .join(device)
        .join("trigger_fs_error");
    trigger.exists().then_some((mount, trigger))
}

#[test]
fn g5_1_a_file_system_that_fails_under_the_daemon_ends_it_and_loses_nothing_of_what_was_answered() {
    run(async {
        let place = place();
        fs::create_dir(place.state()).unwrap();
        let Some((mount, trigger)) = failing(&place) else {
            println!("skipped: no file system can be made to fail here");
            return;
        };
        fs::set_permissions(place.state(), fs::Permissions::from_mode(0o700)).unwrap();
        let place = place.with("storage.min_free", "0");
        let mut daemon = place.start().await;
        let client = daemon.client().await;
        let ended = client.spawn(json!({ "task": "before" })).await;
        client.ended(&ended.id).await;
        let held = client.spawn(json!({ "task": "[held]" })).await;
        client.in_state(&held.id, "running").await;
        // From now on the file system rejects writes, so the result of a sync is not reliable.
        fs::write(trigger, "1").unwrap();
        let params = json!({ "task": "x", "agent": "explore", "idempotencyKey": "x" });
        assert!(client.attempt("sessions.spawn", &params).await.is_err());
        assert_eq!(daemon.ended().await.code(), Some(74), "{}", place.log());
        assert!(place.log().contains("the store failed"), "{}", place.log());
        // The exit code tells a supervisor that a retry does not help.
        let output = place.command(&["serve"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(77), "{said}");

        drop(mount);
        let image = place.path().join("disk.img");
        let mended = Command::new("e2fsck").arg("-fy").arg(&image).output();
        assert!(mended.is_ok());
        let options = ["-o", "loop", image.to_str().unwrap()];
        let _mount = Mount::new(&options, &place.state()).unwrap();
        place.let_go("go");
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(client.run(&ended.id).await["result"], "done");
        assert_eq!(client.ended(&held.id).await["result"], "held is done");
        let again = client.call("sessions.spawn", params).await;
        let again = again["runId"].as_str().unwrap().to_owned();
        assert_eq!(client.ended(&again).await["result"], "done");
        assert_eq!(daemon.stop().await, 0);
    });
}
