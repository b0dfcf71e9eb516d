//! The system's real limits of file watches: the daemon runs in a separate namespace with limits
//! close to zero. Where such a namespace cannot be created, the test is skipped with a note.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::{Value, json};

use super::{notice, replace, until_bumped, version, watched};
use crate::harness::peers::announce;
use crate::harness::{Link, Place, Script, eventually, run};
use crate::skills::put;

/// The daemon of this place under this value of a system limit; the error is why it is not
/// available.
fn limited(place: &Place, limit: &str, value: u32) -> Result<Command, String> {
    let set = format!("echo {value} > /proc/sys/user/{limit}");
    spaced(place, &["--map-root-user"], &set)
}

/// The daemon of this place in a user namespace with these options, after this shell line; the
/// error is why it is not available.
fn spaced(place: &Place, options: &[&str], first: &str) -> Result<Command, String> {
    let unshare = ["/usr/bin/unshare", "/bin/unshare"];
    let unshare = unshare.iter().find(|path| fs::exists(path).unwrap());
    let unshare = unshare.ok_or("there is no unshare")?;
    let spaced = |line: &str| {
        let mut command = Command::new(unshare);
        command.arg("--user").args(options);
        command.args(["/bin/sh", "-c", line]);
        command
    };
    let can = spaced(first).output().unwrap();
    if !can.status.success() {
        return Err(String::from_utf8_lossy(&can.stderr).into_owned());
    }
    let serve = place.command(&["serve"]);
    let mut command = spaced(&format!("{first} && exec \"$0\" \"$@\""));
    command
        .arg(serve.get_program())
        .args(serve.get_args())
        .env_clear()
        .envs(
            serve
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(place.path());
    Ok(command)
}

async fn finding(client: &Link, id: &str) -> Value {
    let said = client.call("gateway.doctor", json!({})).await;
    let findings = said["findings"].as_array().unwrap();
    let found = findings.iter().find(|one| one["id"] == id);
    found.unwrap_or_else(|| panic!("{id}: {said}")).clone()
}

/// Takes some 6 s: without events, folders are scanned every 5 s.
#[test]
fn g6_3_g6_7_where_the_system_gives_no_more_watches_changes_are_found_by_looking_and_it_is_said() {
    std::thread::scope(|scope| {
        scope.spawn(|| changes_are_found_by_looking("max_inotify_watches", 2));
        scope.spawn(|| changes_are_found_by_looking("max_inotify_instances", 0));
    });
}

fn changes_are_found_by_looking(limit: &str, value: u32) {
    let place = Place::new(Script::new());
    let skills = place.work().join("skills");
    for name in ["one", "two", "three"] {
        put(&skills, name, "Does it.", "Do it.");
    }
    let command = match limited(&place, limit, value) {
        Ok(command) => command,
        Err(why) => return announce(&format!("skipped: {why}")),
    };
    run(async {
        let daemon = place.start_command(command).await.unwrap();
        let client = daemon.client().await;
        let here = json!({ "workspace": place.work() });
        let version = client.call("skills.snapshot", here.clone()).await["version"].clone();
        let finding = eventually("the notice", async || {
            let said = client.call("gateway.doctor", json!({})).await;
            let findings = said["findings"].as_array().unwrap().iter();
            let mut findings = findings.filter(|one| one["id"] == "watch.skills");
            findings.next().cloned()
        })
        .await;
        assert_eq!(finding["status"], "warn", "{finding}");
        let said = finding.to_string();
        for words in [
            "detected late",
            "file events are unavailable",
            "every 5s",
            "poll",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        let status = client.call("gateway.status", json!({})).await;
        let notices = status["notices"].as_array().unwrap();
        assert!(notices.contains(&finding["message"]), "{status}");
        put(&skills, "one", "Does it.", "Do it otherwise.");
        let told = eventually("the change", async || {
            let mut events = place.book().events.into_values();
            events.find(|event| {
                event.kind == "skills.changed" && event.data["version"].as_i64() > version.as_i64()
            })
        })
        .await;
        assert_eq!(told.data["reason"], "watch");
        assert_eq!(daemon.stop().await, 0);
    });
}

/// An ancestor folder of the workspace may be traversed but not listed, not even by its owner; in
/// the namespace no process can bypass permissions.
#[test]
fn a_folder_that_nobody_may_look_into_above_the_work_takes_no_events_away() {
    let place = Place::new(Script::new()).with("skills.bundled", "false");
    let locked = place.path().join("locked");
    let work = locked.join("work");
    put(&work, "skills/one", "Does it.", "Do it.");
    let mode = |mode| fs::set_permissions(&locked, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o311);
    let tried = format!("! ls {locked:?}");
    run(async {
        match spaced(&place, &[], &tried) {
            Ok(command) => {
                let daemon = place.start_command(command).await.unwrap();
                let client = daemon.client().await;
                let first = version(&client, &work).await;
                put(&work, "skills/two", "Does it.", "Do it.");
                let told = until_bumped(&place, &work, first, 2).await;
                replace(&work.join("skills/one"), "It is watched.");
                until_bumped(&place, &work, told.version, 2).await;
                assert_eq!(notice(&client).await, None);
                assert!(watched(&daemon) > 0);
                // Now only that folder could report that the workspace is back.
                fs::remove_dir_all(&work).unwrap();
                let gone = until_bumped(&place, &work, told.version, 0).await;
                let said = eventually("the notice", async || notice(&client).await).await;
                assert!(said.to_string().contains("every 5s"), "{said}");
                put(&work, "skills/three", "Does it.", "Do it.");
                until_bumped(&place, &work, gone.version, 1).await;
                assert_eq!(daemon.stop().await, 0);
            }
            Err(why) => announce(&format!("skipped: {why}")),
        }
    });
    mode(0o755);
}

#[test]
fn the_doctor_knows_the_limit_that_holds_for_the_daemon() {
    let place = Place::new(Script::new());
    let command = match limited(&place, "max_inotify_watches", 77) {
        Ok(command) => command,
        Err(why) => return announce(&format!("skipped: {why}")),
    };
    run(async {
        let daemon = place.start_command(command).await.unwrap();
        let found = finding(&daemon.client().await, "inotify").await;
        assert_eq!(found["status"], "warn", "{found}");
        assert!(
            found["message"].as_str().unwrap().starts_with("77 "),
            "{found}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}
