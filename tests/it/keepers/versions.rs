//! Keepers of other versions, and of another state folder: an older one is understood, and a newer
//! one and that of a copied folder are left alone.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::{WAITS, continued, let_go, recorded, started};
use crate::harness::{eventually, run};
use crate::processes::{self, command_result, is_alive};

#[test]
fn the_folder_of_an_older_keeper_is_understood() {
    run(async {
        let place = processes::place(&format!("echo of an older keeper; {WAITS}; sleep 4000"));
        let (daemon, _, spawned) = started(&place).await;
        daemon.kill().await;
        place.kill_keepers().await;
        // What version 1 has written, of a program that has ended. The salt opens its output.
        let folder = place.keeper_folders().pop().unwrap();
        let step = folder.file_name().unwrap().to_str().unwrap();
        let written = fs::read_to_string(folder.join("keeper")).unwrap();
        let written: Value = serde_json::from_str(&written).unwrap();
        let record = format!(
            "{{\"version\":1,\"run\":\"{}\",\"step\":\"{step}\",\"keeper\":{{\"pid\":4194303,\
             \"start\":7}},\"machine\":null,\"salt\":{}}}\n",
            spawned.id, written["salt"]
        );
        fs::write(folder.join("keeper"), record).unwrap();
        let exit = "{\"ending\":{\"exited\":3},\"remaining\":[]}\n";
        fs::write(folder.join("exit"), exit).unwrap();
        let told = continued(&place, &spawned).await;
        assert_eq!(told, "exit status 3\nstdout:\nof an older keeper");
    });
}

#[test]
fn a_newer_keeper_is_left_alone_and_shown() {
    run(async {
        let place = processes::place(&format!("{WAITS}; sleep 0.01; exit 3"));
        let (daemon, _, spawned) = started(&place).await;
        let keepers = place.keepers();
        daemon.kill().await;
        // It goes on, and a newer version would have written this.
        let folder = place.keeper_folders().pop().unwrap();
        let record = "{\"version\":2,\"keepers\":[]}\n";
        fs::write(folder.join("keeper"), record).unwrap();
        let doctor = |place: &crate::harness::Place| {
            let output = place.command(&["doctor", "--json"]).output().unwrap();
            let found: Value = serde_json::from_slice(&output.stdout).unwrap();
            let findings = found["findings"].as_array().unwrap().iter();
            let mut kept = findings.filter(|one| one["id"] == "programs.kept");
            kept.next().unwrap().clone()
        };
        let says = "a newer version keeps programs, which this one leaves alone";
        let outside = doctor(&place);
        assert_eq!(outside["status"], "warn", "{outside}");
        assert!(outside.to_string().contains(says), "{outside}");
        let daemon = place.start().await;
        let client = daemon.client().await;
        client.ended(&spawned.id).await;
        let told = command_result(&client, &spawned.session).await;
        let newer = "uncertain: its keeper is of a newer abide";
        assert!(told.starts_with(newer), "{told}");
        assert!(told.contains(folder.to_str().unwrap()), "{told}");
        let inside = doctor(&place);
        assert!(inside.to_string().contains(says), "{inside}");
        // Neither the end of its run nor that of the daemon ends it.
        assert_eq!(daemon.stop().await, 0);
        let daemon = place.start().await;
        daemon.kill().await;
        assert!(keepers.len() == 1 && is_alive(keepers[0]), "{keepers:?}");
        assert_eq!(fs::read_to_string(folder.join("keeper")).unwrap(), record);
        let_go(&place);
        assert_eq!(recorded(&place).await["ending"], json!({ "exited": 3 }));
        eventually("its end", async || (!is_alive(keepers[0])).then_some(())).await;
        assert_eq!(processes::begun(&place), 1);
    });
}

#[test]
fn a_copy_of_the_state_folder_leaves_the_programs_of_the_original_alone() {
    run(async {
        let place = processes::place(&format!("{WAITS}; echo over"));
        let (daemon, _, spawned) = started(&place).await;
        let keepers = place.keepers();
        daemon.kill().await;
        let other = processes::place("true");
        let copied = Command::new("cp")
            .arg("-r")
            .args([place.state(), other.path().to_owned()])
            .status();
        assert!(copied.unwrap().success());
        let daemon = other.start().await;
        let client = daemon.client().await;
        client.ended(&spawned.id).await;
        let told = command_result(&client, &spawned.session).await;
        assert!(told.starts_with("uncertain: "), "{told}");
        assert_eq!(daemon.stop().await, 0);
        assert!(keepers.len() == 1 && is_alive(keepers[0]), "{keepers:?}");
        // The original goes on as if there were no copy.
        let_go(&place);
        let told = continued(&place, &spawned).await;
        assert_eq!(told, "exit status 0\nstdout:\nover");
    });
}

#[test]
fn a_folder_of_another_step_is_not_followed() {
    run(async {
        let place = processes::place(&format!("{WAITS}; sleep 4000"));
        let (daemon, _, spawned) = started(&place).await;
        daemon.kill().await;
        place.kill_keepers().await;
        // As after a file was restored to the wrong place.
        let folder = place.keeper_folders().pop().unwrap();
        let record = fs::read_to_string(folder.join("keeper")).unwrap();
        let mut record: Value = serde_json::from_str(&record).unwrap();
        record["step"] = "01936f0e-0000-7000-8000-000000000001".into();
        fs::write(folder.join("keeper"), format!("{record}\n")).unwrap();
        fs::write(
            folder.join("exit"),
            "{\"ending\":{\"exited\":0},\"remaining\":[]}\n",
        )
        .unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        client.ended(&spawned.id).await;
        let told = command_result(&client, &spawned.session).await;
        let says = "uncertain: its folder is that of step 01936f0e";
        assert!(told.starts_with(says), "{told}");
        assert_eq!(processes::begun(&place), 1);
        assert_eq!(daemon.stop().await, 0);
    });
}
